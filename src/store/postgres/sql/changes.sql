-- Tells other processes what became free. It comes last in a transaction: the lock makes the numbers those of the order in which
-- transactions end, so that who has read up to one has missed none. Looking for the oldest transaction that is under way instead
-- would hold them all back while the application has a long one.
CREATE OR REPLACE FUNCTION {s}.rate_limit_tell_all_1(kind int, policies text[], first_keys text[], last_keys text[])
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1953459300, hashtext('changes of ' || {name}));
    INSERT INTO {s}.rate_limit_changes AS c (kind, policy, first_key, last_key)
    SELECT rate_limit_tell_all_1.kind, told.policy, told.first_key, told.last_key
    FROM unnest(policies, first_keys, last_keys) AS told (policy, first_key, last_key);
    DELETE FROM {s}.rate_limit_changes AS c
    WHERE c.seq <= (SELECT max(newest.seq) FROM {s}.rate_limit_changes AS newest) - 10000;
END
$$;
CREATE OR REPLACE FUNCTION {s}.rate_limit_tell_1(kind int, policy text, first_key text, last_key text) RETURNS void
LANGUAGE sql VOLATILE AS $$
    SELECT {s}.rate_limit_tell_all_1(kind, ARRAY[policy], ARRAY[first_key], ARRAY[last_key])
$$;
-- Sets a limit, or removes it, and says whether there was one that had not ended.
CREATE OR REPLACE FUNCTION {s}.rate_limit_set_limit_1(
    of_policy text, of_key text, removes boolean, new_units bigint, new_end bigint, now bigint
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog SET jit = off SET lock_timeout = '3s' AS $$
#variable_conflict use_column
DECLARE
    had boolean;
BEGIN
    SELECT coalesce(l.ends_at, 9223372036854775807) > now INTO had FROM {s}.rate_limit_limits AS l
    WHERE l.policy = of_policy AND l.key = of_key FOR UPDATE;
    IF removes THEN
        DELETE FROM {s}.rate_limit_limits AS l WHERE l.policy = of_policy AND l.key = of_key;
    ELSE
        INSERT INTO {s}.rate_limit_limits (policy, key, units, ends_at) VALUES (of_policy, of_key, new_units, new_end)
        ON CONFLICT (policy, key) DO UPDATE SET units = excluded.units, ends_at = excluded.ends_at;
    END IF;
    PERFORM {s}.rate_limit_tell_1(1, of_policy, of_key, of_key);
    RETURN coalesce(had, false);
END
$$;
