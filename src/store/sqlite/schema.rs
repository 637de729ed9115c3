//! The tables, and which version of them a file has.

use sqlx::{Row, SqliteConnection};

use super::OpenError;

/// The version that this crate writes.
pub(super) const VERSION: i64 = 1;
/// The oldest version of this crate's schema whose code can work on a file of `VERSION`: a rolled-back deploy goes on.
const OLDEST_READER: i64 = 1;

/// All of it in one transaction, so that processes that start at once each find all or nothing.
///
/// `rate_limit_windows` has a row for each counter and window:
/// `used` is what was admitted, and decides; `denied` is what was refused, and is only told. `granted`, `last_limit` and
/// `last_cost` are of the last statement: how many of its charges it admitted, and what they asked for. `epoch` counts
/// resets. The row is needed until `expires_at`. Instants are milliseconds since 1970 in UTC.
const CREATE: &str = "
BEGIN IMMEDIATE;
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
CREATE VIEW IF NOT EXISTS rate_limit_usage AS
SELECT
    policy,
    key,
    strftime('%Y-%m-%dT%H:%M:%fZ', window_start / 1000.0, 'unixepoch') AS window_start,
    used,
    last_limit AS \"limit\",
    denied,
    strftime('%Y-%m-%dT%H:%M:%fZ', expires_at / 1000.0, 'unixepoch') AS kept_until
FROM rate_limit_windows;
INSERT OR IGNORE INTO rate_limit_schema (id, version, oldest_reader) VALUES (1, $1, $2);
COMMIT;
";

#[cfg(test)]
pub(super) const STATEMENTS: [&str; 1] = [CREATE];

/// Creates what is missing, or refuses a file that is too new.
pub(super) async fn ensure(
    connection: &mut SqliteConnection,
) -> Result<Result<(), OpenError>, sqlx::Error> {
    if let Some(oldest_reader) = oldest_reader(connection).await? {
        return Ok(check(oldest_reader));
    }
    sqlx::query(CREATE)
        .bind(VERSION)
        .bind(OLDEST_READER)
        .fetch_all(&mut *connection)
        .await?;
    // Another process, and another version of this crate, may have come first.
    Ok(match oldest_reader(connection).await? {
        Some(oldest_reader) => check(oldest_reader),
        None => Err(OpenError::failed(sqlx::Error::RowNotFound)),
    })
}

fn check(oldest_reader: i64) -> Result<(), OpenError> {
    if oldest_reader > VERSION {
        return Err(OpenError::SchemaTooNew {
            oldest_reader,
            supported: VERSION,
        });
    }
    Ok(())
}

/// The oldest version whose code can work on the file, or `None` when there is no schema yet.
async fn oldest_reader(connection: &mut SqliteConnection) -> Result<Option<i64>, sqlx::Error> {
    let tables = sqlx::query("SELECT 1 FROM sqlite_schema WHERE name = 'rate_limit_schema'")
        .fetch_all(&mut *connection)
        .await?;
    if tables.is_empty() {
        return Ok(None);
    }
    let versions = sqlx::query("SELECT oldest_reader FROM rate_limit_schema")
        .fetch_all(&mut *connection)
        .await?;
    versions.first().map(|row| row.try_get(0)).transpose()
}
