//! Resets, a page of keys at a time.

use sqlx::postgres::PgRow;

use super::database::Database;
use super::rows::{column, count, instant, unsigned};
use crate::limit::Algorithm;
use crate::limit::algorithm::State;
use crate::limit::algorithm::fixed_window::Usage;
use crate::limit::algorithm::sliding_counter::Pair;
use crate::limit::algorithm::token_bucket::Bucket;
use crate::limit::timestamp::millis;
use crate::store::engine::{Cursor, Page};
use crate::store::{Reset, StoreError};

/// Rows that a page covers. The rows of one key are never parted.
const PAGE: i32 = 1_000;

/// The table in which a counter is, by the number that the server has for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Windows = 0,
    Events = 2,
    Buckets = 3,
}

impl Table {
    fn of(reset: &Reset) -> Self {
        match reset.part.policy().algorithm() {
            _ if reset.part.is_block() => Self::Buckets,
            Algorithm::SlidingWindow => Self::Events,
            Algorithm::TokenBucket => Self::Buckets,
            _ => Self::Windows,
        }
    }
}

/// Resets the key itself, and then page by page those under it.
pub(super) async fn reset(
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
        let range = Range {
            low: key,
            high: Some(key),
            below: &from,
            beside: "",
        };
        let (count, _) = reset_range(database, reset, &range).await?;
        return Ok(Page {
            count,
            kept: 0,
            next: reset.with_keys_under.then(|| next(&from)),
        });
    };
    // The key at the cursor was reset by the page before.
    let range = Range {
        low: &after.key,
        high: None,
        below: &to,
        beside: &after.key,
    };
    let (count, end) = reset_range(database, reset, &range).await?;
    Ok(Page {
        count,
        kept: 0,
        next: end.as_deref().map(next),
    })
}

/// Keys from `low` to `high`, or to the end of a page, below `below`, without `beside`.
struct Range<'a> {
    low: &'a str,
    high: Option<&'a str>,
    below: &'a str,
    beside: &'a str,
}

/// Says how many units were in force, and where the page ended when there is another one.
async fn reset_range(
    database: &mut Database,
    reset: &Reset,
    range: &Range<'_>,
) -> Result<(u64, Option<String>), StoreError> {
    let table = Table::of(reset);
    let [before, current] = windows_in_force(reset);
    let window = millis(reset.part.policy().period());
    let events_after = reset.at.unix_millis().saturating_sub(window);
    let rows = database
        .call(|statements| {
            sqlx::query(statements.reset.sql())
                .bind(table as i32)
                .bind(&reset.part.rule.counter)
                .bind(range.low)
                .bind(range.high)
                .bind(range.below)
                .bind(range.beside)
                .bind(PAGE)
                .bind(before)
                .bind(current)
                .bind(events_after)
                .bind(reset.at.unix_millis())
        })
        .await?;
    let mut end = None;
    let mut counters = Vec::with_capacity(rows.len());
    for row in &rows {
        match column::<Option<String>>(row, "ends_at")? {
            Some(key) => end = Some(key),
            None => counters.push(row),
        }
    }
    let used = match table {
        Table::Windows => used_of_windows(reset, &counters)?,
        Table::Events => counters.first().map_or(Ok(0), |row| unsigned(row, "a"))?,
        Table::Buckets => used_of_buckets(reset, &counters)?,
    };
    Ok((used, end))
}

/// The windows whose counters are in force: the current one, and the one before where that counts too.
fn windows_in_force(reset: &Reset) -> [i64; 2] {
    let current = reset.part.span(reset.at).start;
    let previous = match reset.part.unused(reset.at) {
        State::Pair(_) => reset.part.span_before(reset.at).start,
        _ => current,
    };
    [previous.unix_millis(), current.unix_millis()]
}

fn used_of_windows(reset: &Reset, rows: &[&PgRow]) -> Result<u64, StoreError> {
    let [previous, current] = windows_in_force(reset);
    let mut units: u64 = 0;
    let mut rows = rows.iter().peekable();
    while let Some(row) = rows.next() {
        let key: String = column(row, "key")?;
        let mut pair = Pair::default();
        let usage = |row| {
            Ok::<_, StoreError>(Usage {
                used: unsigned(row, "b")?,
                ..Usage::default()
            })
        };
        if column::<i64>(row, "a")? == current {
            pair.current = usage(row)?;
        } else {
            pair.previous = usage(row)?;
            let is_same = |next: &&&PgRow| column::<String>(next, "key").is_ok_and(|k| k == key);
            if let Some(next) = rows.next_if(is_same) {
                pair.current = usage(next)?;
            }
        }
        let state = if previous == current {
            State::Window(pair.current)
        } else {
            State::Pair(pair)
        };
        units = units.saturating_add(state.used(reset.part.policy(), reset.at));
    }
    Ok(units)
}

fn used_of_buckets(reset: &Reset, rows: &[&PgRow]) -> Result<u64, StoreError> {
    let policy = reset.part.policy();
    let mut units: u64 = 0;
    for row in rows.iter().filter(|_| !reset.part.is_block()) {
        let bucket = Bucket {
            at: instant(column(row, "a")?),
            used: count(column(row, "b")?),
            parts: count(column(row, "c")?),
            since: instant(column(row, "d")?),
            is_moved: false,
        };
        let state = State::of_bucket(bucket, policy, reset.at);
        units = units.saturating_add(state.used(policy, reset.at));
    }
    Ok(units)
}
