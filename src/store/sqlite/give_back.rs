//! Units that were charged and not used go back to where they were taken from, all of a call in one transaction.
//!
//! An event's units are in the running totals of all later events of its key, which may be thousands. So a call goes through a
//! page of them, from the oldest on, and what is left goes with the next one: until then more is told as used than is, never
//! less, whatever comes in between.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::Database;
use super::tables::{Slot, buckets, changes, decoding, events, json, unsigned, windows};
use crate::limit::Timestamp;
use crate::limit::algorithm::{State, Taken};
use crate::store::{GiveBack, Part, StoreError};

/// Events that a call goes through: some 10 ms.
pub(super) const PAGE: u64 = 1_000;

/// Reads what the events and buckets have. `$1` and `$2` are arrays for the events, `$3` for the buckets, `$4` is the page.
static BEGIN: LazyLock<String> = LazyLock::new(|| {
    let statements = [
        "BEGIN IMMEDIATE",
        events::LATER,
        events::OWN,
        buckets::SELECT,
    ];
    statements.join(";")
});
/// Gives back, and commits. `$1` is an array for the windows, `$2` and `$3` for the events, `$4` and
/// `$5` for the buckets and the refusals among them.
static END: LazyLock<String> = LazyLock::new(|| {
    let statements = [
        windows::GIVE_BACK,
        events::TAKE_OUT,
        events::LOWER,
        events::DELETE_EMPTY,
        buckets::INSERT,
        buckets::FORGET_REFUSALS,
        changes::OF_WINDOWS,
        changes::OF_OTHERS,
        changes::PRUNE,
        "COMMIT",
    ];
    statements.join(";")
});
/// The same where all goes back to windows, as most does. `$1` is an array for them.
static OF_WINDOWS: LazyLock<String> = LazyLock::new(|| {
    let statements = [
        "BEGIN IMMEDIATE",
        windows::GIVE_BACK,
        changes::OF_WINDOWS,
        changes::PRUNE,
        "COMMIT",
    ];
    statements.join(";")
});

#[cfg(test)]
pub(super) fn statements() -> [&'static str; 3] {
    [&OF_WINDOWS, &BEGIN, &END]
}

/// What became of a call.
pub(super) struct GivenBack {
    pub(super) deleted_rows: u64,
    /// What the next call is to go on with.
    pub(super) left: Vec<GiveBack>,
}

/// Gives units back, and goes through so many events for it.
pub(super) async fn give_back(
    database: &mut Database,
    units: &[GiveBack],
    now: Timestamp,
    page: u64,
) -> Result<GivenBack, StoreError> {
    let sorted = Sorted::of(units);
    if sorted.is_of_windows() {
        let query = sqlx::query(&**OF_WINDOWS).bind(json(&sorted.windows)?);
        database.fetch_all(query).await?;
        return Ok(GivenBack {
            deleted_rows: 0,
            left: Vec::new(),
        });
    }
    let given_back = give_back_in_transaction(database, &sorted, now, page).await;
    if given_back.is_err() {
        database.roll_back().await;
    }
    given_back
}

async fn give_back_in_transaction(
    database: &mut Database,
    sorted: &Sorted<'_>,
    now: Timestamp,
    page: u64,
) -> Result<GivenBack, StoreError> {
    let mut logs: Vec<_> = sorted.events.values().map(Log::of).collect();
    let mut buckets: Vec<_> = sorted
        .buckets
        .iter()
        .map(|(part, _)| buckets::Entry::new(part, now))
        .collect();
    let own: Vec<_> = logs.iter().flat_map(Log::own).collect();
    let query = sqlx::query(&**BEGIN)
        .bind(json(&logs.iter().map(Log::later).collect::<Vec<_>>())?)
        .bind(json(&own)?)
        .bind(json(
            &buckets.iter().map(buckets::Entry::look).collect::<Vec<_>>(),
        )?)
        .bind(page.cast_signed());
    let rows = database.begin(query).await?;
    let mut own = logs.iter_mut().flat_map(Log::own_mut).collect::<Vec<_>>();
    for row in rows.iter().filter(|row| tag(row) == Some(events::OWN_TAG)) {
        if let Some(refund) = own.get_mut(index(row)?) {
            refund.there = unsigned(row, 2)?;
        }
    }
    for row in &rows {
        match tag(row) {
            Some(events::LATER_TAG) => {
                if let Some(log) = logs.get_mut(index(row)?) {
                    log.read(row)?;
                }
            }
            Some(events::OWN_TAG) => {}
            _ => {
                if let Some(entry) = buckets.get_mut(index(row)?) {
                    entry.read(row)?;
                }
            }
        }
    }
    let lowered = Changes::of(&logs, page);
    for (entry, (part, taken)) in buckets.iter_mut().zip(&sorted.buckets) {
        for (taken_at, units) in taken {
            entry.bucket =
                State::bucket_without(entry.bucket, part.policy(), *units, *taken_at, now);
        }
    }
    let buckets = buckets.iter().filter(|entry| entry.exists);
    let query = sqlx::query(&**END)
        .bind(json(&sorted.windows)?)
        .bind(json(&lowered.units)?)
        .bind(json(&lowered.totals)?)
        .bind(json(&buckets.map(buckets::Entry::row).collect::<Vec<_>>())?)
        .bind(json(&sorted.refusals)?);
    let rows = database.end(query).await?;
    Ok(GivenBack {
        deleted_rows: rows.first().map_or(Ok(0), |row| unsigned(row, 0))?,
        left: lowered.left,
    })
}

