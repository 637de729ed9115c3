//! A batch of charges that are each against a single window, in one statement: the arithmetic of
//! `limit::algorithm::fixed_window`, in SQL.

use std::sync::LazyLock;

use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::Database;
use super::tables::limits::{self, counted_with};
use super::tables::{decoding, fault, json, unsigned};
use crate::limit::algorithm::fixed_window::Usage;
use crate::limit::{InForce, Timestamp, Until};
use crate::store::engine::{Ahead, Batch};
use crate::store::merge::{Applied, Group, Merged};
use crate::store::{Charge, StoreError};

/// A run's JSON number is how many charges it has, and so many times what it asks for ahead. What was granted is told likewise.
const AHEAD: i64 = 1 << 14;
/// Beside what was granted it is told whether the key has a limit of its own. Nobody asks for so much ahead.
const HAS_OWN_LIMIT: i64 = 1 << 48;

/// Charges a whole batch, and says what became of each of its rows; then tells the limits that were set at run time for all keys
/// of a group. `$1` is what `Groups` writes, `$2` is now.
///
/// The inner SELECTs take a group's head apart once, not once for each of its keys, and look up a key's limit once: their LIMIT
/// keeps the planner from merging them into the outer one. In ON CONFLICT the right-hand sides see the row as it was. What is
/// asked for ahead is granted up to an eighth of what the charges leave, so that other processes find some too; of a row that is
/// there `excluded` tells what a new one would have been granted, which is never less. Only runs that cost 1 ask for something
/// ahead.
static CHARGE: LazyLock<String> = LazyLock::new(|| {
    "
INSERT INTO rate_limit_windows
    (policy, key, window_start, used, denied, granted, epoch, expires_at, last_limit, last_cost)
SELECT
    policy, key, window_start,
    cost * {new} + min(ahead, ({limit} - cost * {new}) / 8),
    cost * (length - {new}),
    {new} + {AHEAD} * min(ahead, ({limit} - cost * {new}) / 8) + {HAS_OWN_LIMIT} * (own_limit IS NOT NULL),
    0, expires_at, {limit}, cost
FROM (
    SELECT
        of.policy, run.key, of.window_start, of.expires_at, of.limit_of_all, of.cost,
        run.value % {AHEAD} AS length, run.value / {AHEAD} AS ahead,
        iif(has_limits, (
            SELECT ifnull(units, {NO_LIMIT}) FROM rate_limit_limits
            WHERE policy = of.limits AND key = run.key AND {has_not_ended}), NULL
        ) AS own_limit
    FROM (
        SELECT
            value ->> 0 AS policy, value ->> 1 AS window_start, value ->> 2 AS expires_at, value ->> 4 AS cost,
            value -> '$[5]' AS runs, value ->> 6 AS limits,
            EXISTS (SELECT 1 FROM rate_limit_limits WHERE policy = value ->> 6) AS has_limits,
            coalesce((
                SELECT ifnull(units, {NO_LIMIT}) FROM rate_limit_limits
                WHERE policy = value ->> 6 AND key = '' AND {has_not_ended}), value ->> 3
            ) AS limit_of_all
        FROM json_each($1)
        LIMIT -1
    ) AS of
    CROSS JOIN json_each(of.runs) AS run
    LIMIT -1
)
WHERE true
ON CONFLICT (policy, key, window_start) DO UPDATE SET
    used = used + excluded.last_cost * {admitted} + {extra},
    denied = min(9007199254740991, denied + excluded.last_cost * ({length} - {admitted})),
    granted = {admitted} + {AHEAD} * {extra} + excluded.granted / {HAS_OWN_LIMIT} * {HAS_OWN_LIMIT},
    expires_at = max(expires_at, excluded.expires_at),
    last_limit = excluded.last_limit,
    last_cost = excluded.last_cost
RETURNING key, used, denied, granted, epoch, last_limit;
SELECT of.key, limits.units, limits.ends_at
FROM json_each($1) AS of
CROSS JOIN rate_limit_limits AS limits ON limits.policy = of.value ->> 6 AND limits.key = ''
WHERE EXISTS (SELECT 1 FROM rate_limit_limits)
"
    .replace(
        "{extra}",
        "min({ahead}, ({left} - excluded.last_cost * {admitted}) / 8)",
    )
    .replace("{admitted}", "min({length}, {left} / excluded.last_cost)")
    .replace(
        "{length}",
        "((excluded.used + excluded.denied - {ahead}) / excluded.last_cost)",
    )
    .replace("{ahead}", "(excluded.granted % {HAS_OWN_LIMIT} / {AHEAD})")
    .replace("{left}", "max(0, excluded.last_limit - used)")
    .replace("{new}", "min(length, {limit} / cost)")
    .replace("{limit}", "ifnull(own_limit, limit_of_all)")
    .replace("{HAS_OWN_LIMIT}", &HAS_OWN_LIMIT.to_string())
    .replace("{has_not_ended}", "ifnull(ends_at, 9223372036854775807) > $2")
    .replace("{NO_LIMIT}", &limits::NO_LIMIT.to_string())
    .replace("{AHEAD}", &AHEAD.to_string())
});

#[cfg(test)]
pub(super) fn statements() -> [&'static str; 2] {
    [&CHARGE, LIMITS]
}

/// The limits of keys, of which the statement above has said no more than how many units they are. `$1` is an array of `[policy,
/// key]`.
const LIMITS: &str = "
SELECT look.key, limits.units, limits.ends_at
FROM json_each($1) AS look
CROSS JOIN rate_limit_limits AS limits
    ON limits.policy = look.value ->> 0 AND limits.key = look.value ->> 1
";

