//! A batch of charges that are each against a single window: one statement on the server.

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::database::Database;
use super::rows::{Numbers, column, count, fault, instant, place, stored_limit, unsigned};
use super::spans;
use super::sql_state::store_error;
use crate::clock::{self, Clock};
use crate::limit::algorithm::fixed_window::Usage;
use crate::limit::{InForce, Timestamp};
use crate::store::engine::{Ahead, Batch, Charged};
use crate::store::merge::{Applied, Merged};
use crate::store::{Charge, StoreError};

/// The batch as runs, when one statement can decide it: each of its charges is against a single counter and may be refused, and
/// no counter is asked in two ways.
pub(super) fn merged(batch: Batch<'_>) -> Option<Merged<'_>> {
    let can_charge = |charge: &Charge| charge.one_window().is_some() && !charge.is_forced;
    let is_one_window = |ahead: &Ahead| ahead.part.policy().algorithm().is_one_window();
    let is_of_windows =
        batch.charges.iter().all(can_charge) && batch.ahead.iter().all(is_one_window);
    if !is_of_windows {
        return None;
    }
    // The server says when it is decided.
    let merged = Merged::of(batch.charges.iter(), batch.ahead, instant(0));
    (!merged.has_later_runs()).then_some(merged)
}

/// Applies the runs of a batch.
pub(super) async fn charge(
    database: &mut Database,
    mut merged: Merged<'_>,
    clock: &Clock,
) -> Result<Charged, StoreError> {
    let runs = Runs::of(&merged);
    let (given, shift) = database.moment(clock);
    let sent = clock::monotonic();
    let rows = database
        .call(|statements| {
            sqlx::query(statements.charge_windows.sql())
                .bind(given)
                .bind(shift)
                .bind(runs.policies.clone())
                .bind(runs.keys.clone())
                .bind(runs.names.clone())
                .bind(&runs.periods)
                .bind(&runs.lasts)
                .bind(&runs.limits)
                .bind(&runs.costs)
                .bind(&runs.lengths)
                .bind(&runs.aheads)
        })
        .await?;
    let at = match rows.first() {
        Some(row) => instant(row.try_get("decided_at").map_err(store_error)?),
        None => return Err(fault("a batch came back without rows")),
    };
    database.heard(sent, at, clock);
    merged.set_at(at);
    let mut applied = vec![None; runs.limits.len()];
    for row in &rows {
        let place = place(row, "place")?;
        let own = runs.own_limits.get(place);
        let own = *own.ok_or_else(|| fault("a row came back that was not asked for"))?;
        applied[place] = Some(read(row, own, at)?);
    }
    let applied: Option<Vec<_>> = applied.into_iter().collect();
    let applied = applied.ok_or_else(|| fault("a batch came back with too few rows"))?;
    Ok(merged.charged(&applied))
}

fn read(row: &PgRow, own_limit: u32, at: Timestamp) -> Result<Applied, StoreError> {
    let units = |name| {
        let units = column(row, name).map(count);
        units.map(|units| u32::try_from(units).unwrap_or(u32::MAX))
    };
    let limit = |name| {
        let numbers: Option<Numbers> = column(row, name)?;
        Ok::<_, StoreError>(numbers.map(|numbers| stored_limit(&numbers, None)))
    };
    let (own, every) = (limit("own")?, limit("every")?);
    Ok(Applied {
        after: Usage {
            used: unsigned(row, "used")?,
            denied: unsigned(row, "denied")?,
            epoch: unsigned(row, "epoch")?,
        },
        granted: units("granted")?,
        extra: units("ahead")?,
        in_force: InForce::of(own.as_ref(), every.as_ref(), own_limit, at),
    })
}

/// The runs of a batch, a column each.
#[derive(Default)]
struct Runs<'a> {
    policies: Vec<&'a str>,
    keys: Vec<&'a str>,
    names: Vec<&'a str>,
    periods: Vec<i64>,
    lasts: Vec<i64>,
    limits: Vec<i64>,
    own_limits: Vec<u32>,
    costs: Vec<i64>,
    lengths: Vec<i64>,
    aheads: Vec<i64>,
}

impl<'a> Runs<'a> {
    /// In the order of groups and runs.
    fn of(merged: &Merged<'a>) -> Self {
        let mut runs = Self::default();
        for group in &merged.groups {
            let (rule, policy) = (&group.like.rule, group.like.policy());
            for run in &group.runs {
                runs.policies.push(&rule.counter);
                runs.keys.push(run.key);
                runs.names.push(&rule.limits);
                runs.periods.push(spans::period(policy));
                runs.lasts.push(spans::lasts(policy));
                runs.limits.push(i64::from(policy.limit()));
                runs.own_limits.push(policy.limit());
                runs.costs.push(i64::from(group.cost));
                runs.lengths.push(i64::from(run.length));
                runs.aheads.push(i64::from(run.ahead));
            }
        }
        runs
    }
}