fn tag(row: &SqliteRow) -> Option<i64> {
    row.try_get(0).ok()
}

fn index(row: &SqliteRow) -> Result<usize, StoreError> {
    Ok(usize::try_from(unsigned(row, 1)?).unwrap_or(usize::MAX))
}

/// What goes back, by where it goes.
struct Sorted<'a> {
    windows: Vec<(&'a str, &'a str, i64, u64, u32)>,
    /// Of each key.
    events: BTreeMap<(&'a str, &'a str), Vec<&'a GiveBack>>,
    /// Each bucket once, with what was taken when.
    buckets: Vec<(&'a Part, Vec<(Timestamp, u32)>)>,
    /// `[policy, key, since]`: what is forgotten of the refusals of a key.
    refusals: Vec<(&'a str, &'a str, i64)>,
}

impl<'a> Sorted<'a> {
    /// Whether one statement does it.
    fn is_of_windows(&self) -> bool {
        self.events.is_empty() && self.buckets.is_empty() && self.refusals.is_empty()
    }

    fn of(units: &'a [GiveBack]) -> Self {
        let mut sorted = Self {
            windows: Vec::new(),
            events: BTreeMap::new(),
            buckets: Vec::new(),
            refusals: Vec::new(),
        };
        for back in units {
            let (counter, key) = (&*back.part.rule.counter, back.part.key.as_str());
            match back.from {
                Taken::Window { start, epoch } => {
                    let start = start.unix_millis();
                    sorted
                        .windows
                        .push((counter, key, start, epoch, back.units));
                }
                Taken::Event { .. } | Taken::EventsAfter { .. } => {
                    sorted.events.entry((counter, key)).or_default().push(back);
                }
                Taken::Refusals { since } => {
                    sorted.refusals.push((counter, key, since.unix_millis()));
                }
                Taken::Bucket { at } => {
                    let mut known = sorted.buckets.iter_mut();
                    match known.find(|(part, _)| **part == back.part) {
                        Some((_, taken)) => taken.push((at, back.units)),
                        None => sorted.buckets.push((&back.part, vec![(at, back.units)])),
                    }
                }
            }
        }
        sorted
    }
}

/// What goes back to the events of one key.
struct Log<'a> {
    /// From the oldest event on, each once.
    refunds: Vec<Refund<'a>>,
    /// The events from the oldest refund on, as far as they were counted.
    rows: u64,
    /// Where a page of them ends, when there are more.
    page_end: Option<i64>,
}

/// What goes back to one event, and out of the totals from an instant on.
struct Refund<'a> {
    back: &'a GiveBack,
    /// The event itself, unless its units were taken out by a call before.
    own: Option<i64>,
    /// From where on totals are to be lowered.
    from: i64,
    units: u64,
    /// What the event has.
    there: u64,
}

impl Refund<'_> {
    /// What is certain to be there.
    fn lowered(&self) -> u64 {
        match self.own {
            Some(_) => self.units.min(self.there),
            None => self.units,
        }
    }
}

