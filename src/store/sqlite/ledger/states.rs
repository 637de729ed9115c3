//! The states of a batch, from reading to writing.

use std::collections::HashMap;
use std::hash::Hash;

use super::Cap;
use super::waits::Wait;
use crate::limit::Timestamp;
use crate::limit::algorithm::fixed_window::Usage;
use crate::limit::algorithm::sliding_counter::Pair;
use crate::limit::algorithm::{Found, Span, State};
use crate::limit::few::Few;
use crate::store::sqlite::Database;
use crate::store::sqlite::room::Hold;
use crate::store::sqlite::tables::{buckets, events, json, limits, unsigned, windows};
use crate::store::{Charge, Outcome, Part, StoreError};

/// The states of one table, each once.
pub(super) struct Slots<K, V> {
    pub(super) places: HashMap<K, usize>,
    pub(super) entries: Vec<V>,
}

impl<K: Eq + Hash, V> Slots<K, V> {
    fn new() -> Self {
        Self {
            places: HashMap::new(),
            entries: Vec::new(),
        }
    }

    fn place(&mut self, key: K, entry: impl FnOnce() -> V) -> usize {
        let entries = &mut self.entries;
        *self.places.entry(key).or_insert_with(|| {
            entries.push(entry());
            entries.len() - 1
        })
    }
}

/// Where the state of a part is.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Window(usize),
    Pair {
        previous: usize,
        current: usize,
    },
    Log(usize),
    Bucket(usize),
    /// In the table of the buckets.
    Block(usize),
}

/// The states of a batch, from reading to writing.
pub(super) struct Ledger<'a> {
    pub(super) now: Timestamp,
    pub(super) windows: Slots<(&'a str, &'a str, i64), windows::Entry<'a>>,
    pub(super) events: Slots<(&'a str, &'a str), events::Entry<'a>>,
    pub(super) buckets: Slots<(&'a str, &'a str), buckets::Entry<'a>>,
    pub(super) limits: Slots<(&'a str, &'a str), limits::Entry<'a>>,
    /// For each charge where the states of its parts are.
    pub(super) places: Vec<Few<Place>>,
    pub(super) waits: Vec<Wait>,
    pub(super) new_rows: u64,
    /// Whether a charge found no room for its rows.
    pub(super) is_short: bool,
}

impl<'a> Ledger<'a> {
    pub(super) fn of(charges: &'a [Charge], now: Timestamp) -> Self {
        let mut ledger = Self {
            now,
            windows: Slots::new(),
            events: Slots::new(),
            buckets: Slots::new(),
            limits: Slots::new(),
            places: Vec::with_capacity(charges.len()),
            waits: Vec::new(),
            new_rows: 0,
            is_short: false,
        };
        for charge in charges {
            let places = charge.parts.map(|part| ledger.place(part));
            ledger.places.push(places);
        }
        ledger
    }

    fn place(&mut self, part: &'a Part) -> Place {
        let now = self.now;
        let key = (&*part.rule.counter, part.key.as_str());
        let limits_key = (&*part.rule.limits, part.key.as_str());
        self.limits.place(limits_key, || limits::Entry::new(part));
        match part.unused(now) {
            State::Window(_) => Place::Window(self.window(part, part.span(now))),
            State::Pair(_) => Place::Pair {
                previous: self.window(part, part.span_before(now)),
                current: self.window(part, part.span(now)),
            },
            State::Log(_) => {
                let entry = || events::Entry::new(part, now);
                Place::Log(self.events.place(key, entry))
            }
            State::Bucket(_) => Place::Bucket(self.bucket(part)),
            State::Block(_) => Place::Block(self.bucket(part)),
        }
    }

    fn bucket(&mut self, part: &'a Part) -> usize {
        let key = (&*part.rule.counter, part.key.as_str());
        self.buckets
            .place(key, || buckets::Entry::new(part, self.now))
    }

