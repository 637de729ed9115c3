//! Limits that are set at run time, and what became free for others.

use sqlx::postgres::PgRow;

use super::database::Database;
use super::rows::{column, instant, stored_limit};
use crate::clock;
use crate::limit::Key;
use crate::limit::Timestamp;
use crate::store::engine::{Changes, Freed};
use crate::store::{Limits, LimitsAsk, SetLimit, StoreError, Which};

/// So many changes are read at once.
const MOST_CHANGES: i64 = 8_000;
const OF_LIMIT: i16 = 1;
const OF_RESET: i16 = 2;

/// Sets a limit, or removes it, and says whether there was one.
pub(super) async fn set(database: &mut Database, set: &SetLimit) -> Result<bool, StoreError> {
    let units = set.limit.and_then(|limit| limit.units).map(i64::from);
    let ends_at = set.limit.and_then(|limit| limit.ends_at);
    let rows = database
        .call(|statements| {
            sqlx::query(statements.set_limit.sql())
                .bind(&set.filed_under)
                .bind(set.key_text())
                .bind(set.limit.is_none())
                .bind(units)
                .bind(ends_at.map(Timestamp::unix_millis))
                .bind(set.now.unix_millis())
        })
        .await?;
    match rows.first() {
        Some(row) => sqlx::Row::try_get(row, 0).map_err(super::sql_state::store_error),
        None => Ok(false),
    }
}

pub(super) async fn list(database: &mut Database, ask: &LimitsAsk) -> Result<Limits, StoreError> {
    let text = |key: &Option<Key>| match key {
        Some(key) => key.as_str().to_owned(),
        None => SetLimit::OF_ALL.to_owned(),
    };
    match &ask.which {
        Which::Of(key) => {
            let (found, _) = read(database, ask, &text(key), None).await?;
            Ok(found)
        }
        Which::Keys { after, most } => {
            let most = *most;
            let mut after = text(after);
            let mut limits = Limits::new();
            loop {
                let left = most.saturating_sub(u32::try_from(limits.len()).unwrap_or(u32::MAX));
                let (mut page, end) = read(database, ask, &after, Some(left)).await?;
                limits.append(&mut page);
                match end {
                    // What is left out makes room for what comes after it.
                    Some(end) if limits.len() < most as usize => after = end,
                    _ => return Ok(limits),
                }
            }
        }
    }
}

/// Reads limits: that of a key, or the first `most` of the keys after it; and tells where the page ends when there may be another
/// one. What somebody has written for a text that is no key holds for nobody, and is left out.
async fn read(
    database: &mut Database,
    ask: &LimitsAsk,
    key: &str,
    most: Option<u32>,
) -> Result<(Limits, Option<String>), StoreError> {
    let rows = database
        .call(|statements| {
            let statement = match most {
                None => &statements.find_limit,
                Some(_) => &statements.list_limits,
            };
            let query = sqlx::query(statement.sql())
                .bind(&ask.filed_under)
                .bind(key)
                .bind(ask.now.unix_millis());
            match most {
                None => query,
                Some(most) => query.bind(i64::from(most)),
            }
        })
        .await?;
    let mut limits = Limits::with_capacity(rows.len());
    let mut end = None;
    for row in &rows {
        let text: String = column(row, "key")?;
        let key = match &*text {
            SetLimit::OF_ALL => Ok(None),
            text => text.parse().map(Some),
        };
        if let Ok(key) = key {
            let numbers = [column(row, "units")?, column(row, "ends_at")?];
            limits.push(stored_limit(&numbers, key));
        }
        end = Some(text);
    }
    let is_full = most.is_some_and(|most| rows.len() >= most as usize && most > 0);
    Ok((limits, end.filter(|_| is_full)))
}

/// What became free since `after`.
pub(super) async fn changes(
    database: &mut Database,
    after: Option<i64>,
) -> Result<Changes, StoreError> {
    let shift = database.time.shift();
    let sent = clock::monotonic();
    let rows = database
        .call(|statements| {
            sqlx::query(statements.changes.sql())
                .bind(after.unwrap_or(i64::MAX))
                .bind(MOST_CHANGES)
                .bind(shift)
        })
        .await?;
    let Some((ends, rows)) = rows.split_first() else {
        return Ok(Changes::default());
    };
    database.overheard(sent, instant(column(ends, "now")?));
    let (first, last): (i64, i64) = (column(ends, "first")?, column(ends, "last")?);
    let is_continued = after.is_none_or(|after| first <= after.saturating_add(1) && after <= last);
    let is_whole = is_continued && (rows.len() as u64) < MOST_CHANGES.unsigned_abs();
    Ok(Changes {
        last,
        freed: if is_whole {
            Some(rows.iter().map(freed).collect::<Result<_, _>>()?)
        } else {
            None
        },
    })
}

fn freed(row: &PgRow) -> Result<Freed, StoreError> {
    let kind: i16 = column(row, "kind")?;
    let counter = column(row, "policy")?;
    let first = column(row, "first_key")?;
    Ok(if kind == OF_LIMIT {
        Freed::Limit {
            filed_under: counter,
            key: first,
        }
    } else {
        Freed::Keys {
            counter,
            first,
            last: column(row, "last_key")?,
            is_reset: kind == OF_RESET,
        }
    })
}
