-- What is used of a bucket now, in parts of a unit: a unit has as many as the period has milliseconds.
CREATE OR REPLACE FUNCTION {s}.rate_limit_drained_1(
    at bigint, used bigint, parts bigint, rate bigint, period bigint, now bigint
) RETURNS numeric
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT greatest(0, used::numeric * period + parts - greatest(0, now::numeric - at) * rate)
$$;
-- The rate of a bucket whose limit is set to so many units: in proportion, rounded up, so that it takes as long to fill.
CREATE OR REPLACE FUNCTION {s}.rate_limit_rate_1(is_set boolean, units bigint, most bigint, rate bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN NOT is_set OR units IS NULL THEN rate
        WHEN rate = most OR most = 0 THEN units
        ELSE least(4294967295, div(units::numeric * rate + most - 1, most))::bigint
    END
$$;
-- Whether so many refusals in a row, the last of them at an instant, block a key now.
CREATE OR REPLACE FUNCTION {s}.rate_limit_is_blocked_1(
    at bigint, refusals bigint, blocks_after bigint, lasts bigint, now bigint
) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT refusals > 0 AND refusals >= blocks_after AND {s}.rate_limit_plus_1(
        CASE WHEN at > {s}.rate_limit_plus_1(now, 1000) THEN now ELSE at END, lasts) > now
$$;
-- Whether another part of the same policy has refused: one that blocks, or one that does not.
CREATE OR REPLACE FUNCTION {s}.rate_limit_kin_refuse_1(
    part int, first int, behind int, by_block boolean, kinds int[], parts int[], kin int[], fits boolean[]
) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT EXISTS (
        SELECT FROM generate_series(first, behind - 1) AS other
        WHERE (kinds[parts[other]] = 4) = by_block AND kin[other] = kin[part] AND NOT fits[other])
$$;
-- Puts the events of a key right that a clock which has stepped back has left ahead, as one at now, and totals that have become too
-- large. What had left the window before is deleted, or it would be inside again.
CREATE OR REPLACE FUNCTION {s}.rate_limit_mend_1(of_policy text, of_key text, period bigint, now bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    newest record;
    gone_at bigint;
    moved record;
BEGIN
    SELECT e.at, e.total INTO newest FROM {s}.rate_limit_events AS e
    WHERE e.policy = of_policy AND e.key = of_key ORDER BY e.at DESC LIMIT 1;
    IF newest.at > {s}.rate_limit_plus_1(now, 1000) THEN
        gone_at := {s}.rate_limit_plus_1(newest.at, -period);
        SELECT sum(e.units)::bigint AS units, max(e.total) AS total INTO moved FROM {s}.rate_limit_events AS e
        WHERE e.policy = of_policy AND e.key = of_key AND e.at > greatest(now, gone_at);
        INSERT INTO {s}.rate_limit_events AS e (policy, key, at, units, total, expires_at)
        VALUES (of_policy, of_key, now, moved.units, moved.total,
            {s}.rate_limit_plus_1({s}.rate_limit_plus_1(now, period), 10000))
        ON CONFLICT (policy, key, at) DO UPDATE SET
            units = e.units + excluded.units, total = excluded.total, expires_at = excluded.expires_at;
        DELETE FROM {s}.rate_limit_events AS e
        WHERE e.policy = of_policy AND e.key = of_key AND (e.at > now OR (e.at <= gone_at AND e.at < now));
    END IF;
    IF newest.total > 4611686018427387904 THEN
        UPDATE {s}.rate_limit_events AS e SET total = e.total - newest.total
        WHERE e.policy = of_policy AND e.key = of_key;
    END IF;
END
$$;
