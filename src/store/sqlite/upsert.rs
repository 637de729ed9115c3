//! A batch of charges that are each against a single window, in one statement: the arithmetic of
//! `limit::algorithm::fixed_window`, in SQL.

use std::sync::LazyLock;

use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::Database;
use super::tables::{decoding, fault, json, unsigned};
use crate::limit::algorithm::fixed_window::Usage;
use crate::store::merge::{Applied, Group, Merged};
use crate::store::{Charge, StoreError};

/// A run's JSON number is how many charges it has, and so many times what it asks for ahead.
const AHEAD: i64 = 1 << 14;

/// Charges a whole batch, and says what became of each of its rows. `$1` is what `Groups` writes.
///
/// The inner SELECT takes a group's head apart once, not once for each of its keys: its LIMIT keeps the planner from
/// merging it into the outer one. In ON CONFLICT the right-hand sides see the row as it was. What is asked for ahead is
/// granted up to an eighth of what the charges leave, so that other processes find some too; of a row that is there `excluded`
/// tells what a new one would have been granted, which is never less. Only runs that cost 1 ask for something ahead.
static CHARGE: LazyLock<String> = LazyLock::new(|| {
    "
INSERT INTO rate_limit_windows
    (policy, key, window_start, used, denied, granted, epoch, expires_at, last_limit, last_cost)
SELECT
    policy, key, window_start,
    cost * admitted + min(ahead, (charge_limit - cost * admitted) / 8),
    cost * (length - admitted),
    admitted + {AHEAD} * min(ahead, (charge_limit - cost * admitted) / 8),
    0, expires_at, charge_limit, cost
FROM (
    SELECT
        of.policy, run.key, of.window_start, of.expires_at, of.charge_limit, of.cost,
        run.value % {AHEAD} AS length, run.value / {AHEAD} AS ahead,
        min(run.value % {AHEAD}, of.fitting) AS admitted
    FROM (
        SELECT
            value ->> 0 AS policy, value ->> 1 AS window_start, value ->> 2 AS expires_at,
            value ->> 3 AS charge_limit, value ->> 4 AS cost, (value ->> 3) / (value ->> 4) AS fitting,
            value -> '$[5]' AS runs
        FROM json_each($1)
        LIMIT -1
    ) AS of
    CROSS JOIN json_each(of.runs) AS run
)
WHERE true
ON CONFLICT (policy, key, window_start) DO UPDATE SET
    used = used + excluded.last_cost * {admitted} + {extra},
    denied = min(9007199254740991, denied + excluded.last_cost * ({length} - {admitted})),
    granted = {admitted} + {AHEAD} * {extra},
    expires_at = max(expires_at, excluded.expires_at),
    last_limit = excluded.last_limit,
    last_cost = excluded.last_cost
RETURNING key, used, denied, granted, epoch
"
    .replace(
        "{extra}",
        "min(excluded.granted / {AHEAD}, ({left} - excluded.last_cost * {admitted}) / 8)",
    )
    .replace("{admitted}", "min({length}, {left} / excluded.last_cost)")
    .replace(
        "{length}",
        "((excluded.used + excluded.denied - excluded.granted / {AHEAD}) / excluded.last_cost)",
    )
    .replace("{left}", "max(0, excluded.last_limit - used)")
    .replace("{AHEAD}", &AHEAD.to_string())
});

#[cfg(test)]
pub(super) fn statements() -> [&'static str; 1] {
    [&CHARGE]
}

/// Whether one statement can decide the batch: each of its charges is against a single counter, and may be
/// refused.
pub(super) fn can_charge(charges: &[Charge]) -> bool {
    let can_charge = |charge: &Charge| charge.one_window().is_some() && !charge.is_forced;
    charges.iter().all(can_charge)
}

/// Applies the runs of a batch in one statement.
pub(super) async fn charge(
    database: &mut Database,
    merged: &Merged<'_>,
) -> Result<Vec<Applied>, StoreError> {
    if merged.groups.is_empty() {
        return Ok(Vec::new());
    }
    let groups = json(&Groups(&merged.groups))?;
    let rows = database
        .fetch_all(sqlx::query(&**CHARGE).bind(groups))
        .await?;
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
    let (granted, ahead) = (unsigned(row, 3)?, AHEAD.unsigned_abs());
    Ok(Applied {
        after: Usage {
            used: unsigned(row, 1)?,
            denied: unsigned(row, 2)?,
            epoch: unsigned(row, 4)?,
        },
        granted: u32::try_from(granted % ahead).unwrap_or(u32::MAX),
        extra: u32::try_from(granted / ahead).unwrap_or(u32::MAX),
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
        let Group {
            like, span, cost, ..
        } = self.0;
        let policy = like.policy();
        let mut group = serializer.serialize_seq(Some(6))?;
        group.serialize_element(&like.rule.counter)?;
        group.serialize_element(&span.start.unix_millis())?;
        group.serialize_element(&policy.expires_at(*span).unix_millis())?;
        group.serialize_element(&policy.limit())?;
        group.serialize_element(cost)?;
        group.serialize_element(&Runs(self.0))?;
        group.end()
    }
}

struct Runs<'a>(&'a Group<'a>);

impl Serialize for Runs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut runs = serializer.serialize_map(Some(self.0.runs.len()))?;
        for run in &self.0.runs {
            let number = i64::from(run.length) + AHEAD * i64::from(run.ahead);
            runs.serialize_entry(run.key, &number)?;
        }
        runs.end()
    }
}
