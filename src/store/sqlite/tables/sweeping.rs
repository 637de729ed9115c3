//! Sweeps: expired rows and limits go, a page of a table at a time.

use std::sync::LazyLock;

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::{Table, calls, decoding, fault, unsigned};
use crate::limit::Timestamp;
use crate::store::StoreError;
use crate::store::engine::{Cursor, Page};
use crate::store::sqlite::Database;
use crate::store::sqlite::retention::Retention;

/// How many rows a page of the table has, how many of those have expired at `$4`, and then the row that ends it when it
/// is a full one. It reads without the write lock, which most pages do not need.
const LOOK: &str = "
SELECT count(*), coalesce(sum({expiry} <= $4), 0), NULL FROM (
    SELECT {expiry} FROM {table}
    WHERE (policy, key, {third}) > ($1, $2, $3)
    ORDER BY {order} LIMIT $5);
SELECT policy, key, {third} FROM {table}
WHERE (policy, key, {third}) > ($1, $2, $3)
ORDER BY {order} LIMIT 1 OFFSET $5 - 1
";

const DELETE: &str = "
DELETE FROM {table}
WHERE (policy, key, {third}) > ($1, $2, $3) AND (policy, key, {third}) <= ($4, $5, $6)
    AND {expiry} <= $7
";

const DELETE_TO_THE_END: &str = "
DELETE FROM {table}
WHERE (policy, key, {third}) > ($1, $2, $3) AND {expiry} <= $4
";

/// The statements for each table, in the order of `Table::ALL` and the limits behind them: along the primary key, since an index on the expiry would
/// cost every charge more than it saves the sweep.
static STATEMENTS: LazyLock<[Statements; 4]> = LazyLock::new(|| {
    let [windows, events, buckets] = Table::ALL.map(Statements::of);
    [windows, events, buckets, Statements::of_limits()]
});

struct Statements {
    look: String,
    delete: String,
    delete_to_the_end: String,
}

impl Statements {
    fn of(table: Table) -> Self {
        let (name, third, order) = match table {
            Table::Windows => (
                "rate_limit_windows",
                "window_start",
                "policy, key, window_start",
            ),
            Table::Events => ("rate_limit_events", "at", "policy, key, at"),
            // A bucket has no third column in its key.
            Table::Buckets => ("rate_limit_buckets", "0", "policy, key"),
        };
        Self::filled(name, third, order, "expires_at")
    }

    fn of_limits() -> Self {
        Self::filled("rate_limit_limits", "0", "policy, key", "ends_at")
    }

    fn filled(name: &str, third: &str, order: &str, expiry: &str) -> Self {
        let filled = |statement: &str| {
            statement
                .replace("{table}", name)
                .replace("{third}", third)
                .replace("{order}", order)
                .replace("{expiry}", expiry)
        };
        Self {
            look: filled(LOOK),
            delete: filled(DELETE),
            delete_to_the_end: filled(DELETE_TO_THE_END),
        }
    }
}

#[cfg(test)]
pub(in crate::store::sqlite) fn statements() -> impl Iterator<Item = &'static str> {
    STATEMENTS.iter().flat_map(|of| {
        let statements: [&'static str; 3] = [&of.look, &of.delete, &of.delete_to_the_end];
        statements
    })
}

/// Deletes the expired rows of a page, which covers so many.
pub(in crate::store::sqlite) async fn sweep(
    database: &mut Database,
    now: Timestamp,
    retention: &Retention,
    after: Option<Cursor>,
    rows: u32,
) -> Result<Page, StoreError> {
    let after = after.unwrap_or_else(|| start_of(0));
    let table = after.table;
    let tables = STATEMENTS.len() + calls::TABLES;
    let following = (table + 1 < tables).then(|| start_of(table + 1));
    let Some(statements) = STATEMENTS.get(table) else {
        let recorded = table - STATEMENTS.len();
        let page = calls::sweep(database, now, retention, recorded, after, rows).await?;
        return Ok(Page {
            next: page.next.or(following),
            ..page
        });
    };
    let now = now.unix_millis();
    let query = sqlx::query(&*statements.look)
        .bind(&after.policy)
        .bind(&after.key)
        .bind(after.at)
        .bind(now)
        .bind(rows);
    let rows = database.read(query).await?;
    let Some(summary) = rows.first() else {
        return Err(fault("a sweep's page has no summary"));
    };
    let (found, expired) = (unsigned(summary, 0)?, unsigned(summary, 1)?);
    let next = rows.get(1).map(|row| cursor(row, table)).transpose()?;
    let mut count = 0;
    if expired > 0 {
        let query = match &next {
            Some(end) => sqlx::query(&*statements.delete)
                .bind(&after.policy)
                .bind(&after.key)
                .bind(after.at)
                .bind(&end.policy)
                .bind(&end.key)
                .bind(end.at),
            None => sqlx::query(&*statements.delete_to_the_end)
                .bind(&after.policy)
                .bind(&after.key)
                .bind(after.at),
        };
        count = database.execute(query.bind(now)).await?;
    }
    Ok(Page {
        count,
        kept: found.saturating_sub(count),
        next: next.or(following),
    })
}

/// Whether a page of counters begins there, and none of limits or of what was recorded.
pub(in crate::store::sqlite) fn is_of_counters(cursor: &Cursor) -> bool {
    cursor.table < Table::ALL.len()
}

/// Before the first row of a table.
fn start_of(table: usize) -> Cursor {
    Cursor {
        table,
        at: i64::MIN,
        ..Cursor::default()
    }
}

fn cursor(row: &SqliteRow, table: usize) -> Result<Cursor, StoreError> {
    Ok(Cursor {
        table,
        policy: row.try_get(0).map_err(decoding)?,
        key: row.try_get(1).map_err(decoding)?,
        at: row.try_get(2).map_err(decoding)?,
        ..Cursor::default()
    })
}
