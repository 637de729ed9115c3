-- Version 1. Instants are milliseconds since 1970 in UTC. Texts sort by their bytes, as they do in the library.
CREATE TABLE IF NOT EXISTS {s}.rate_limit_schema (
    id smallint PRIMARY KEY CHECK (id = 1),
    version bigint NOT NULL,
    oldest_reader bigint NOT NULL
);
-- One row, lost together with the counters: by it is known that they were.
CREATE {unlogged} TABLE IF NOT EXISTS {s}.rate_limit_generation (
    id smallint PRIMARY KEY CHECK (id = 1),
    generation uuid NOT NULL
);
-- A row for each counter and window: `used` was admitted, and decides; `denied` was refused, and is only told. `granted`, `ahead`,
-- `last_limit` and `last_cost` are of the last statement: how many of its charges it admitted, what it granted beside them, and
-- what they asked for. `epoch` counts resets. The row is needed until `expires_at`.
CREATE {unlogged} TABLE IF NOT EXISTS {s}.rate_limit_windows (
    policy text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    window_start bigint NOT NULL,
    used bigint NOT NULL,
    denied bigint NOT NULL,
    granted bigint NOT NULL,
    ahead bigint NOT NULL,
    epoch bigint NOT NULL,
    expires_at bigint NOT NULL,
    last_limit bigint NOT NULL,
    last_cost bigint NOT NULL,
    PRIMARY KEY (policy, key, window_start)
) WITH (fillfactor = 50);
-- A row for each millisecond in which an exact sliding window admitted something: `units` of then, and `total`, those of the key
-- so far.
CREATE {unlogged} TABLE IF NOT EXISTS {s}.rate_limit_events (
    policy text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    units bigint NOT NULL,
    total bigint NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (policy, key, at)
) WITH (fillfactor = 80);
-- A row for each token bucket: what of it was used at `at`, whole units and parts of one; `since` is when the row began, so that
-- nothing is given back to another one. Where the policy ends in `;block` it counts the refusals in a row that block a key.
CREATE {unlogged} TABLE IF NOT EXISTS {s}.rate_limit_buckets (
    policy text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    used bigint NOT NULL,
    parts bigint NOT NULL,
    since bigint NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (policy, key)
) WITH (fillfactor = 50);
-- A row for each key whose state is more than one row, or may have none: it is locked before the state is read. It holds nothing,
-- and may be deleted at any time.
CREATE {unlogged} TABLE IF NOT EXISTS {s}.rate_limit_locks (
    policy text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (policy, key)
) WITH (fillfactor = 80);
-- A row for each limit that was set at run time, under the name of the policy: for a key, or with an empty key for the policy
-- itself. No `units` are no limit at all, and no `ends_at` is no end. It is never UNLOGGED.
CREATE TABLE IF NOT EXISTS {s}.rate_limit_limits (
    policy text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL CHECK (key = '' OR key LIKE '%:%'),
    units bigint CHECK (units BETWEEN 0 AND 4294967295),
    ends_at bigint,
    PRIMARY KEY (policy, key)
);
-- A row for each moment at which something of keys changed that other processes must know: units came back to a counter (`kind`
-- 0), it was reset (2), each from the first key to the last, or a limit was set for the name of a policy (1). The newest ten
-- thousand are kept.
CREATE TABLE IF NOT EXISTS {s}.rate_limit_changes (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind smallint NOT NULL,
    policy text COLLATE "C" NOT NULL,
    first_key text COLLATE "C" NOT NULL,
    last_key text COLLATE "C" NOT NULL
);
CREATE OR REPLACE VIEW {s}.rate_limit_usage AS
SELECT
    policy, key, to_timestamp(window_start / 1000.0) AS window_start, used,
    CASE WHEN last_limit < 9007199254740991 THEN last_limit END AS "limit", denied,
    to_timestamp(expires_at / 1000.0) AS kept_until
FROM {s}.rate_limit_windows;
CREATE OR REPLACE VIEW {s}.rate_limit_event_log AS
SELECT policy, key, to_timestamp(at / 1000.0) AS at, units, to_timestamp(expires_at / 1000.0) AS kept_until
FROM {s}.rate_limit_events;
CREATE OR REPLACE VIEW {s}.rate_limit_bucket_usage AS
SELECT
    policy, key, to_timestamp(at / 1000.0) AS at, used + (parts > 0)::int AS used,
    to_timestamp(least(expires_at, 253402300799000) / 1000.0) AS kept_until
FROM {s}.rate_limit_buckets WHERE policy NOT LIKE '%;block';
CREATE OR REPLACE VIEW {s}.rate_limit_refusals AS
SELECT left(policy, -6) AS policy, key, used AS refused, to_timestamp(at / 1000.0) AS at
FROM {s}.rate_limit_buckets WHERE policy LIKE '%;block' AND used > 0;
CREATE OR REPLACE VIEW {s}.rate_limit_set_limits AS
SELECT
    policy, nullif(key, '') AS key,
    CASE WHEN units IS NULL THEN 'exempt' WHEN units = 0 THEN 'blocked' ELSE units::text END AS "limit",
    to_timestamp(ends_at / 1000.0) AS ends_at
FROM {s}.rate_limit_limits;
