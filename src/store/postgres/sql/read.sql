-- Reads the states of slots and the limits that are set for them, as of the moment at which the statement that calls it began.
--
-- A slot is a counter of a key. Its kind is 0 for a window, 1 for a sliding counter, 2 for an exact sliding window, 3 for a bucket,
-- 4 for a block. A state is, in this order: used, denied and epoch of the window, and the same of the one before; the newest event
-- (instant, units, total), and the first one inside the window; the instant, used, parts and since of a bucket or block. What is
-- not there is NULL.
CREATE OR REPLACE FUNCTION {s}.rate_limit_read_1(
    decided_at bigint, kinds int[], policies text[], keys text[], names text[], periods bigint[]
) RETURNS TABLE (slot bigint, state bigint[], own bigint[], every bigint[])
LANGUAGE plpgsql STABLE SET search_path = pg_catalog SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    has_limits CONSTANT boolean := EXISTS (SELECT FROM {s}.rate_limit_limits);
BEGIN
    RETURN QUERY
    SELECT
        s.place,
        CASE
            WHEN s.kind = 0 THEN (
                SELECT ARRAY[w.used, w.denied, w.epoch] FROM {s}.rate_limit_windows AS w
                WHERE w.policy = s.policy AND w.key = s.key
                    AND w.window_start = {s}.rate_limit_window_start_1(decided_at, s.period))
            WHEN s.kind = 1 THEN (
                SELECT ARRAY[w.used, w.denied, w.epoch, b.used, b.denied, b.epoch]
                FROM (SELECT {s}.rate_limit_window_start_1(decided_at, s.period) AS start) AS now
                LEFT JOIN {s}.rate_limit_windows AS w
                    ON w.policy = s.policy AND w.key = s.key AND w.window_start = now.start
                LEFT JOIN {s}.rate_limit_windows AS b
                    ON b.policy = s.policy AND b.key = s.key
                    AND b.window_start = {s}.rate_limit_window_start_1(
                        {s}.rate_limit_plus_1(now.start, -1), s.period))
            WHEN s.kind = 2 THEN (
                SELECT ARRAY[newest.at, newest.units, newest.total, first.at, first.units, first.total]
                FROM (
                    SELECT e.at, e.units, e.total FROM {s}.rate_limit_events AS e
                    WHERE e.policy = s.policy AND e.key = s.key
                    ORDER BY e.at DESC LIMIT 1
                ) AS newest
                LEFT JOIN LATERAL (
                    SELECT e.at, e.units, e.total FROM {s}.rate_limit_events AS e
                    WHERE e.policy = s.policy AND e.key = s.key
                        AND e.at >= {s}.rate_limit_plus_1(greatest(newest.at, decided_at), 1 - s.period)
                    ORDER BY e.at LIMIT 1
                ) AS first ON true)
            ELSE (
                SELECT ARRAY[b.at, b.used, b.parts, b.since] FROM {s}.rate_limit_buckets AS b
                WHERE b.policy = s.policy AND b.key = s.key)
        END,
        CASE WHEN has_limits THEN (
            SELECT ARRAY[l.units, l.ends_at] FROM {s}.rate_limit_limits AS l
            WHERE l.policy = s.name AND l.key = s.key) END,
        CASE WHEN has_limits THEN (
            SELECT ARRAY[l.units, l.ends_at] FROM {s}.rate_limit_limits AS l
            WHERE l.policy = s.name AND l.key = '') END
    FROM unnest(kinds, policies, keys, names, periods) WITH ORDINALITY AS s (kind, policy, key, name, period, place)
    ORDER BY s.place;
END
$$;
-- Finds of each key the event with which a total is reached, by halving the time between two instants: a step down the index for
-- each bit of it, however many events lie between.
CREATE OR REPLACE FUNCTION {s}.rate_limit_find_1(
    policies text[], keys text[], lows bigint[], highs bigint[], totals bigint[]
) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog SET jit = off SET enable_seqscan = off AS $$
DECLARE
    found bigint[] := lows;
    low bigint;
    high bigint;
    middle bigint;
    reached bigint;
BEGIN
    FOR i IN 1 .. cardinality(policies) LOOP
        low := lows[i];
        high := highs[i];
        WHILE low < high LOOP
            middle := low + (high - low) / 2;
            SELECT e.total INTO reached FROM {s}.rate_limit_events AS e
            WHERE e.policy = policies[i] AND e.key = keys[i] AND e.at <= middle
            ORDER BY e.at DESC LIMIT 1;
            IF reached >= totals[i] THEN
                high := middle;
            ELSE
                low := middle + 1;
            END IF;
        END LOOP;
        found[i] := low;
    END LOOP;
    RETURN found;
END
$$;
