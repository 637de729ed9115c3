//! The tables, and which version of them a file has.

use sqlx::{Row, SqliteConnection};

use crate::store::sqlite::OpenError;

/// The version that this crate writes.
pub(in crate::store::sqlite) const VERSION: i64 = 5;
/// The oldest version of this crate's schema whose code can work on a file of `VERSION`: a rolled-back deploy goes on.
const OLDEST_READER: i64 = 1;

/// What has one of the names that `CREATE` gives, where it has not given them: it is the application's. `$1` is the version of
/// the file, 0 without one, and a file of an older one has not got all of them.
const TAKEN: &str = "
SELECT name FROM sqlite_schema WHERE
    $1 < 1 AND lower(name) IN (
        'rate_limit_windows', 'rate_limit_events', 'rate_limit_buckets',
        'rate_limit_usage', 'rate_limit_event_log', 'rate_limit_bucket_usage', 'rate_limit_refusals'
    )
    OR $1 < 4 AND lower(name) IN ('api_calls', 'api_usage', 'api_call_log', 'api_usage_log')
    OR $1 < 5 AND lower(name) IN ('rate_limit_limits', 'rate_limit_set_limits', 'rate_limit_changes')
LIMIT 1
";
/// Begins the transaction that `CREATE` commits, and tells whether a table of version 2 lacks the column that version 3 has.
const BEGIN: &str = "
BEGIN IMMEDIATE;
SELECT count(*) > 0 AND NOT max(name = 'since') FROM pragma_table_info('rate_limit_buckets')
";
/// Older code writes rows without it.
const ADD_SINCE: &str =
    "ALTER TABLE rate_limit_buckets ADD COLUMN since INTEGER NOT NULL DEFAULT 0";
