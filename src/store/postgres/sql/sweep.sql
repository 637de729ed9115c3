-- Deletes the expired rows of a page of a table, which covers so many rows. It answers how many rows the page has, how many of them
-- were deleted, and the row that ends it. What has expired is so by the clock of the node, `asked`, and by that of the server: a node
-- whose clock is ahead deletes nothing that is needed. Rows that others have locked stay for the next time: a sweep waits for nobody.
CREATE OR REPLACE FUNCTION {s}.rate_limit_sweep_1(
    given bigint, shift bigint, name text, third text, expiry text, asked bigint,
    after_policy text, after_key text, after_third bigint, page int
) RETURNS TABLE (found bigint, deleted bigint, policy text, key text, at bigint)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    now CONSTANT bigint := least(asked, {s}.rate_limit_now_1(given, shift));
BEGIN
    -- One node at a time is enough.
    IF NOT pg_try_advisory_xact_lock(1953459299, hashtext('sweep of ' || {name})) THEN
        RETURN;
    END IF;
    RETURN QUERY EXECUTE format(
        'WITH page AS MATERIALIZED (
            SELECT t.policy, t.key, %2$s AS at, t.%3$I AS expiry FROM %6$I.%1$I AS t
            WHERE (t.policy, t.key%4$s) > ($2, $3%5$s) AND ($4 IS NOT NULL)
            ORDER BY t.policy, t.key%4$s LIMIT $5
        ),
        doomed AS MATERIALIZED (
            SELECT t.ctid FROM page JOIN %6$I.%1$I AS t
                ON t.policy = page.policy AND t.key = page.key AND %2$s = page.at
            WHERE page.expiry <= $1 AND t.%3$I <= $1
            FOR UPDATE OF t SKIP LOCKED
        ),
        deleted AS (
            DELETE FROM %6$I.%1$I AS t WHERE t.ctid = ANY (ARRAY(SELECT ctid FROM doomed)) RETURNING 1
        ),
        last AS (SELECT * FROM page ORDER BY page.policy DESC, page.key DESC, page.at DESC LIMIT 1)
        SELECT (SELECT count(*) FROM page), (SELECT count(*) FROM deleted), last.policy, last.key, last.at
        FROM last',
        name,
        CASE WHEN third = '' THEN '0::bigint' ELSE format('t.%I', third) END,
        expiry,
        CASE WHEN third = '' THEN '' ELSE format(', t.%I', third) END,
        CASE WHEN third = '' THEN '' ELSE ', $4' END,
        {name}
    ) USING now, after_policy, after_key, after_third, page;
END
$$;
