//! What was used, from the sums in `api_usage`.

use std::sync::LazyLock;

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::{decoding, unsigned};
use crate::store::StoreError;
use crate::store::engine::{By, Cursor, UsageAsk, UsagePage};
use crate::store::sqlite::Database;

/// Rows that a page of all keys adds up: some 2 ms.
const PAGE: i64 = 2_000;
/// Days that a page of one key adds up: for each of them the key is looked for.
const PAGE_DAYS: i64 = 366;

/// Adds up a page of rows after `$1` to `$4`, up to the day `$5`, and tells the row that ends it when it is a full one.
const OF_ALL: &str = "
SELECT {label}, sum(requests), sum(units) FROM (
    SELECT day, key, policy, route, requests, units FROM api_usage
    WHERE (day, key, policy, route) > ($1, $2, $3, $4) AND day <= $5
    ORDER BY day, key, policy, route LIMIT $6)
WHERE ($7 IS NULL OR policy = $7) AND ($8 IS NULL OR route = $8)
GROUP BY 1;
SELECT key, policy, route, day FROM api_usage
WHERE (day, key, policy, route) > ($1, $2, $3, $4) AND day <= $5
ORDER BY day, key, policy, route LIMIT 1 OFFSET $6 - 1
";

/// Adds up the rows of a key in the days from `$1` to `$2`. Without CROSS JOIN the planner may go through the whole table.
const OF_KEY: &str = "
WITH RECURSIVE days (day) AS (VALUES ($1) UNION ALL SELECT day + 1 FROM days WHERE day < $2)
SELECT {label}, sum(requests), sum(units)
FROM days CROSS JOIN api_usage AS sums ON sums.day = days.day AND sums.key = $3
WHERE ($4 IS NULL OR policy = $4) AND ($5 IS NULL OR route = $5)
GROUP BY 1
";

const ALL: [By; 5] = [By::Nothing, By::Day, By::Route, By::Policy, By::Key];

static STATEMENTS: LazyLock<[[String; 2]; 5]> = LazyLock::new(|| ALL.map(filled));

fn filled(by: By) -> [String; 2] {
    let label = match by {
        By::Nothing => "''",
        By::Day => "CAST({day} AS TEXT)",
        By::Route => "route",
        By::Policy => "policy",
        By::Key => "key",
    };
    [(OF_ALL, "day"), (OF_KEY, "sums.day")]
        .map(|(statement, day)| statement.replace("{label}", &label.replace("{day}", day)))
}

#[cfg(test)]
pub(in crate::store::sqlite) fn statements() -> impl Iterator<Item = &'static str> {
    STATEMENTS.iter().flatten().map(String::as_str)
}

/// Adds up a page of what was used.
pub(in crate::store::sqlite) async fn usage(
    database: &mut Database,
    ask: &UsageAsk,
    after: Option<Cursor>,
) -> Result<UsagePage, StoreError> {
    let [of_all, of_key] = &STATEMENTS[ask.by as usize];
    match &ask.key {
        None => all_keys(database, of_all, ask, after).await,
        Some(key) => one_key(database, of_key, ask, key, after).await,
    }
}

async fn all_keys(
    database: &mut Database,
    statement: &'static str,
    ask: &UsageAsk,
    after: Option<Cursor>,
) -> Result<UsagePage, StoreError> {
    let after = after.unwrap_or_else(|| Cursor {
        // No key is empty, so this is before the first of the day.
        at: ask.days.first().unix_days(),
        ..Cursor::default()
    });
    let query = sqlx::query(statement)
        .bind(after.at)
        .bind(&after.key)
        .bind(&after.policy)
        .bind(&after.route)
        .bind(ask.days.last().unix_days())
        .bind(PAGE)
        .bind(&ask.policy)
        .bind(&ask.route);
    let rows = database.read(query).await?;
    let (groups, ends): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.len() == 3);
    let groups = groups.into_iter().map(group);
    let end = ends.first().map(|row| {
        Ok::<_, sqlx::Error>(Cursor {
            table: 0,
            key: row.try_get(0)?,
            policy: row.try_get(1)?,
            route: row.try_get(2)?,
            at: row.try_get(3)?,
        })
    });
    Ok(UsagePage {
        groups: groups.collect::<Result<_, _>>()?,
        next: end.transpose().map_err(decoding)?,
    })
}

async fn one_key(
    database: &mut Database,
    statement: &'static str,
    ask: &UsageAsk,
    key: &str,
    after: Option<Cursor>,
) -> Result<UsagePage, StoreError> {
    let last = ask.days.last().unix_days();
    let from = after.map_or(ask.days.first().unix_days(), |after| after.at);
    let to = last.min(from + PAGE_DAYS - 1);
    let query = sqlx::query(statement)
        .bind(from)
        .bind(to)
        .bind(key)
        .bind(&ask.policy)
        .bind(&ask.route);
    let rows = database.read(query).await?;
    let groups = rows.iter().filter(|row| !is_empty(row)).map(group);
    Ok(UsagePage {
        groups: groups.collect::<Result<_, _>>()?,
        next: (to < last).then(|| Cursor {
            at: to + 1,
            ..Cursor::default()
        }),
    })
}

fn is_empty(row: &SqliteRow) -> bool {
    matches!(row.try_get(1), Ok(None::<i64>))
}

fn group(row: &SqliteRow) -> Result<(String, (u64, u64)), StoreError> {
    let label = row.try_get(0).map_err(decoding)?;
    Ok((label, (unsigned(row, 1)?, unsigned(row, 2)?)))
}
