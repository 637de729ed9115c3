-- Charges a batch in order, with what one statement can't decide: the twin of the library's `limit::algorithm`.
--
-- Slots are counters of keys, each once, in the order of their policy and key; see the function that reads. `parts` are those of all
-- charges, one behind the other: charge `c` has `firsts[c]` to `firsts[c + 1] - 1`. Behind the charges stands what is asked for
-- ahead, as charges of one part. Parts of one charge with the same number in `kin` are of one policy.
--
-- All locks are taken before the clock is read, each kind in the order of the bytes of its key: first `rate_limit_locks`, then
-- buckets, and behind the clock windows, which alone are also charged by another function; it locks nothing else. Two nodes never
-- wait for each other, and what is stored is never later than now.
--
-- Of each slot it answers what it has found (see the function that reads), and what it has left: used and denied of a window; used
-- of an exact sliding window; instant, used and parts of a bucket; instant and refusals of a block.
CREATE OR REPLACE FUNCTION {s}.rate_limit_charge_1(
    given bigint, shift bigint,
    kinds int[], policies text[], keys text[], names text[], periods bigint[], lasts bigint[],
    charges int, firsts int[], costs bigint[], forced boolean[],
    parts int[], limits bigint[], rates bigint[], kin int[], afters bigint[], blocks bigint[], windows bigint[]
) RETURNS TABLE (slot bigint, decided_at bigint, found bigint[], remains bigint[], own bigint[], every bigint[])
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog SET jit = off SET lock_timeout = '3s'
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    slots CONSTANT int := cardinality(kinds);
    most_denied CONSTANT bigint := 9007199254740991;
    no_limit CONSTANT bigint := 4294967295;
    now bigint;
    -- Of each slot: what was read, and the limit that is set; what is there now; what is to be written.
    found_1 bigint[] := array_fill(NULL::bigint, ARRAY[slots]);
    found_2 bigint[] := array_fill(NULL::bigint, ARRAY[slots]);
    found_3 bigint[] := array_fill(NULL::bigint, ARRAY[slots]);
    found_4 bigint[] := array_fill(NULL::bigint, ARRAY[slots]);
    found_5 bigint[] := array_fill(NULL::bigint, ARRAY[slots]);
    found_6 bigint[] := array_fill(NULL::bigint, ARRAY[slots]);
    own_units bigint[] := array_fill(NULL::bigint, ARRAY[slots]);
    own_ends bigint[] := array_fill(NULL::bigint, ARRAY[slots]);
    every_units bigint[] := array_fill(NULL::bigint, ARRAY[slots]);
    every_ends bigint[] := array_fill(NULL::bigint, ARRAY[slots]);
    has_own boolean[] := array_fill(false, ARRAY[slots]);
    has_every boolean[] := array_fill(false, ARRAY[slots]);
    is_set boolean[] := array_fill(false, ARRAY[slots]);
    set_units bigint[] := array_fill(NULL::bigint, ARRAY[slots]);
    starts bigint[] := array_fill(0::bigint, ARRAY[slots]);
    used bigint[] := array_fill(0::bigint, ARRAY[slots]);
    denied bigint[] := array_fill(0::bigint, ARRAY[slots]);
    ats bigint[] := array_fill(0::bigint, ARRAY[slots]);
    rests bigint[] := array_fill(0::bigint, ARRAY[slots]);
    sinces bigint[] := array_fill(0::bigint, ARRAY[slots]);
    taken bigint[] := array_fill(0::bigint, ARRAY[slots]);
    expires bigint[] := array_fill(0::bigint, ARRAY[slots]);
    last_limits bigint[] := array_fill(0::bigint, ARRAY[slots]);
    last_costs bigint[] := array_fill(0::bigint, ARRAY[slots]);
    changed boolean[] := array_fill(false, ARRAY[slots]);
    asked boolean[] := array_fill(false, ARRAY[slots]);
    granted boolean[] := array_fill(false, ARRAY[slots]);
    -- Of each part of the charge at hand.
    fits boolean[] := array_fill(false, ARRAY[cardinality(parts)]);
    limit_now bigint;
    rate_now bigint;
    exempt boolean;
    cost bigint;
    admitted boolean;
    stale boolean := false;
    kind int;
    s int;
    placed bigint;
    refusals bigint;
    all_parts numeric;
    units bigint;
    step bigint;
    r record;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE 'rate limits are charged in transactions that are read committed';
    END IF;
    IF kinds && ARRAY[1, 2, 4] THEN
        now := {s}.rate_limit_now_1(given, shift);
        INSERT INTO {s}.rate_limit_locks AS l (policy, key, expires_at)
        SELECT a.policy, a.key, {s}.rate_limit_plus_1(now, greatest(2 * a.period, 120000))
        FROM unnest(kinds, policies, keys, periods) AS a (kind, policy, key, period)
        WHERE a.kind IN (1, 2, 4)
        ORDER BY a.policy COLLATE "C", a.key COLLATE "C"
        ON CONFLICT (policy, key) DO UPDATE SET expires_at = excluded.expires_at
            WHERE l.expires_at < now OR l.expires_at - now < (excluded.expires_at - now) / 2;
    END IF;
    IF 3 = ANY (kinds) THEN
        now := {s}.rate_limit_now_1(given, shift);
        INSERT INTO {s}.rate_limit_buckets (policy, key, at, used, parts, since, expires_at)
        SELECT a.policy, a.key, now, 0, 0, now, {s}.rate_limit_plus_1(now, 10000)
        FROM unnest(kinds, policies, keys) AS a (kind, policy, key)
        WHERE a.kind = 3
        ORDER BY a.policy COLLATE "C", a.key COLLATE "C"
        ON CONFLICT (policy, key) DO UPDATE SET policy = excluded.policy WHERE false;
    END IF;
    now := {s}.rate_limit_now_1(given, shift);
    IF kinds && ARRAY[0, 1] THEN
        FOR i IN 1 .. slots LOOP
            IF kinds[i] <= 1 THEN
                starts[i] := {s}.rate_limit_window_start_1(now, periods[i]);
            END IF;
        END LOOP;
        INSERT INTO {s}.rate_limit_windows (
            policy, key, window_start, used, denied, granted, ahead, epoch, expires_at, last_limit, last_cost)
        SELECT a.policy, a.key, a.start, 0, 0, 0, 0, 0, {s}.rate_limit_plus_1(a.start, a.lasts), 0, 0
        FROM unnest(kinds, policies, keys, starts, lasts) AS a (kind, policy, key, start, lasts)
        WHERE a.kind IN (0, 1)
        ORDER BY a.policy COLLATE "C", a.key COLLATE "C", a.start
        ON CONFLICT (policy, key, window_start) DO UPDATE SET policy = excluded.policy WHERE false;
    END IF;
    FOR attempt IN 1 .. 2 LOOP
        stale := false;
        FOR r IN SELECT * FROM {s}.rate_limit_read_1(now, kinds, policies, keys, names, periods) LOOP
            s := r.slot;
            kind := kinds[s];
            IF kind = 2 AND attempt = 1 AND r.state IS NOT NULL AND (
                r.state[1] > {s}.rate_limit_plus_1(now, 1000) OR r.state[3] > 4611686018427387904
            ) THEN
                PERFORM {s}.rate_limit_mend_1(policies[s], keys[s], periods[s], now);
                stale := true;
                CONTINUE;
            END IF;
            found_1[s] := r.state[1];
            found_2[s] := r.state[2];
            found_3[s] := r.state[3];
            found_4[s] := r.state[4];
            found_5[s] := r.state[5];
            found_6[s] := r.state[6];
            has_own[s] := r.own IS NOT NULL;
            has_every[s] := r.every IS NOT NULL;
            own_units[s] := r.own[1];
            own_ends[s] := r.own[2];
            every_units[s] := r.every[1];
            every_ends[s] := r.every[2];
            IF r.own IS NOT NULL AND coalesce(r.own[2], 9223372036854775807) > now THEN
                is_set[s] := true;
                set_units[s] := r.own[1];
            ELSIF r.every IS NOT NULL AND coalesce(r.every[2], 9223372036854775807) > now THEN
                is_set[s] := true;
                set_units[s] := r.every[1];
            END IF;
            CASE
                WHEN kind <= 1 THEN
                    used[s] := coalesce(r.state[1], 0);
                    denied[s] := coalesce(r.state[2], 0);
                WHEN kind = 2 THEN
                    used[s] := coalesce(r.state[3] - r.state[6] + r.state[5], 0);
                    ats[s] := greatest(coalesce(r.state[1], now), now);
                ELSE
                    ats[s] := coalesce(r.state[1], now);
                    used[s] := coalesce(r.state[2], 0);
                    rests[s] := coalesce(r.state[3], 0);
                    sinces[s] := coalesce(r.state[4], now);
            END CASE;
        END LOOP;
        EXIT WHEN NOT stale;
    END LOOP;

    FOR c IN 1 .. charges LOOP
        cost := costs[c];
        admitted := true;
        FOR p IN firsts[c] .. firsts[c + 1] - 1 LOOP
            s := parts[p];
            kind := kinds[s];
            exempt := is_set[s] AND set_units[s] IS NULL;
            limit_now := CASE WHEN is_set[s] THEN set_units[s] ELSE limits[p] END;
            IF forced[c] OR exempt THEN
                fits[p] := true;
            ELSIF kind = 0 OR kind = 2 THEN
                fits[p] := used[s] + cost <= limit_now;
            ELSIF kind = 1 THEN
                fits[p] := coalesce(found_4[s], 0)::numeric
                        * (periods[s] - least(now::numeric - starts[s], periods[s] - 1))
                    + (used[s]::numeric + cost) * periods[s] <= limit_now::numeric * periods[s];
            ELSIF kind = 3 THEN
                all_parts := {s}.rate_limit_drained_1(ats[s], used[s], rests[s],
                    {s}.rate_limit_rate_1(is_set[s], set_units[s], limits[p], rates[p]), periods[s], now);
                fits[p] := all_parts + cost::numeric * periods[s] <= limit_now::numeric * periods[s];
            ELSE
                fits[p] := NOT {s}.rate_limit_is_blocked_1(ats[s], used[s], afters[p], blocks[p], now);
            END IF;
            admitted := admitted AND fits[p];
        END LOOP;
        FOR p IN firsts[c] .. firsts[c + 1] - 1 LOOP
            s := parts[p];
            kind := kinds[s];
            limit_now := CASE WHEN is_set[s] THEN coalesce(set_units[s], no_limit) ELSE limits[p] END;
            asked[s] := true;
            granted[s] := granted[s] OR admitted OR firsts[c + 1] - firsts[c] = 1;
            IF kind <= 1 THEN
                IF admitted THEN
                    used[s] := used[s] + cost;
                ELSIF NOT fits[p] OR (
                    kin[p] <> 0
                    AND {s}.rate_limit_kin_refuse_1(p, firsts[c], firsts[c + 1], true, kinds, parts, kin, fits)
                ) THEN
                    denied[s] := least(most_denied, denied[s] + cost);
                ELSE
                    CONTINUE;
                END IF;
                changed[s] := true;
                last_limits[s] := limit_now;
                last_costs[s] := cost;
            ELSIF kind = 2 THEN
                IF admitted THEN
                    used[s] := used[s] + cost;
                    taken[s] := taken[s] + cost;
                    last_limits[s] := limit_now;
                END IF;
            ELSIF kind = 3 THEN
                IF admitted OR ats[s] > {s}.rate_limit_plus_1(now, 1000) THEN
                    rate_now := {s}.rate_limit_rate_1(is_set[s], set_units[s], limits[p], rates[p]);
                    all_parts := {s}.rate_limit_drained_1(ats[s], used[s], rests[s], rate_now, periods[s], now)
                        + CASE WHEN admitted THEN cost::numeric * periods[s] ELSE 0 END;
                    IF ats[s] > {s}.rate_limit_plus_1(now, 1000) THEN
                        ats[s] := now;
                        sinces[s] := least(sinces[s], now);
                    ELSE
                        ats[s] := greatest(ats[s], now);
                    END IF;
                    used[s] := div(all_parts, periods[s]);
                    rests[s] := mod(all_parts, periods[s]);
                    expires[s] := CASE
                        WHEN all_parts = 0 THEN {s}.rate_limit_plus_1(ats[s], 10000)
                        WHEN rate_now = 0 THEN 9223372036854775807
                        ELSE {s}.rate_limit_plus_1({s}.rate_limit_plus_1(ats[s],
                            least(9223372036854775807, div(all_parts + rate_now - 1, rate_now))::bigint), 10000)
                    END;
                    changed[s] := true;
                END IF;
            ELSE
                placed := CASE WHEN ats[s] > {s}.rate_limit_plus_1(now, 1000) THEN now ELSE ats[s] END;
                refusals := used[s];
                IF refusals = 0 OR now >= {s}.rate_limit_plus_1(placed,
                    CASE WHEN refusals >= afters[p] THEN blocks[p] ELSE windows[p] END)
                THEN
                    placed := now;
                    refusals := 0;
                END IF;
                IF admitted AND NOT forced[c] THEN
                    refusals := 0;
                ELSIF fits[p] AND {s}.rate_limit_kin_refuse_1(p, firsts[c], firsts[c + 1], false, kinds, parts, kin, fits) THEN
                    refusals := refusals + 1;
                    placed := now;
                END IF;
                IF used[s] <> refusals OR (refusals > 0 AND ats[s] <> placed) THEN
                    used[s] := refusals;
                    ats[s] := placed;
                    expires[s] := {s}.rate_limit_plus_1({s}.rate_limit_plus_1(placed,
                        CASE WHEN refusals >= afters[p] THEN blocks[p] ELSE windows[p] END), 10000);
                    changed[s] := true;
                END IF;
            END IF;
        END LOOP;
    END LOOP;

    -- What is asked for ahead comes after all charges, and gets an eighth of what they leave at the most.
    FOR c IN charges + 1 .. cardinality(costs) LOOP
        s := parts[firsts[c]];
        limit_now := CASE WHEN is_set[s] THEN set_units[s] ELSE limits[firsts[c]] END;
        IF asked[s] AND NOT granted[s] THEN
            units := 0;
        ELSIF limit_now IS NULL THEN
            units := no_limit;
        ELSIF kinds[s] = 1 THEN
            units := limit_now - least(limit_now, div(
                coalesce(found_4[s], 0)::numeric
                    * (periods[s] - least(now::numeric - starts[s], periods[s] - 1))
                    + used[s]::numeric * periods[s] + periods[s] - 1,
                periods[s]));
        ELSE
            units := greatest(0, limit_now - used[s]);
        END IF;
        units := least(costs[c], units / 8);
        IF units > 0 THEN
            used[s] := used[s] + units;
            changed[s] := true;
            last_limits[s] := coalesce(limit_now, no_limit);
            last_costs[s] := units;
        END IF;
    END LOOP;

    IF kinds && ARRAY[0, 1] THEN
        INSERT INTO {s}.rate_limit_windows AS w (
            policy, key, window_start, used, denied, granted, ahead, epoch, expires_at, last_limit, last_cost)
        SELECT a.policy, a.key, a.start, a.used, a.denied, 0, 0, 0, {s}.rate_limit_plus_1(a.start, a.lasts),
            a.last_limit, a.last_cost
        FROM unnest(kinds, policies, keys, starts, lasts, used, denied, changed, last_limits, last_costs)
            AS a (kind, policy, key, start, lasts, used, denied, changed, last_limit, last_cost)
        WHERE a.kind IN (0, 1) AND a.changed
        ORDER BY a.policy COLLATE "C", a.key COLLATE "C", a.start
        ON CONFLICT (policy, key, window_start) DO UPDATE SET
            used = excluded.used,
            denied = excluded.denied,
            granted = 0,
            ahead = 0,
            expires_at = greatest(w.expires_at, excluded.expires_at),
            last_limit = excluded.last_limit,
            last_cost = excluded.last_cost;
    END IF;
    IF 2 = ANY (kinds) THEN
        INSERT INTO {s}.rate_limit_events AS e (policy, key, at, units, total, expires_at)
        SELECT a.policy, a.key, a.at, a.taken, coalesce(a.total, 0) + a.taken,
            {s}.rate_limit_plus_1({s}.rate_limit_plus_1(a.at, a.period), 10000)
        FROM unnest(kinds, policies, keys, ats, taken, periods, found_3)
            AS a (kind, policy, key, at, taken, period, total)
        WHERE a.kind = 2 AND a.taken > 0
        ORDER BY a.policy COLLATE "C", a.key COLLATE "C"
        ON CONFLICT (policy, key, at) DO UPDATE SET
            units = e.units + excluded.units,
            total = excluded.total,
            expires_at = greatest(e.expires_at, excluded.expires_at);
        FOR i IN 1 .. slots LOOP
            -- A key's own charge deletes what has left its window whenever so many units were admitted.
            step := greatest(1, least(64, last_limits[i] / 2));
            IF kinds[i] = 2 AND taken[i] > 0 AND found_3[i] IS NOT NULL
                AND found_3[i] / step <> (found_3[i] + taken[i]) / step
            THEN
                DELETE FROM {s}.rate_limit_events WHERE ctid = ANY (ARRAY(
                    SELECT e.ctid FROM {s}.rate_limit_events AS e
                    WHERE e.policy = policies[i] AND e.key = keys[i]
                        AND e.at < {s}.rate_limit_plus_1(ats[i], 1 - periods[i])
                    ORDER BY e.at LIMIT 1000));
            END IF;
        END LOOP;
    END IF;
    IF kinds && ARRAY[3, 4] THEN
        INSERT INTO {s}.rate_limit_buckets (policy, key, at, used, parts, since, expires_at)
        SELECT a.policy, a.key, a.at, a.used, a.parts, a.since, a.expires_at
        FROM unnest(kinds, policies, keys, ats, used, rests, sinces, expires, changed)
            AS a (kind, policy, key, at, used, parts, since, expires_at, changed)
        WHERE a.kind IN (3, 4) AND a.changed
        ORDER BY a.policy COLLATE "C", a.key COLLATE "C"
        ON CONFLICT (policy, key) DO UPDATE SET
            at = excluded.at,
            used = excluded.used,
            parts = excluded.parts,
            since = excluded.since,
            expires_at = excluded.expires_at;
    END IF;

    RETURN QUERY
    SELECT a.place, now,
        CASE WHEN a.f1 IS NOT NULL OR a.f4 IS NOT NULL THEN ARRAY[a.f1, a.f2, a.f3, a.f4, a.f5, a.f6] END,
        CASE
            WHEN a.kind <= 1 THEN ARRAY[a.used, a.denied]
            WHEN a.kind = 2 THEN ARRAY[a.used]
            WHEN a.kind = 3 THEN ARRAY[a.at, a.used, a.parts]
            ELSE ARRAY[a.at, a.used]
        END,
        CASE WHEN a.has_own THEN ARRAY[a.own_units, a.own_ends] END,
        CASE WHEN a.has_every THEN ARRAY[a.every_units, a.every_ends] END
    FROM unnest(
        kinds, found_1, found_2, found_3, found_4, found_5, found_6, used, denied, ats, rests,
        has_own, own_units, own_ends, has_every, every_units, every_ends
    ) WITH ORDINALITY AS a (
        kind, f1, f2, f3, f4, f5, f6, used, denied, at, parts,
        has_own, own_units, own_ends, has_every, every_units, every_ends, place
    );
END
$$;