/// All of it in one transaction, so that processes that start at once each find all or nothing.
///
/// `rate_limit_windows` has a row for each counter and window:
/// `used` is what was admitted, and decides; `denied` is what was refused, and is only told. `granted`, `last_limit` and
/// `last_cost` are of the last statement: how many of its charges it admitted, and what they asked for. `epoch` counts
/// resets. The row is needed until `expires_at`. Instants are milliseconds since 1970 in UTC.
///
/// `rate_limit_events` has a row for each millisecond in which an exact sliding window admitted something: `units` of
/// then, and `total`, those of the key so far. `rate_limit_buckets` has a row for each token bucket: what of it was used
/// at `at`, whole units and parts of one; `since` is when the row began, so that nothing is given back to another one.
/// The rows whose policy ends in `;block` are of no bucket: they count the refusals in a row that block a key, `used` of them,
/// the last at `at`. `hold` is how long a row holds out in a database with a cap; see `room.rs`.
///
/// `rate_limit_limits` has a row for each limit that was set at run time, under the name of the policy: for a key, or with an
/// empty key for the policy itself. No `units` are no limit at all, and no `ends_at` is no end. People write here by hand, so that
/// it checks what a charge counts with.
///
/// `rate_limit_changes` has a row for each moment at which something of keys changed that others must know: units came back to a
/// counter (`kind` 0), it was reset (2), each from the first key to the last, or a limit was set for a policy's name (1). The newest
/// thousand are kept.
///
/// `api_calls` has a row for each allowed request that is recorded, in the order of their decisions, so that what is too old is at
/// the beginning; `id` tells those of one millisecond apart. `api_usage` has their sums for each `day` since 1970: the day comes
/// first, since what is written at a time is of one day then.
///
/// Each statement leaves what is there alone, so an older file gets what it lacks.
const CREATE: &str = "
CREATE TABLE IF NOT EXISTS rate_limit_schema (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL,
    oldest_reader INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS rate_limit_windows (
    policy TEXT NOT NULL,
    key TEXT NOT NULL,
    window_start INTEGER NOT NULL,
    used INTEGER NOT NULL,
    denied INTEGER NOT NULL,
    granted INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    last_limit INTEGER NOT NULL,
    last_cost INTEGER NOT NULL,
    PRIMARY KEY (policy, key, window_start)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rate_limit_events (
    policy TEXT NOT NULL,
    key TEXT NOT NULL,
    at INTEGER NOT NULL,
    units INTEGER NOT NULL,
    total INTEGER NOT NULL,
    hold INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (policy, key, at)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rate_limit_buckets (
    policy TEXT NOT NULL,
    key TEXT NOT NULL,
    at INTEGER NOT NULL,
    used INTEGER NOT NULL,
    parts INTEGER NOT NULL,
    hold INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    since INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (policy, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rate_limit_limits (
    policy TEXT NOT NULL,
    key TEXT NOT NULL CHECK (key = '' OR key LIKE '%:%'),
    units INTEGER CHECK (units BETWEEN 0 AND 4294967295),
    ends_at INTEGER,
    PRIMARY KEY (policy, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rate_limit_changes (
    seq INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    policy TEXT NOT NULL,
    first_key TEXT NOT NULL,
    last_key TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS api_calls (
    at INTEGER NOT NULL,
    id INTEGER NOT NULL,
    policy TEXT NOT NULL,
    key TEXT NOT NULL,
    method TEXT NOT NULL,
    route TEXT NOT NULL,
    status INTEGER,
    units INTEGER NOT NULL,
    PRIMARY KEY (at, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS api_usage (
    day INTEGER NOT NULL,
    key TEXT NOT NULL,
    policy TEXT NOT NULL,
    route TEXT NOT NULL,
    requests INTEGER NOT NULL,
    units INTEGER NOT NULL,
    PRIMARY KEY (day, key, policy, route)
) STRICT, WITHOUT ROWID;
CREATE VIEW IF NOT EXISTS rate_limit_set_limits AS
SELECT
    policy,
    nullif(key, '') AS key,
    iif(units IS NULL, 'exempt', iif(units = 0, 'blocked', units)) AS \"limit\",
    strftime('%Y-%m-%dT%H:%M:%fZ', ends_at / 1000.0, 'unixepoch') AS ends_at
FROM rate_limit_limits;
CREATE VIEW IF NOT EXISTS api_call_log AS
SELECT
    strftime('%Y-%m-%dT%H:%M:%fZ', at / 1000.0, 'unixepoch') AS at,
    policy, key, method, route, status, units
FROM api_calls;
CREATE VIEW IF NOT EXISTS api_usage_log AS
SELECT date(day * 86400, 'unixepoch') AS day, policy, key, route, requests, units
FROM api_usage;
CREATE VIEW IF NOT EXISTS rate_limit_event_log AS
SELECT
    policy,
    key,
    strftime('%Y-%m-%dT%H:%M:%fZ', at / 1000.0, 'unixepoch') AS at,
    units,
    strftime('%Y-%m-%dT%H:%M:%fZ', expires_at / 1000.0, 'unixepoch') AS kept_until
FROM rate_limit_events;
DROP VIEW IF EXISTS rate_limit_bucket_usage;
CREATE VIEW rate_limit_bucket_usage AS
SELECT
    policy,
    key,
    strftime('%Y-%m-%dT%H:%M:%fZ', at / 1000.0, 'unixepoch') AS at,
    used + (parts > 0) AS used,
    strftime('%Y-%m-%dT%H:%M:%fZ', expires_at / 1000.0, 'unixepoch') AS kept_until
FROM rate_limit_buckets WHERE policy NOT LIKE '%;block';
CREATE VIEW IF NOT EXISTS rate_limit_refusals AS
SELECT
    substr(policy, 1, length(policy) - length(';block')) AS policy,
    key,
    used AS refused,
    strftime('%Y-%m-%dT%H:%M:%fZ', at / 1000.0, 'unixepoch') AS at
FROM rate_limit_buckets WHERE policy LIKE '%;block' AND used > 0;
DROP VIEW IF EXISTS rate_limit_usage;
CREATE VIEW rate_limit_usage AS
SELECT
    policy,
    key,
    strftime('%Y-%m-%dT%H:%M:%fZ', window_start / 1000.0, 'unixepoch') AS window_start,
    used,
    nullif(last_limit, 9007199254740991) AS \"limit\",
    denied,
    strftime('%Y-%m-%dT%H:%M:%fZ', expires_at / 1000.0, 'unixepoch') AS kept_until
FROM rate_limit_windows;
INSERT INTO rate_limit_schema (id, version, oldest_reader) VALUES (1, $1, $2)
ON CONFLICT (id) DO UPDATE SET version = max(version, excluded.version);
COMMIT;
";

#[cfg(test)]
pub(in crate::store::sqlite) const STATEMENTS: [&str; 4] = [TAKEN, BEGIN, ADD_SINCE, CREATE];

/// Creates what is missing, or refuses a file that is too new.
pub(in crate::store::sqlite) async fn ensure(
    connection: &mut SqliteConnection,
) -> Result<Result<(), OpenError>, sqlx::Error> {
    if let Some(found) = versions(connection).await?
        && (found.version >= VERSION || found.oldest_reader > VERSION)
    {
        return Ok(found.check());
    }
    // A connection on which one of these fails is dropped.
    let rows = sqlx::query(BEGIN).fetch_all(&mut *connection).await?;
    let lacks_since = rows.first().map_or(Ok(false), |row| row.try_get(0))?;
    // Nobody creates anything now; another process may have until now.
    let version = versions(connection).await?.map_or(0, |found| found.version);
    let taken = sqlx::query(TAKEN).bind(version);
    let taken = taken.fetch_all(&mut *connection).await?;
    if let Some(row) = taken.first() {
        let name = row.try_get(0)?;
        sqlx::query("ROLLBACK").fetch_all(connection).await?;
        return Ok(Err(OpenError::NameTaken(name)));
    }
    if lacks_since {
        sqlx::query(ADD_SINCE).fetch_all(&mut *connection).await?;
    }
    sqlx::query(CREATE)
        .bind(VERSION)
        .bind(OLDEST_READER)
        .fetch_all(&mut *connection)
        .await?;
    // Another process, and another version of this crate, may have come first.
    Ok(match versions(connection).await? {
        Some(found) => found.check(),
        None => Err(OpenError::failed(sqlx::Error::RowNotFound)),
    })
}

/// What a file says of itself.
struct Versions {
    version: i64,
    /// The oldest version whose code can work on the file.
    oldest_reader: i64,
}

impl Versions {
    fn check(&self) -> Result<(), OpenError> {
        if self.oldest_reader > VERSION {
            return Err(OpenError::SchemaTooNew {
                oldest_reader: self.oldest_reader,
                supported: VERSION,
            });
        }
        Ok(())
    }
}

/// `None` when there is no schema yet.
async fn versions(connection: &mut SqliteConnection) -> Result<Option<Versions>, sqlx::Error> {
    let tables = sqlx::query("SELECT 1 FROM sqlite_schema WHERE name = 'rate_limit_schema'")
        .fetch_all(&mut *connection)
        .await?;
    if tables.is_empty() {
        return Ok(None);
    }
    let rows = sqlx::query("SELECT version, oldest_reader FROM rate_limit_schema")
        .fetch_all(&mut *connection)
        .await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    Ok(Some(Versions {
        version: row.try_get(0)?,
        oldest_reader: row.try_get(1)?,
    }))
}