impl<'a> Log<'a> {
    fn of(backs: &Vec<&'a GiveBack>) -> Self {
        let mut refunds: Vec<Refund<'a>> = Vec::with_capacity(backs.len());
        for back in backs {
            let (own, from) = match back.from {
                Taken::EventsAfter { at } => (None, at.unix_millis().saturating_add(1)),
                Taken::Event { at } | Taken::Bucket { at } => {
                    (Some(at.unix_millis()), at.unix_millis())
                }
                Taken::Window { start, .. } | Taken::Refusals { since: start } => {
                    (None, start.unix_millis())
                }
            };
            let units = u64::from(back.units);
            match refunds
                .iter_mut()
                .find(|refund| own.is_some() && refund.own == own)
            {
                Some(same) => same.units += units,
                None => refunds.push(Refund {
                    back,
                    own,
                    from,
                    units,
                    there: 0,
                }),
            }
        }
        refunds.sort_by_key(|refund| refund.from);
        Self {
            refunds,
            rows: 0,
            page_end: None,
        }
    }

    fn names(&self) -> (&'a str, &'a str) {
        let part = self.refunds.first().map(|refund| &refund.back.part);
        part.map_or(("", ""), |part| (&part.rule.counter, part.key.as_str()))
    }

    /// What `LATER` takes.
    fn later(&self) -> (&'a str, &'a str, i64) {
        let (counter, key) = self.names();
        let from = self.refunds.first().map_or(i64::MAX, |refund| refund.from);
        (counter, key, from)
    }

    /// What `OWN` takes.
    fn own(&self) -> impl Iterator<Item = (&'a str, &'a str, i64)> {
        let (counter, key) = self.names();
        let own = self.refunds.iter().filter_map(|refund| refund.own);
        own.map(move |at| (counter, key, at))
    }

    fn own_mut(&mut self) -> impl Iterator<Item = &mut Refund<'a>> {
        self.refunds
            .iter_mut()
            .filter(|refund| refund.own.is_some())
    }

    fn read(&mut self, row: &SqliteRow) -> Result<(), StoreError> {
        self.rows = unsigned(row, 2)?;
        self.page_end = row.try_get(3).map_err(decoding)?;
        Ok(())
    }
}

/// What is to be done to the events.
#[derive(Default)]
struct Changes<'a> {
    /// `[policy, key, at, units]`: what is taken out of events.
    units: Vec<(&'a str, &'a str, i64, u64)>,
    /// `[policy, key, from, to, units]`: by how much the totals of a stretch are lowered.
    totals: Vec<(&'a str, &'a str, i64, i64, u64)>,
    left: Vec<GiveBack>,
}

impl<'a> Changes<'a> {
    /// As many keys as have room in a page, or a page of the first.
    fn of(logs: &[Log<'a>], page: u64) -> Self {
        let mut changes = Self::default();
        let mut rows = 0;
        for log in logs {
            rows += log.rows.max(1);
            if rows > page && rows > log.rows.max(1) {
                changes.leave(&log.refunds);
            } else {
                changes.take(log);
            }
        }
        changes
    }

    fn take(&mut self, log: &Log<'a>) {
        let (counter, key) = log.names();
        let page_end = log.page_end.unwrap_or(i64::MAX);
        let on_page = log.refunds.partition_point(|refund| refund.from < page_end);
        let (now, later) = log.refunds.split_at(on_page);
        let mut lowered = 0;
        for (index, refund) in now.iter().enumerate() {
            let units = refund.lowered();
            if let Some(at) = refund.own
                && units > 0
            {
                self.units.push((counter, key, at, units));
            }
            lowered += units;
            let to = now.get(index + 1).map_or(page_end, |next| next.from);
            if lowered > 0 && refund.from < to {
                self.totals.push((counter, key, refund.from, to, lowered));
            }
        }
        self.leave(later);
        if let (Some(page_end), Some(refund), true) = (log.page_end, now.first(), lowered > 0) {
            self.left.push(GiveBack {
                part: refund.back.part.clone(),
                // Should it be more than that, more is told as used than is.
                units: u32::try_from(lowered).unwrap_or(u32::MAX),
                from: Taken::EventsAfter {
                    at: Timestamp::from_unix_millis(page_end.saturating_sub(1)),
                },
                taken_at: refund.back.taken_at,
            });
        }
    }

    /// Leaves refunds as they are for the next call.
    fn leave(&mut self, refunds: &[Refund<'_>]) {
        self.left.extend(refunds.iter().map(|refund| GiveBack {
            units: u32::try_from(refund.units).unwrap_or(u32::MAX),
            ..refund.back.clone()
        }));
    }
}
