//! Units that were charged and not used go back to where they were taken from, all of a call in one transaction.

use std::collections::HashMap;
use std::sync::LazyLock;

use sqlx::Row;

use super::Database;
use super::tables::{Slot, buckets, decoding, events, json, unsigned, windows};
use crate::limit::Timestamp;
use crate::limit::algorithm::{State, Taken};
use crate::store::{GiveBack, Part, StoreError};

/// Gives back to windows and events, and reads the buckets. `$1`, `$2` and `$3` are arrays for the three tables.
static BEGIN: LazyLock<String> = LazyLock::new(|| {
    [
        "BEGIN IMMEDIATE",
        windows::GIVE_BACK,
        events::GIVE_BACK,
        events::DELETE_EMPTY,
        buckets::SELECT,
    ]
    .join(";")
});
/// Writes the buckets. `$1` is an array of rows.
static END: LazyLock<String> =
    LazyLock::new(|| [&*buckets::INSERT.replace("$4", "$1"), "COMMIT"].join(";"));

#[cfg(test)]
pub(super) fn statements() -> [&'static str; 3] {
    [windows::GIVE_BACK, &BEGIN, &END]
}

/// Gives units back. Says how many rows are gone with them.
pub(super) async fn give_back(
    database: &mut Database,
    units: &[GiveBack],
    now: Timestamp,
) -> Result<u64, StoreError> {
    let sums = Sums::of(units);
    if sums.events.is_empty() && sums.buckets.is_empty() {
        let query = sqlx::query(windows::GIVE_BACK).bind(json(&sums.windows)?);
        database.execute(query).await?;
        return Ok(0);
    }
    let given_back = give_back_in_transaction(database, &sums, now).await;
    if given_back.is_err() {
        database.roll_back().await;
    }
    given_back
}

async fn give_back_in_transaction(
    database: &mut Database,
    sums: &Sums<'_>,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let events = sums.events.iter();
    let events: Vec<_> = events
        .map(|((counter, key, at), units)| (counter, key, at, units))
        .collect();
    let entries = sums.buckets.iter();
    let mut entries: Vec<_> = entries
        .map(|(part, _)| buckets::Entry::new(part, now))
        .collect();
    let looks: Vec<_> = entries.iter().map(buckets::Entry::look).collect();
    let query = sqlx::query(&**BEGIN)
        .bind(json(&sums.windows)?)
        .bind(json(&events)?)
        .bind(json(&looks)?);
    let mut deleted = 0;
    for row in &database.begin(query).await? {
        let number = unsigned(row, 1)?;
        if row.try_get::<i64, _>(0).map_err(decoding)? == events::DELETED {
            deleted = number;
        } else if let Some(entry) = entries.get_mut(usize::try_from(number).unwrap_or(usize::MAX)) {
            entry.read(row)?;
        }
    }
    for (entry, (part, taken)) in entries.iter_mut().zip(&sums.buckets) {
        for (taken_at, units) in taken {
            entry.bucket =
                State::bucket_without(entry.bucket, part.policy(), *units, *taken_at, now);
        }
    }
    let rows = entries.iter().filter(|entry| entry.exists);
    let rows: Vec<_> = rows.map(buckets::Entry::row).collect();
    let query = sqlx::query(&**END).bind(json(&rows)?);
    database.end(query).await?;
    Ok(deleted)
}

/// What goes back, of each place.
struct Sums<'a> {
    windows: Vec<(&'a str, &'a str, i64, u64, u32)>,
    /// Each event once, since no more can be given back than it has.
    events: HashMap<(&'a str, &'a str, i64), u64>,
    /// Each bucket once, with what was taken when.
    buckets: Vec<(&'a Part, Vec<(Timestamp, u32)>)>,
}

impl<'a> Sums<'a> {
    fn of(units: &'a [GiveBack]) -> Self {
        let mut sums = Self {
            windows: Vec::new(),
            events: HashMap::new(),
            buckets: Vec::new(),
        };
        for GiveBack { part, units, from } in units {
            let (counter, key) = (&*part.rule.counter, part.key.as_str());
            match *from {
                Taken::Window { start, epoch } => {
                    let start = start.unix_millis();
                    sums.windows.push((counter, key, start, epoch, *units));
                }
                Taken::Event { at } => {
                    let event = sums.events.entry((counter, key, at.unix_millis()));
                    *event.or_default() += u64::from(*units);
                }
                Taken::Bucket { at } => {
                    let taken = (at, *units);
                    match sums.buckets.iter_mut().find(|(other, _)| *other == part) {
                        Some((_, all)) => all.push(taken),
                        None => sums.buckets.push((part, vec![taken])),
                    }
                }
            }
        }
        sums
    }
}
