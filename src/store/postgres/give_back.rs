//! Units that were charged and not used go back to where they were taken from, all of a call in one transaction.

use super::database::Database;
use super::rows::{column, place, unsigned};
use super::spans;
use crate::clock::Clock;
use crate::limit::Timestamp;
use crate::limit::algorithm::Taken;
use crate::store::engine::Attempts;
use crate::store::{GiveBack, StoreError};

/// Events that a call goes through, whose totals are lowered.
pub(super) const PAGE: i32 = 1_000;

/// Where units go back to, by the numbers that the server has for it.
const WINDOW: i32 = 0;
const EVENT: i32 = 1;
const EVENTS_AFTER: i32 = 2;
const BUCKET: i32 = 3;
const REFUSALS: i32 = 4;

/// Gives units back, goes through so many events for it, and says what is left.
pub(super) async fn give_back(
    database: &mut Database,
    units: &[GiveBack],
    clock: &Clock,
    page: i32,
) -> Result<Vec<GiveBack>, StoreError> {
    if units.is_empty() {
        return Ok(Vec::new());
    }
    let mut sorted: Vec<&GiveBack> = units.iter().collect();
    sorted.sort_by_key(|back| order(back));
    let columns = Columns::of(&sorted);
    let (given, shift) = database.moment(clock);
    let rows = database
        .call(|statements| {
            sqlx::query(statements.give_back.sql())
                .bind(given)
                .bind(shift)
                .bind(page)
                .bind(&columns.kinds)
                .bind(columns.policies.clone())
                .bind(columns.keys.clone())
                .bind(&columns.instants)
                .bind(&columns.epochs)
                .bind(&columns.units)
                .bind(&columns.rates)
                .bind(&columns.periods)
        })
        .await?;
    let mut left = Vec::with_capacity(rows.len());
    for row in &rows {
        let Some(back) = sorted.get(place(row, "place")?) else {
            continue;
        };
        let after: Option<i64> = column(row, "after")?;
        let units = unsigned(row, "units")?;
        left.push(GiveBack {
            units: u32::try_from(units).unwrap_or(u32::MAX),
            from: match after {
                Some(after) => Taken::EventsAfter {
                    at: Timestamp::from_unix_millis(after),
                },
                None => back.from,
            },
            ..(*back).clone()
        });
    }
    Ok(left)
}

/// Counts what was refused without asking.
pub(super) async fn count_refused(
    database: &mut Database,
    attempts: &[Attempts],
) -> Result<(), StoreError> {
    let mut sorted: Vec<&Attempts> = attempts.iter().collect();
    sorted.sort_by_key(|attempts| {
        let (counter, key) = (&*attempts.part.rule.counter, attempts.part.key.as_str());
        (counter, key, attempts.window_start)
    });
    let texts = |of: fn(&Attempts) -> &str| sorted.iter().map(|a| of(a)).collect::<Vec<_>>();
    let numbers = |of: fn(&Attempts) -> i64| sorted.iter().map(|a| of(a)).collect::<Vec<_>>();
    let call = database.call(|statements| {
        sqlx::query(statements.count_refused.sql())
            .bind(texts(|attempts| &attempts.part.rule.counter))
            .bind(texts(|attempts| attempts.part.key.as_str()))
            .bind(numbers(|attempts| attempts.window_start.unix_millis()))
            .bind(numbers(|attempts| signed(attempts.epoch)))
            .bind(numbers(|attempts| signed(attempts.units)))
    });
    call.await.map(drop)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The order of locks: events, then buckets and blocks, then windows, each by the bytes of their key.
fn order(back: &GiveBack) -> (i32, &str, &str, i64) {
    let (counter, key) = (&*back.part.rule.counter, back.part.key.as_str());
    let (class, at) = match back.from {
        Taken::Event { at } | Taken::EventsAfter { at } => (0, at),
        Taken::Bucket { at } | Taken::Refusals { since: at } => (1, at),
        Taken::Window { start, .. } => (2, start),
    };
    (class, counter, key, at.unix_millis())
}

/// What goes back, a column each.
#[derive(Default)]
struct Columns<'a> {
    kinds: Vec<i32>,
    policies: Vec<&'a str>,
    keys: Vec<&'a str>,
    instants: Vec<i64>,
    epochs: Vec<i64>,
    units: Vec<i64>,
    rates: Vec<i64>,
    periods: Vec<i64>,
}

impl<'a> Columns<'a> {
    fn of(sorted: &[&'a GiveBack]) -> Self {
        let mut columns = Self::default();
        for back in sorted {
            let policy = back.part.policy();
            let (kind, instant, epoch) = match back.from {
                Taken::Window { start, epoch } => (WINDOW, start, signed(epoch)),
                Taken::Event { at } => (EVENT, at, 0),
                Taken::EventsAfter { at } => (EVENTS_AFTER, at, 0),
                Taken::Bucket { at } => (BUCKET, at, 0),
                Taken::Refusals { since } => (REFUSALS, since, 0),
            };
            columns.kinds.push(kind);
            columns.policies.push(&back.part.rule.counter);
            columns.keys.push(back.part.key.as_str());
            columns.instants.push(instant.unix_millis());
            columns.epochs.push(epoch);
            columns.units.push(i64::from(back.units));
            // Which limit is in force now is not known here: it may have drained as fast as under its own, or under that of then.
            columns
                .rates
                .push(i64::from(policy.rate().max(policy.own_rate())));
            columns.periods.push(spans::period(policy));
        }
        columns
    }
}
