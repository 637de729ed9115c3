//! Sweeps: expired rows and limits go, a page of a table at a time.

use super::database::Database;
use super::rows::{column, unsigned};
use crate::limit::Timestamp;
use crate::store::StoreError;
use crate::store::engine::{Cursor, Page};

/// A table with rows that expire, along its primary key: an index on the expiry would cost every charge more than it saves here.
struct Table {
    name: &'static str,
    /// The third column of its key, if it has one.
    third: &'static str,
    expiry: &'static str,
    /// Whether its rows are counters or limits, rather than something that is only locked.
    is_counted: bool,
}

const TABLES: [Table; 5] = [
    Table {
        name: "rate_limit_windows",
        third: "window_start",
        expiry: "expires_at",
        is_counted: true,
    },
    Table {
        name: "rate_limit_events",
        third: "at",
        expiry: "expires_at",
        is_counted: true,
    },
    Table {
        name: "rate_limit_buckets",
        third: "",
        expiry: "expires_at",
        is_counted: true,
    },
    Table {
        name: "rate_limit_limits",
        third: "",
        expiry: "ends_at",
        is_counted: true,
    },
    Table {
        name: "rate_limit_locks",
        third: "",
        expiry: "expires_at",
        is_counted: false,
    },
];

/// Deletes the expired rows of a page, which covers so many. The server's clock counts where it is behind `now`.
pub(super) async fn sweep(
    database: &mut Database,
    now: Timestamp,
    after: Option<Cursor>,
    rows: u32,
) -> Result<Page, StoreError> {
    let after = after.unwrap_or_else(|| start_of(0));
    let Some(table) = TABLES.get(after.table) else {
        return Ok(Page::default());
    };
    let following = (after.table + 1 < TABLES.len()).then(|| start_of(after.table + 1));
    let page = i32::try_from(rows).unwrap_or(i32::MAX);
    let (given, shift) = database.moment_until(now);
    let found = database
        .call(|statements| {
            sqlx::query(statements.sweep.sql())
                .bind(given)
                .bind(shift)
                .bind(table.name)
                .bind(table.third)
                .bind(table.expiry)
                .bind(now.unix_millis())
                .bind(&after.policy)
                .bind(&after.key)
                .bind(after.at)
                .bind(page)
        })
        .await?;
    let Some(row) = found.first() else {
        // The table has no more rows, or another node is at it.
        return Ok(Page {
            next: following,
            ..Page::default()
        });
    };
    let (found, deleted) = (unsigned(row, "found")?, unsigned(row, "deleted")?);
    let next = if found >= u64::from(rows) {
        Some(Cursor {
            table: after.table,
            policy: column(row, "policy")?,
            key: column(row, "key")?,
            at: column(row, "at")?,
            ..Cursor::default()
        })
    } else {
        following
    };
    Ok(Page {
        count: if table.is_counted { deleted } else { 0 },
        kept: found.saturating_sub(deleted),
        next,
    })
}

/// Before the first row of a table.
fn start_of(table: usize) -> Cursor {
    Cursor {
        table,
        at: i64::MIN,
        ..Cursor::default()
    }
}