/// Whether one statement can decide the batch: each of its charges is against a single counter, and may be
/// refused.
pub(super) fn can_charge(batch: Batch<'_>) -> bool {
    let can_charge = |charge: &Charge| charge.one_window().is_some() && !charge.is_forced;
    let is_one_window = |ahead: &Ahead| ahead.part.policy().algorithm().is_one_window();
    batch.charges.iter().all(can_charge) && batch.ahead.iter().all(is_one_window)
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
    let query = sqlx::query(&**CHARGE)
        .bind(groups)
        .bind(merged.at().unix_millis());
    let rows = database.fetch_all(query).await?;
    let Some((rows, limits_of_all)) = rows.split_at_checked(merged.len()) else {
        return Err(fault("a batch came back with too few rows"));
    };
    let groups = merged.groups.iter().enumerate();
    let runs = groups.flat_map(|(place, group)| group.runs.iter().map(move |run| (place, run)));
    let mut charged = Vec::with_capacity(rows.len());
    for ((group, run), row) in runs.zip(rows) {
        charged.push(Counted {
            group,
            key: run.key,
            applied: applied(run.key, row)?,
            units: counted_with(row, 5)?,
            has_own_limit: unsigned(row, 3)? >= HAS_OWN_LIMIT.unsigned_abs(),
        });
    }
    tell_limits(database, merged, &mut charged, limits_of_all).await?;
    Ok(charged.into_iter().map(|counted| counted.applied).collect())
}

/// A run that was charged, and the limit that it was counted with.
struct Counted<'a> {
    group: usize,
    key: &'a str,
    applied: Applied,
    units: Option<u32>,
    /// Whether that is the key's own, and not that of all keys or the policy's.
    has_own_limit: bool,
}

/// Adds the limits that were set at run time: when they end, and what holds then. It takes a second look at those of keys, since
/// the statement that charges tells their units alone.
async fn tell_limits(
    database: &mut Database,
    merged: &Merged<'_>,
    charged: &mut [Counted<'_>],
    rows_of_all: &[SqliteRow],
) -> Result<(), StoreError> {
    let now = merged.at();
    let mut of_all = vec![None; merged.groups.len()];
    for row in rows_of_all {
        let place = usize::try_from(unsigned(row, 0)?).unwrap_or(usize::MAX);
        let limit = of_all.get_mut(place);
        *limit.ok_or_else(|| fault("a limit came back that was not asked for"))? =
            Some(limits::stored(row, 1, None)?);
    }
    let own = |group: usize| merged.groups[group].like.policy().limit();
    let mut looks = Vec::new();
    let mut places = Vec::new();
    for (place, counted) in charged.iter_mut().enumerate() {
        let group = counted.group;
        if counted.has_own_limit {
            looks.push((&*merged.groups[group].like.rule.limits, counted.key));
            places.push(place);
        } else {
            let found = InForce::of(None, of_all[group].as_ref(), own(group), now);
            counted.set(found, own(group), now);
        }
    }
    if looks.is_empty() {
        return Ok(());
    }
    let rows = database
        .read(sqlx::query(LIMITS).bind(json(&looks)?))
        .await?;
    let mut of_keys = vec![None; looks.len()];
    for row in &rows {
        let place = usize::try_from(unsigned(row, 0)?).unwrap_or(usize::MAX);
        let limit = of_keys.get_mut(place);
        *limit.ok_or_else(|| fault("a limit came back that was not asked for"))? =
            Some(limits::stored(row, 1, None)?);
    }
    for (place, of_key) in places.into_iter().zip(&of_keys) {
        let group = charged[place].group;
        let found = InForce::of(of_key.as_ref(), of_all[group].as_ref(), own(group), now);
        charged[place].set(found, own(group), now);
    }
    Ok(())
}

impl Counted<'_> {
    /// Takes in the limit that was found for the key, after it was charged.
    fn set(&mut self, found: Option<InForce>, own: u32, now: Timestamp) {
        let units = self.units;
        self.applied.in_force = if found.map_or(Some(own), |found| found.units) == units {
            found
        } else {
            // It was changed since, and for how long it would have held is not known.
            let until = Some(Until {
                at: now,
                then: units,
            });
            Some(InForce {
                units,
                until,
                is_own: self.has_own_limit,
            })
        };
    }
}

fn applied(key: &str, row: &SqliteRow) -> Result<Applied, StoreError> {
    // SQLite promises no order of RETURNING. It has kept that of the rows so far, and an answer to the wrong caller
    // would be worse than none.
    if row.try_get::<&str, _>(0).map_err(decoding)? != key {
        return Err(fault("a batch came back in another order"));
    }
    let granted = unsigned(row, 3)? % HAS_OWN_LIMIT.unsigned_abs();
    let ahead = AHEAD.unsigned_abs();
    Ok(Applied {
        after: Usage {
            used: unsigned(row, 1)?,
            denied: unsigned(row, 2)?,
            epoch: unsigned(row, 4)?,
        },
        granted: u32::try_from(granted % ahead).unwrap_or(u32::MAX),
        extra: u32::try_from(granted / ahead).unwrap_or(u32::MAX),
        in_force: None,
    })
}

/// What `CHARGE` takes: `[[policy, window_start, expires_at, limit, cost, {key: charges, …}, limits], …]`.
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
        let mut group = serializer.serialize_seq(Some(7))?;
        group.serialize_element(&like.rule.counter)?;
        group.serialize_element(&span.start.unix_millis())?;
        group.serialize_element(&policy.expires_at(*span).unix_millis())?;
        group.serialize_element(&policy.limit())?;
        group.serialize_element(cost)?;
        group.serialize_element(&Runs(self.0))?;
        group.serialize_element(&like.rule.limits)?;
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
