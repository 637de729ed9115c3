//! The statements of the fixed window. The arithmetic of `CHARGE` is that of `limit::fixed_window`, in SQL.

use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::Database;
use crate::limit::Timestamp;
use crate::limit::fixed_window::Usage;
use crate::store::engine::{Cursor, Page};
use crate::store::merge::{Applied, Group, Merged};
use crate::store::{Charge, Reset, StoreError};

/// Rows that a sweep or a reset looks at in one step: some 2 ms.
const PAGE: i64 = 1_000;

/// Charges a whole batch, and says what became of each of its rows. `$1` is what `Groups` writes.
///
/// The inner SELECT takes a group's head apart once, not once for each of its keys: its LIMIT keeps the planner from
/// merging it into the outer one. In ON CONFLICT the right-hand sides see the row as it was.
const CHARGE: &str = "
INSERT INTO rate_limit_windows
    (policy, key, window_start, used, denied, granted, epoch, expires_at, last_limit, last_cost)
SELECT
    of.policy, run.key, of.window_start,
    of.cost * min(run.value, of.fitting), of.cost * (run.value - min(run.value, of.fitting)),
    min(run.value, of.fitting), 0, of.expires_at, of.charge_limit, of.cost
FROM (
    SELECT
        value ->> 0 AS policy, value ->> 1 AS window_start, value ->> 2 AS expires_at,
        value ->> 3 AS charge_limit, value ->> 4 AS cost, (value ->> 3) / (value ->> 4) AS fitting,
        value -> '$[5]' AS runs
    FROM json_each($1)
    LIMIT -1
) AS of
CROSS JOIN json_each(of.runs) AS run
WHERE true
ON CONFLICT (policy, key, window_start) DO UPDATE SET
    used = used + excluded.last_cost * min(
        (excluded.used + excluded.denied) / excluded.last_cost,
        max(0, excluded.last_limit - used) / excluded.last_cost),
    denied = min(9007199254740991, denied + excluded.used + excluded.denied - excluded.last_cost * min(
        (excluded.used + excluded.denied) / excluded.last_cost,
        max(0, excluded.last_limit - used) / excluded.last_cost)),
    granted = min(
        (excluded.used + excluded.denied) / excluded.last_cost,
        max(0, excluded.last_limit - used) / excluded.last_cost),
    expires_at = max(expires_at, excluded.expires_at),
    last_limit = excluded.last_limit,
    last_cost = excluded.last_cost
RETURNING key, used, denied, granted, epoch
";

/// Reads counters. `$1` is an array of `[policy, key, window_start]`. Without CROSS JOIN the planner may go through the
/// whole table for each element.
const READ: &str = "
SELECT look.key, used, denied, epoch
FROM json_each($1) AS look
CROSS JOIN rate_limit_windows AS windows
    ON windows.policy = look.value ->> 0
    AND windows.key = look.value ->> 1
    AND windows.window_start = look.value ->> 2
";

/// Resets the counters of the keys from `$2` to `$3`, both included, and below `$4`.
const RESET: &str = "
BEGIN IMMEDIATE;
SELECT coalesce(sum(used), 0) FROM rate_limit_windows
WHERE policy = $1 AND key >= $2 AND key <= $3 AND key < $4 AND window_start = $5;
UPDATE rate_limit_windows SET used = 0, denied = 0, granted = 0, epoch = epoch + 1
WHERE policy = $1 AND key >= $2 AND key <= $3 AND key < $4;
COMMIT
";

/// The key that ends a page of the keys after `$2` and below `$3`.
const KEY_PAGE_END: &str = "
SELECT key FROM rate_limit_windows
WHERE policy = $1 AND key > $2 AND key < $3
ORDER BY key LIMIT 1 OFFSET $4
";

/// How many rows a page of the table has, how many of those have expired at `$4`, and then the row that ends it when it
/// is a full one. It reads without the write lock, which most pages do not need.
const SWEEP_PAGE: &str = "
SELECT count(*), coalesce(sum(expires_at <= $4), 0), NULL FROM (
    SELECT expires_at FROM rate_limit_windows
    WHERE (policy, key, window_start) > ($1, $2, $3)
    ORDER BY policy, key, window_start LIMIT $5);
