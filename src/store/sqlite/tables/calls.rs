//! `api_calls`, the allowed requests, and `api_usage`, their sums for each day: how they are written, kept and swept.

use std::time::Duration;

use super::unsigned;
use crate::limit::{Day, Timestamp};
use crate::store::StoreError;
use crate::store::engine::{Calls, Cursor, Page};
use crate::store::sqlite::Database;
use crate::store::sqlite::retention::Retention;

/// Records a page. `$1` is what `Calls` writes.
///
/// A page that is written once more finds its rows, all or none since they were committed together: then nothing has changed,
/// and nothing is added to the sums either.
const RECORD: &str = "
BEGIN IMMEDIATE;
INSERT INTO api_calls (at, id, policy, key, method, route, status, units)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7
FROM json_each($1)
WHERE true
ON CONFLICT (at, id) DO NOTHING;
INSERT INTO api_usage (day, key, policy, route, requests, units)
SELECT value ->> 8, value ->> 3, value ->> 2, value ->> 5, 1, value ->> 7
FROM json_each($1)
WHERE changes() > 0
ON CONFLICT (day, key, policy, route) DO UPDATE SET
    requests = requests + 1,
    units = units + excluded.units;
COMMIT
";

/// Rows that are kept of each table in a database in memory: some 10 MB.
const MOST_IN_MEMORY: i64 = 1 << 16;
/// Deletes the oldest rows beyond the newest `$1`.
const CAP: [&str; 2] = [
    "DELETE FROM api_calls WHERE (at, id) <= (
        SELECT at, id FROM api_calls ORDER BY at DESC, id DESC LIMIT 1 OFFSET $1)",
    "DELETE FROM api_usage WHERE (day, key, policy, route) <= (
        SELECT day, key, policy, route FROM api_usage
        ORDER BY day DESC, key DESC, policy DESC, route DESC LIMIT 1 OFFSET $1)",
];

/// How many rows a page would delete, up to `$2`, and whether there are others. It reads without the write lock.
const LOOK: [&str; 2] = [
    "SELECT (SELECT count(*) FROM (SELECT 1 FROM api_calls WHERE at <= $1 LIMIT $2)),
        EXISTS (SELECT 1 FROM api_calls WHERE at > $1)",
    "SELECT (SELECT count(*) FROM (SELECT 1 FROM api_usage WHERE day < $1 LIMIT $2)),
        EXISTS (SELECT 1 FROM api_usage WHERE day >= $1)",
];
const SWEEP: [&str; 2] = [
    "DELETE FROM api_calls WHERE (at, id) IN (
        SELECT at, id FROM api_calls WHERE at <= $1 ORDER BY at, id LIMIT $2)",
    "DELETE FROM api_usage WHERE (day, key, policy, route) IN (
        SELECT day, key, policy, route FROM api_usage WHERE day < $1
        ORDER BY day, key, policy, route LIMIT $2)",
];

/// How many tables these are.
pub(super) const TABLES: usize = LOOK.len();

#[cfg(test)]
pub(super) fn statements() -> impl Iterator<Item = &'static str> {
    let all = [RECORD].into_iter().chain(CAP);
    all.chain(LOOK).chain(SWEEP)
}

/// Records a page of allowed requests, in a database with a cap in place of the oldest ones.
pub(in crate::store::sqlite) async fn record(
    database: &mut Database,
    calls: &Calls,
    has_cap: bool,
) -> Result<(), StoreError> {
    database
        .fetch_all(sqlx::query(RECORD).bind(calls.json()))
        .await?;
    if has_cap {
        for statement in CAP {
            let query = sqlx::query(statement).bind(MOST_IN_MEMORY);
            // Without the rows beyond the cap the page is written all the same.
            database.execute(query).await?;
        }
    }
    Ok(())
}

/// Deletes up to so many rows of what is older than it is kept for, in the table of this number. There is a next page of the same
/// table when this one was full.
pub(super) async fn sweep(
    database: &mut Database,
    now: Timestamp,
    retention: &Retention,
    table: usize,
    again: Cursor,
    rows: u32,
) -> Result<Page, StoreError> {
    if !retention.is_in_force() {
        return Ok(Page::default());
    }
    let before = |kept_for: Duration| {
        let kept_for = i64::try_from(kept_for.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_unix_millis(now.unix_millis().saturating_sub(kept_for))
    };
    let end = match table {
        0 => before(retention.of_calls()).unix_millis(),
        _ => Day::of(before(retention.of_usage())).unix_days(),
    };
    let query = sqlx::query(LOOK[table]).bind(end).bind(rows);
    let found = database.read(query).await?;
    let look = |column| found.first().map_or(Ok(0), |row| unsigned(row, column));
    let (old, kept) = (look(0)?, look(1)?);
    if old == 0 {
        return Ok(Page {
            kept,
            ..Page::default()
        });
    }
    let query = sqlx::query(SWEEP[table]).bind(end).bind(rows);
    let count = database.execute(query).await?;
    Ok(Page {
        count,
        kept,
        next: (count >= u64::from(rows)).then_some(again),
    })
}
