-- Gives back units to where they were taken from, as far as they are still there. Kind 0 is a window (its start and epoch), 1 an event
-- (its instant), 2 the totals of all events after an instant, 3 a bucket (when they were taken), 4 the refusals of a block since an
-- instant. They come in the order of locks: first events, then buckets and blocks, then windows, each in the order of their key.
--
-- An event's units are in the totals of all later ones: a call goes through `page` of them, and answers what is left. Until then
-- more is told as used than is, never less.
CREATE OR REPLACE FUNCTION {s}.rate_limit_give_back_1(
    given bigint, shift bigint, page int,
    kinds int[], policies text[], keys text[], instants bigint[], epochs bigint[], backs bigint[],
    rates bigint[], periods bigint[]
) RETURNS TABLE (place bigint, after bigint, units bigint)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog SET jit = off SET lock_timeout = '3s'
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    now bigint;
    free int := page;
    freed boolean[] := array_fill(false, ARRAY[cardinality(kinds)]);
    lowered bigint;
    start bigint;
    page_end bigint;
    count int;
    b record;
    all_parts numeric;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE 'rate limits are charged in transactions that are read committed';
    END IF;
    IF kinds && ARRAY[1, 2, 4] THEN
        now := {s}.rate_limit_now_1(given, shift);
        INSERT INTO {s}.rate_limit_locks (policy, key, expires_at)
        SELECT a.policy, a.key, {s}.rate_limit_plus_1(now, 120000)
        FROM unnest(kinds, policies, keys) AS a (kind, policy, key)
        WHERE a.kind IN (1, 2, 4)
        GROUP BY a.policy, a.key
        ORDER BY a.policy COLLATE "C", a.key COLLATE "C"
        ON CONFLICT (policy, key) DO UPDATE SET policy = excluded.policy WHERE false;
    END IF;
    FOR i IN 1 .. cardinality(kinds) LOOP
        IF kinds[i] IN (1, 2) THEN
            lowered := backs[i];
            start := {s}.rate_limit_plus_1(instants[i], kinds[i] - 1);
            IF kinds[i] = 1 THEN
                SELECT e.units INTO lowered FROM {s}.rate_limit_events AS e
                WHERE e.policy = policies[i] AND e.key = keys[i] AND e.at = instants[i];
                lowered := least(backs[i], coalesce(lowered, 0));
            END IF;
            IF lowered = 0 THEN
                CONTINUE;
            ELSIF free <= 0 THEN
                place := i - 1;
                after := NULL;
                units := backs[i];
                RETURN NEXT;
                CONTINUE;
            END IF;
            SELECT e.at INTO page_end FROM {s}.rate_limit_events AS e
            WHERE e.policy = policies[i] AND e.key = keys[i] AND e.at >= start
            ORDER BY e.at LIMIT 1 OFFSET free;
            UPDATE {s}.rate_limit_events AS e SET
                total = e.total - lowered,
                units = CASE WHEN kinds[i] = 1 AND e.at = instants[i] THEN e.units - lowered ELSE e.units END
            WHERE e.policy = policies[i] AND e.key = keys[i]
                AND e.at >= start AND (page_end IS NULL OR e.at < page_end);
            GET DIAGNOSTICS count = ROW_COUNT;
            free := free - count;
            DELETE FROM {s}.rate_limit_events AS e
            WHERE e.policy = policies[i] AND e.key = keys[i] AND e.at = instants[i] AND e.units = 0;
            freed[i] := true;
            IF page_end IS NOT NULL THEN
                place := i - 1;
                after := page_end - 1;
                units := lowered;
                RETURN NEXT;
            END IF;
        ELSIF kinds[i] = 3 THEN
            SELECT * INTO b FROM {s}.rate_limit_buckets AS k
            WHERE k.policy = policies[i] AND k.key = keys[i] FOR UPDATE;
            CONTINUE WHEN NOT FOUND;
            now := {s}.rate_limit_now_1(given, shift);
            freed[i] := true;
            -- After a step back of the clock it is not known what has drained since.
            CONTINUE WHEN b.at > {s}.rate_limit_plus_1(now, 1000)
                OR instants[i] < b.since OR instants[i] > greatest(now, b.at);
            all_parts := greatest(0, b.used::numeric * periods[i] + b.parts - greatest(0,
                backs[i]::numeric * periods[i] - (greatest(now, b.at)::numeric - instants[i]) * rates[i]));
            UPDATE {s}.rate_limit_buckets AS k
            SET used = div(all_parts, periods[i]), parts = mod(all_parts, periods[i])
            WHERE k.policy = policies[i] AND k.key = keys[i];
        ELSIF kinds[i] = 4 THEN
            UPDATE {s}.rate_limit_buckets AS k SET used = 0
            WHERE k.policy = policies[i] AND k.key = keys[i] AND k.at >= instants[i];
            freed[i] := true;
        ELSE
            UPDATE {s}.rate_limit_windows AS w SET used = greatest(0, w.used - backs[i])
            WHERE w.policy = policies[i] AND w.key = keys[i] AND w.window_start = instants[i] AND w.epoch = epochs[i];
            freed[i] := FOUND AND EXISTS (
                SELECT FROM {s}.rate_limit_windows AS w
                WHERE w.policy = policies[i] AND w.key = keys[i] AND w.window_start >= instants[i] AND w.denied > 0);
        END IF;
    END LOOP;
    IF true = ANY (freed) THEN
        PERFORM {s}.rate_limit_tell_all_1(0, array_agg(told.policy), array_agg(told.key), array_agg(told.key))
        FROM (
            SELECT DISTINCT CASE WHEN a.kind = 4 THEN left(a.policy, -6) ELSE a.policy END AS policy, a.key
            FROM unnest(kinds, policies, keys, freed) AS a (kind, policy, key, freed) WHERE a.freed
        ) AS told;
    END IF;
END
$$;
-- Counts units that were refused without asking, where their window is still counted. They come in the order of their key.
CREATE OR REPLACE FUNCTION {s}.rate_limit_count_refused_1(
    policies text[], keys text[], starts bigint[], epochs bigint[], refused bigint[]
) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog SET jit = off SET lock_timeout = '3s' AS $$
#variable_conflict use_column
BEGIN
    FOR i IN 1 .. cardinality(policies) LOOP
        UPDATE {s}.rate_limit_windows AS w SET denied = least(9007199254740991, w.denied + refused[i])
        WHERE w.policy = policies[i] AND w.key = keys[i] AND w.window_start = starts[i] AND w.epoch = epochs[i];
    END LOOP;
END
$$;