SELECT policy, key, window_start FROM rate_limit_windows
WHERE (policy, key, window_start) > ($1, $2, $3)
ORDER BY policy, key, window_start LIMIT 1 OFFSET $5 - 1
";

const SWEEP: &str = "
DELETE FROM rate_limit_windows
WHERE (policy, key, window_start) > ($1, $2, $3) AND (policy, key, window_start) <= ($4, $5, $6)
    AND expires_at <= $7
";

const SWEEP_TO_THE_END: &str = "
DELETE FROM rate_limit_windows
WHERE (policy, key, window_start) > ($1, $2, $3) AND expires_at <= $4
";

#[cfg(test)]
pub(super) const STATEMENTS: [&str; 7] = [
    CHARGE,
    READ,
    RESET,
    KEY_PAGE_END,
    SWEEP_PAGE,
    SWEEP,
    SWEEP_TO_THE_END,
];

/// Applies the runs of a batch in one statement.
pub(super) async fn charge(
    database: &mut Database,
    merged: &Merged<'_>,
) -> Result<Vec<Applied>, StoreError> {
    if merged.groups.is_empty() {
        return Ok(Vec::new());
    }
    let groups = json(&Groups(&merged.groups))?;
    let rows = database.fetch_all(sqlx::query(CHARGE).bind(groups)).await?;
    let runs = merged.groups.iter().flat_map(|group| &group.runs);
    let applied: Vec<_> = runs
        .zip(&rows)
        .map(|(run, row)| applied(run.key, row))
        .collect();
    if applied.len() != merged.len() || rows.len() != merged.len() {
        return Err(fault("a batch came back with another number of rows"));
    }
    applied.into_iter().collect()
}

fn applied(key: &str, row: &SqliteRow) -> Result<Applied, StoreError> {
    // SQLite promises no order of RETURNING. It has kept that of the rows so far, and an answer to the wrong caller
    // would be worse than none.
    if row.try_get::<&str, _>(0).map_err(decoding)? != key {
        return Err(fault("a batch came back in another order"));
    }
    Ok(Applied {
        after: Usage {
            used: unsigned(row, 1)?,
            denied: unsigned(row, 2)?,
            epoch: unsigned(row, 4)?,
        },
        granted: u32::try_from(unsigned(row, 3)?).unwrap_or(u32::MAX),
    })
}

/// Reads counters, `None` for those that have no row.
pub(super) async fn read(
    database: &mut Database,
    looks: &[Charge],
) -> Result<Vec<Option<Usage>>, StoreError> {
    let looks_json = json(&Looks(looks))?;
    let rows = database
        .fetch_all(sqlx::query(READ).bind(looks_json))
        .await?;
    let mut found = vec![None; looks.len()];
    for row in &rows {
        let index = usize::try_from(unsigned(row, 0)?).unwrap_or(usize::MAX);
        let place = found
            .get_mut(index)
            .ok_or_else(|| fault("a look came back that was not asked for"))?;
        *place = Some(Usage {
            used: unsigned(row, 1)?,
            denied: unsigned(row, 2)?,
            epoch: unsigned(row, 3)?,
        });
    }
    Ok(found)
}

/// Resets the key itself, and then page by page those under it.
pub(super) async fn reset(
    database: &mut Database,
    reset: &Reset,
    after: Option<Cursor>,
) -> Result<Page, StoreError> {
    let policy = &reset.counter.name;
    let (from, to) = reset.key.under();
    let next = |key: &str| {
        Some(Cursor {
            policy: String::new(),
            key: key.to_owned(),
            window_start: 0,
        })
    };
    let Some(after) = after else {
        let key = reset.key.as_str();
        return Ok(Page {
            count: reset_range(database, reset, key, key, &from).await?,
            kept: 0,
            next: reset.with_keys_under.then(|| next(&from)).flatten(),
        });
    };
    let query = sqlx::query(KEY_PAGE_END)
        .bind(policy)
        .bind(&after.key)
        .bind(&to)
        .bind(PAGE - 1);
    let rows = database.fetch_all(query).await?;
    let end: Option<String> = match rows.first() {
        Some(row) => Some(row.try_get(0).map_err(decoding)?),
        None => None,
    };
    // The first text after the cursor's: the key there was reset by the page before.
    let first = format!("{}\0", after.key);
    Ok(Page {
        count: reset_range(database, reset, &first, end.as_ref().unwrap_or(&to), &to).await?,
        kept: 0,
        next: end.as_deref().and_then(next),
    })
}

