-- Resets a page of counters: those of the keys from `low` to the end of the page, below `below`, without `beside`. It answers what they
-- had, in columns that are those of the table, and the last key of the page when there is another one. Kind 0 is of windows, 2 of exact
-- sliding windows, 3 of buckets and blocks. The instant, and the windows in force, are given.
CREATE OR REPLACE FUNCTION {s}.rate_limit_reset_1(
    kind int, of_policy text, low text, high text, below text, beside text, page int,
    window_before bigint, window_now bigint, events_after bigint, now bigint
) RETURNS TABLE (ends_at text, key text, a bigint, b bigint, c bigint, d bigint)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog SET jit = off SET lock_timeout = '3s'
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    page_end text;
BEGIN
    IF high IS NULL THEN
        EXECUTE format(
            'SELECT t.key FROM %I.%I AS t WHERE t.policy = $1 AND t.key > $2 AND t.key < $3
            ORDER BY t.key LIMIT 1 OFFSET $4 - 1',
            {name},
            CASE kind WHEN 0 THEN 'rate_limit_windows' WHEN 2 THEN 'rate_limit_events' ELSE 'rate_limit_buckets' END)
        INTO page_end USING of_policy, low, below, page;
        high := coalesce(page_end, below);
    END IF;
    IF page_end IS NOT NULL THEN
        RETURN QUERY SELECT page_end, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint;
    END IF;
    -- What is locked by a row of its own may have outlived that row.
    IF kind = 2 OR of_policy LIKE '%;block' THEN
        INSERT INTO {s}.rate_limit_locks (policy, key, expires_at)
        SELECT k.policy, k.key, {s}.rate_limit_plus_1(now, 120000)
        FROM (
            SELECT l.policy, l.key FROM {s}.rate_limit_locks AS l
            WHERE l.policy = of_policy AND l.key >= low AND l.key <= high AND l.key < below AND l.key <> beside
            UNION
            SELECT e.policy, e.key FROM {s}.rate_limit_events AS e
            WHERE kind = 2
                AND e.policy = of_policy AND e.key >= low AND e.key <= high AND e.key < below AND e.key <> beside
            UNION
            SELECT b.policy, b.key FROM {s}.rate_limit_buckets AS b
            WHERE kind = 3
                AND b.policy = of_policy AND b.key >= low AND b.key <= high AND b.key < below AND b.key <> beside
        ) AS k
        ORDER BY k.policy COLLATE "C", k.key COLLATE "C"
        ON CONFLICT (policy, key) DO UPDATE SET policy = excluded.policy WHERE false;
    END IF;
    IF kind = 0 THEN
        PERFORM FROM {s}.rate_limit_windows AS w
        WHERE w.policy = of_policy AND w.key >= low AND w.key <= high AND w.key < below AND w.key <> beside
        ORDER BY w.policy, w.key, w.window_start FOR UPDATE;
        RETURN QUERY
        SELECT NULL::text, w.key, w.window_start, w.used, 0::bigint, 0::bigint FROM {s}.rate_limit_windows AS w
        WHERE w.policy = of_policy AND w.key >= low AND w.key <= high AND w.key < below AND w.key <> beside
            AND w.window_start IN (window_before, window_now)
        ORDER BY w.key, w.window_start;
        UPDATE {s}.rate_limit_windows AS w
        SET used = 0, denied = 0, granted = 0, ahead = 0, epoch = w.epoch + 1
        WHERE w.policy = of_policy AND w.key >= low AND w.key <= high AND w.key < below AND w.key <> beside;
    ELSIF kind = 2 THEN
        RETURN QUERY
        SELECT NULL::text, NULL::text, coalesce(sum(e.units), 0)::bigint, 0::bigint, 0::bigint, 0::bigint
        FROM {s}.rate_limit_events AS e
        WHERE e.policy = of_policy AND e.key >= low AND e.key <= high AND e.key < below AND e.key <> beside
            AND e.at > events_after;
        DELETE FROM {s}.rate_limit_events AS e
        WHERE e.policy = of_policy AND e.key >= low AND e.key <= high AND e.key < below AND e.key <> beside;
    ELSE
        PERFORM FROM {s}.rate_limit_buckets AS k
        WHERE k.policy = of_policy AND k.key >= low AND k.key <= high AND k.key < below AND k.key <> beside
        ORDER BY k.policy, k.key FOR UPDATE;
        RETURN QUERY
        SELECT NULL::text, k.key, k.at, k.used, k.parts, k.since FROM {s}.rate_limit_buckets AS k
        WHERE k.policy = of_policy AND k.key >= low AND k.key <= high AND k.key < below AND k.key <> beside;
        -- Nothing that was taken up to now goes back to them. They expire when they would have.
        UPDATE {s}.rate_limit_buckets AS k
        SET at = now, used = 0, parts = 0, since = {s}.rate_limit_plus_1(now, 1)
        WHERE k.policy = of_policy AND k.key >= low AND k.key <= high AND k.key < below AND k.key <> beside;
    END IF;
    PERFORM {s}.rate_limit_tell_1(2, of_policy, low, high);
END
$$;