    fn window(&mut self, part: &'a Part, span: Span) -> usize {
        let start = span.start.unix_millis();
        let key = (&*part.rule.counter, part.key.as_str(), start);
        self.windows.place(key, || windows::Entry {
            part,
            start,
            expires_at: part.policy().expires_at(span).unix_millis(),
            usage: Usage::default(),
            last_cost: 0,
            exists: false,
            is_changed: false,
        })
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    pub(super) fn states(&self, charge: &Charge, index: usize) -> Few<State> {
        let unused = |part: &Part| part.unused(self.now);
        match self.places.get(index) {
            Some(places) => {
                let mut places = places.iter();
                charge.parts.map(|part| match places.next() {
                    Some(place) => self.state(part, *place),
                    None => unused(part),
                })
            }
            None => charge.parts.map(unused),
        }
    }

    fn state(&self, part: &Part, place: Place) -> State {
        let usage = |index: usize| self.windows.entries[index].usage;
        match place {
            Place::Window(index) => State::Window(usage(index)),
            Place::Pair { previous, current } => State::Pair(Pair {
                previous: usage(previous),
                current: usage(current),
            }),
            Place::Log(index) => State::Log(self.events.entries[index].log),
            Place::Bucket(index) | Place::Block(index) => {
                self.buckets.entries[index].state(part, self.now)
            }
        }
    }

    /// Which of the charges have all the rows that they would write to.
    pub(super) fn known(&self) -> Vec<bool> {
        let is_known = |places: &Few<Place>| places.iter().all(|place| self.exists(*place));
        self.places.iter().map(is_known).collect()
    }

    /// Whether there is a row for what the place would store next.
    pub(super) fn exists(&self, place: Place) -> bool {
        match place {
            Place::Window(index) | Place::Pair { current: index, .. } => {
                self.windows.entries[index].exists
            }
            Place::Log(index) => self.events.entries[index].has_row(),
            Place::Bucket(index) | Place::Block(index) => self.buckets.entries[index].exists,
        }
    }

    /// Decides the charges one after another.
    pub(super) fn decide(&mut self, charges: &'a [Charge], cap: Option<Cap>) -> Answers {
        let mut answers = Vec::with_capacity(charges.len());
        for (index, charge) in charges.iter().enumerate() {
            let states = self.states(charge, index);
            let found = charge.decide(self.now, &states);
            let new = self.new_rows_of(index, &found);
            let is_admitted = found.iter().all(|found| found.fits);
            if cap.is_some_and(|cap| self.new_rows + new > cap.rows_left) {
                // A refusal is an answer also when there is no room to count it.
                let at = self.now;
                answers.push(if is_admitted {
                    self.is_short = true;
                    Err(StoreError::Full)
                } else {
                    Ok(Outcome { at, found })
                });
                continue;
            }
            self.new_rows += new;
            let places = self.places[index].clone();
            for ((part, place), found) in charge.parts.iter().zip(places.iter()).zip(found.iter()) {
                let units = if is_admitted { charge.cost } else { 0 };
                self.apply(part, *place, found, units, charge.cost, cap.is_some());
            }
            self.note_waits(charge, index, &found);
            answers.push(Ok(Outcome {
                at: self.now,
                found,
            }));
        }
        answers
    }

    /// How many rows a charge adds.
    fn new_rows_of(&self, index: usize, found: &Few<Found>) -> u64 {
        let is_admitted = found.iter().all(|found| found.fits);
        let places = self.places[index].iter().zip(found.iter());
        let new = places.filter(|(place, found)| {
            let is_stored = match found.state {
                State::Block(block) => block.refused > 0,
                state => is_admitted || (!found.fits && state.counts_refusals()),
            };
            is_stored && !self.exists(**place)
        });
        new.count() as u64
    }

    pub(super) fn apply(
        &mut self,
        part: &'a Part,
        place: Place,
        found: &Found,
        units: u32,
        cost: u32,
        is_capped: bool,
    ) {
        let hold = Hold::of(&found.state, found.fits, part.policy(), self.now);
        match (place, found.state) {
            (Place::Window(index), State::Window(usage))
            | (Place::Pair { current: index, .. }, State::Pair(Pair { current: usage, .. })) => {
                let entry = &mut self.windows.entries[index];
                if units > 0 || !found.fits {
                    entry.part = part;
                    entry.usage = usage;
                    entry.last_cost = cost;
                    entry.exists = true;
                    entry.is_changed = true;
                }
            }
            (Place::Log(index), State::Log(log)) => {
                let entry = &mut self.events.entries[index];
                entry.part = part;
                if units > 0 {
                    entry.log = log;
                    entry.units += u64::from(units);
                    entry.hold = hold.rank();
                } else if is_capped && !found.fits && (entry.exists() || entry.units > 0) {
                    entry.is_held |= entry.hold != hold.rank();
                    entry.hold = hold.rank();
                }
            }
            (Place::Bucket(index), State::Bucket(bucket)) => {
                let entry = &mut self.buckets.entries[index];
                if units > 0 || bucket.is_moved {
                    entry.part = part;
                    entry.bucket = bucket;
                    entry.hold = hold.rank();
                    entry.exists = true;
                    entry.is_changed = true;
                } else if is_capped && !found.fits && entry.exists {
                    entry.part = part;
                    entry.is_changed |= entry.hold != hold.rank();
                    entry.hold = hold.rank();
                }
            }
            (Place::Block(index), State::Block(block)) => {
                let entry = &mut self.buckets.entries[index];
                if entry.set_block(&block) {
                    entry.part = part;
                    entry.hold = match block.refused {
                        0 => Hold::OneUnit.rank(),
                        _ => Hold::Refused.rank(),
                    };
                    entry.exists = true;
                    entry.is_changed = true;
                }
            }
            // A place is made for the algorithm of its part.
            _ => {}
        }
    }

    /// Writes what has changed and commits. Says how many rows that deleted.
    pub(super) async fn write(&self, database: &mut Database) -> Result<u64, StoreError> {
        let windows = self.windows.entries.iter().filter(|entry| entry.is_changed);
        let windows: Vec<_> = windows.map(windows::Entry::row).collect();
        let events = self
            .events
            .entries
            .iter()
            .filter(|entry| entry.is_changed());
        let trims: Vec<_> = events.clone().filter_map(events::Entry::trim).collect();
        let events: Vec<_> = events.map(events::Entry::row).collect();
        let buckets = self.buckets.entries.iter().filter(|entry| entry.is_changed);
        let buckets: Vec<_> = buckets.map(buckets::Entry::row).collect();
        if windows.is_empty() && events.is_empty() && buckets.is_empty() {
            database.end(sqlx::query(super::COMMIT)).await?;
            return Ok(0);
        }
        let query = sqlx::query(&**super::WRITE)
            .bind(json(&windows)?)
            .bind(json(&events)?)
            .bind(json(&trims)?)
            .bind(json(&buckets)?);
        let rows = database.end(query).await?;
        rows.first().map_or(Ok(0), |row| unsigned(row, 0))
    }
}

/// An answer for each charge, in its place.
pub(super) type Answers = Vec<Result<Outcome, StoreError>>;
/// A statement with what it takes.
pub(super) type Bound = sqlx::query::Query<'static, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>;