async fn reset_range(
    database: &mut Database,
    reset: &Reset,
    first: &str,
    last: &str,
    below: &str,
) -> Result<u64, StoreError> {
    let query = sqlx::query(RESET)
        .bind(&reset.counter.name)
        .bind(first)
        .bind(last)
        .bind(below)
        .bind(reset.span().start.unix_millis());
    let rows = database.fetch_all(query).await?;
    rows.first().map_or(Ok(0), |row| unsigned(row, 0))
}

/// Deletes the expired rows of a page.
pub(super) async fn sweep(
    database: &mut Database,
    now: Timestamp,
    after: Option<Cursor>,
) -> Result<Page, StoreError> {
    let now = now.unix_millis();
    let after = after.unwrap_or_else(|| Cursor {
        policy: String::new(),
        key: String::new(),
        window_start: i64::MIN,
    });
    let query = sqlx::query(SWEEP_PAGE)
        .bind(&after.policy)
        .bind(&after.key)
        .bind(after.window_start)
        .bind(now)
        .bind(PAGE);
    let rows = database.fetch_all(query).await?;
    let Some(summary) = rows.first() else {
        return Err(fault("a sweep's page has no summary"));
    };
    let (found, expired) = (unsigned(summary, 0)?, unsigned(summary, 1)?);
    let next = rows.get(1).map(cursor).transpose()?;
    let mut count = 0;
    if expired > 0 {
        let query = match &next {
            Some(end) => sqlx::query(SWEEP)
                .bind(&after.policy)
                .bind(&after.key)
                .bind(after.window_start)
                .bind(&end.policy)
                .bind(&end.key)
                .bind(end.window_start),
            None => sqlx::query(SWEEP_TO_THE_END)
                .bind(&after.policy)
                .bind(&after.key)
                .bind(after.window_start),
        };
        count = database.execute(query.bind(now)).await?;
    }
    Ok(Page {
        count,
        kept: found.saturating_sub(count),
        next,
    })
}

/// What `CHARGE` takes: `[[policy, window_start, expires_at, limit, cost, {key: charges, …}], …]`.
struct Groups<'a>(&'a [Group<'a>]);

impl Serialize for Groups<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(OneGroup))
    }
}

struct OneGroup<'a>(&'a Group<'a>);

impl Serialize for OneGroup<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let like = self.0.like;
        let mut group = serializer.serialize_seq(Some(6))?;
        group.serialize_element(&like.counter.name)?;
        group.serialize_element(&like.span().start.unix_millis())?;
        group.serialize_element(&like.expires_at().unix_millis())?;
        group.serialize_element(&like.limit)?;
        group.serialize_element(&like.cost)?;
        group.serialize_element(&Runs(self.0))?;
        group.end()
    }
}

struct Runs<'a>(&'a Group<'a>);

impl Serialize for Runs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut runs = serializer.serialize_map(Some(self.0.runs.len()))?;
        for run in &self.0.runs {
            runs.serialize_entry(run.key, &run.length)?;
        }
        runs.end()
    }
}

/// What `READ` takes.
struct Looks<'a>(&'a [Charge]);

impl Serialize for Looks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|look| {
            let start = look.span().start.unix_millis();
            (&look.counter.name, look.key.as_str(), start)
        }))
    }
}

fn json(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|_| fault("a batch can't be written as JSON"))
}

fn cursor(row: &SqliteRow) -> Result<Cursor, StoreError> {
    Ok(Cursor {
        policy: row.try_get(0).map_err(decoding)?,
        key: row.try_get(1).map_err(decoding)?,
        window_start: row.try_get(2).map_err(decoding)?,
    })
}

/// A count, which is never negative.
fn unsigned(row: &SqliteRow, column: usize) -> Result<u64, StoreError> {
    let value: i64 = row.try_get(column).map_err(decoding)?;
    Ok(u64::try_from(value).unwrap_or(0))
}

fn decoding(error: sqlx::Error) -> StoreError {
    StoreError::Database {
        is_transient: false,
        source: std::sync::Arc::new(error),
    }
}

fn fault(what: &'static str) -> StoreError {
    decoding(sqlx::Error::Protocol(what.to_owned()))
}
