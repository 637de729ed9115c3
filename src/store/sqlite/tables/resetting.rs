//! Resets, a page of keys at a time.

use sqlx::Row;

use super::{Table, buckets, decoding, events, unsigned, windows};
use crate::store::engine::{Cursor, Page};
use crate::store::sqlite::Database;
use crate::store::{Reset, StoreError};

/// Rows that a page covers: some 2 ms. The rows of one key are never parted.
const PAGE: i64 = 1_000;

/// Resets the key itself, and then page by page those under it.
pub(in crate::store::sqlite) async fn reset(
    database: &mut Database,
    reset: &Reset,
    after: Option<Cursor>,
) -> Result<Page, StoreError> {
    let (from, to) = reset.part.key.under();
    let next = |key: &str| Cursor {
        key: key.to_owned(),
        ..Cursor::default()
    };
    let Some(after) = after else {
        let key = reset.part.key.as_str();
        return Ok(Page {
            count: reset_range(database, reset, key, key, &from).await?,
            kept: 0,
            next: reset.with_keys_under.then(|| next(&from)),
        });
    };
    let page_end = match Table::of(&reset.part) {
        Table::Windows => windows::KEY_PAGE_END,
        Table::Events => events::KEY_PAGE_END,
        Table::Buckets => buckets::KEY_PAGE_END,
    };
    let query = sqlx::query(page_end)
        .bind(&reset.part.rule.counter)
        .bind(&after.key)
        .bind(&to)
        .bind(PAGE - 1);
    let rows = database.read(query).await?;
    let end: Option<String> = match rows.first() {
        Some(row) => Some(row.try_get(0).map_err(decoding)?),
        None => None,
    };
    // The first text after the cursor's: the key there was reset by the page before.
    let first = format!("{}\0", after.key);
    Ok(Page {
        count: reset_range(database, reset, &first, end.as_ref().unwrap_or(&to), &to).await?,
        kept: 0,
        next: end.as_deref().map(next),
    })
}

async fn reset_range(
    database: &mut Database,
    reset: &Reset,
    first: &str,
    last: &str,
    below: &str,
) -> Result<u64, StoreError> {
    let table = Table::of(&reset.part);
    let statement = match table {
        Table::Windows => windows::RESET,
        Table::Events => events::RESET,
        Table::Buckets => buckets::RESET,
    };
    let mut query = sqlx::query(statement)
        .bind(&reset.part.rule.counter)
        .bind(first)
        .bind(last)
        .bind(below);
    match table {
        Table::Windows => {
            for start in windows::in_force(reset) {
                query = query.bind(start);
            }
        }
        Table::Events => query = query.bind(events::in_force_after(reset)),
        Table::Buckets => query = query.bind(reset.at.unix_millis()),
    }
    let rows = database.fetch_all(query).await?;
    match table {
        Table::Windows => windows::used(reset, &rows),
        Table::Events => rows.first().map_or(Ok(0), |row| unsigned(row, 0)),
        Table::Buckets => buckets::used(reset, &rows),
    }
}
