-- Charges a whole batch of runs, each against one window, in one statement. A run is `length` charges of equal `cost`, and what is
-- asked for `ahead` beside them; no two are of the same counter. The rows are locked in the order of the bytes of their key, which
-- is that of all statements here, whatever collation the database has: two nodes never wait for each other.
--
-- In ON CONFLICT `w` is the row as it was. What is asked for ahead is granted up to an eighth of what the charges leave, so that
-- other nodes find some too; of a row that is there `excluded` tells what a new one would have been granted, which is never less.
CREATE OR REPLACE FUNCTION {s}.rate_limit_charge_windows_1(
    given bigint, shift bigint,
    policies text[], keys text[], names text[], periods bigint[], lasts bigint[],
    limits bigint[], costs bigint[], lengths bigint[], aheads bigint[]
) RETURNS TABLE (
    place bigint, decided_at bigint, used bigint, denied bigint, granted bigint, ahead bigint, epoch bigint,
    own bigint[], every bigint[]
)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog SET jit = off SET lock_timeout = '3s' SET enable_nestloop = off AS $$
#variable_conflict use_column
DECLARE
    decided_at CONSTANT bigint := {s}.rate_limit_now_1(given, shift);
    has_limits CONSTANT boolean := EXISTS (SELECT FROM {s}.rate_limit_limits);
BEGIN
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT
            run.*, {s}.rate_limit_window_start_1(decided_at, run.period) AS window_start,
            CASE WHEN has_limits THEN (
                SELECT ARRAY[l.units, l.ends_at] FROM {s}.rate_limit_limits AS l
                WHERE l.policy = run.name AND l.key = run.key) END AS own,
            CASE WHEN has_limits THEN (
                SELECT ARRAY[l.units, l.ends_at] FROM {s}.rate_limit_limits AS l
                WHERE l.policy = run.name AND l.key = '') END AS every
        FROM unnest(policies, keys, names, periods, lasts, limits, costs, lengths, aheads) WITH ORDINALITY
            AS run (policy, key, name, period, lasts, units, cost, length, ahead, place)
    ),
    limited AS (
        SELECT asked.*, CASE
            WHEN own IS NOT NULL AND coalesce(own[2], 9223372036854775807) > decided_at
            THEN coalesce(own[1], 9007199254740991)
            WHEN every IS NOT NULL AND coalesce(every[2], 9223372036854775807) > decided_at
            THEN coalesce(every[1], 9007199254740991)
            ELSE units
        END AS most
        FROM asked
    ),
    written AS (
        INSERT INTO {s}.rate_limit_windows AS w (
            policy, key, window_start, used, denied, granted, ahead, epoch, expires_at, last_limit, last_cost)
        SELECT
            policy, key, window_start,
            cost * fit + least(ahead, (most - cost * fit) / 8), cost * (length - fit),
            fit, least(ahead, (most - cost * fit) / 8),
            0, {s}.rate_limit_plus_1(window_start, lasts), most, cost
        FROM (SELECT limited.*, least(length, most / cost) AS fit FROM limited) AS new
        ORDER BY policy COLLATE "C", key COLLATE "C", window_start
        ON CONFLICT (policy, key, window_start) DO UPDATE SET
            used = w.used + excluded.last_cost * {admitted} + {extra},
            denied = least(9007199254740991, w.denied + excluded.last_cost * ({length} - {admitted})),
            granted = {admitted},
            ahead = {extra},
            expires_at = greatest(w.expires_at, excluded.expires_at),
            last_limit = excluded.last_limit,
            last_cost = excluded.last_cost
        RETURNING w.policy, w.key, w.used, w.denied, w.granted, w.ahead, w.epoch
    )
    SELECT
        asked.place - 1, decided_at, written.used, written.denied, written.granted, written.ahead, written.epoch,
        asked.own, asked.every
    FROM asked JOIN written ON written.policy = asked.policy AND written.key = asked.key;
END
$$;
