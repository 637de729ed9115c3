//! The decisions of a batch once more, from what the server has found: they make its answers, and must leave what the server has
//! left.

use sqlx::postgres::PgRow;

use super::slots::{Kind, Slots};
use super::waits::Wait;
use crate::limit::algorithm::block::Block;
use crate::limit::algorithm::sliding_counter::Pair;
use crate::limit::algorithm::sliding_window::{Event, Log};
use crate::limit::algorithm::token_bucket::Bucket;
use crate::limit::algorithm::{Found, State};
use crate::limit::few::Few;
use crate::limit::{InForce, StoredLimit, Timestamp};
use crate::store::engine::{Grant, worth_granting};
use crate::store::postgres::rows::{
    Numbers, column, count, fault, instant, number, place, stored_limit, usage,
};
use crate::store::{Charge, Outcome, Part, StoreError};

/// The states of a batch, each as the last charge has left it.
pub(super) struct Replay<'a> {
    pub(super) slots: &'a Slots<'a>,
    pub(super) entries: Vec<Entry>,
    pub(super) waits: Vec<Wait>,
    at: Timestamp,
}

/// The state of a slot.
pub(super) struct Entry {
    pub(super) stored: Stored,
    /// What the server says to have left, where it has charged.
    remains: Option<Numbers>,
    own: Option<StoredLimit>,
    every: Option<StoredLimit>,
}

/// A state as it is stored.
#[derive(Clone, Copy)]
pub(super) enum Stored {
    State(State),
    Log {
        log: Log,
        newest: Option<Event>,
        first: Option<Event>,
        /// What was in force before the batch.
        used_before: u64,
    },
    Bucket(Bucket),
    Block {
        refused: u64,
        at: Timestamp,
    },
}

impl<'a> Replay<'a> {
    pub(super) fn of(
        slots: &'a Slots<'a>,
        rows: &[PgRow],
        at: Timestamp,
    ) -> Result<Self, StoreError> {
        if rows.len() != slots.each.len() {
            return Err(fault("a batch came back with another number of rows"));
        }
        let mut entries: Vec<Option<Entry>> = slots.each.iter().map(|_| None).collect();
        for row in rows {
            let place = place(row, "slot")?.wrapping_sub(1);
            let slot = slots.each.get(place);
            let slot = slot.ok_or_else(|| fault("a row came back that was not asked for"))?;
            entries[place] = Some(Entry::read(row, slot.kind, at)?);
        }
        let entries: Option<Vec<_>> = entries.into_iter().collect();
        Ok(Self {
            slots,
            entries: entries.ok_or_else(|| fault("a row of a batch came back twice"))?,
            waits: Vec::new(),
            at,
        })
    }

    /// The charges under the limits that were set at run time, if any were.
    pub(super) fn limited(&self, charges: &[Charge]) -> Option<Vec<Charge>> {
        let is_set = |entry: &Entry| entry.own.is_some() || entry.every.is_some();
        if !self.entries.iter().any(is_set) {
            return None;
        }
        let charges = charges.iter().zip(&self.slots.places);
        let limited = charges.map(|(charge, places)| {
            let of = |part: &Part| {
                let parts = charge.parts.iter().zip(places.iter());
                let mut own = parts.filter(|(other, _)| *other == part);
                let entry = &self.entries[*own.next()?.1];
                let (own, every) = (entry.own.as_ref(), entry.every.as_ref());
                InForce::of(own, every, part.policy().limit(), self.at)
            };
            charge.limited(of).unwrap_or_else(|| charge.clone())
        });
        Some(limited.collect())
    }

    /// Decides the charges one after another.
    pub(super) fn decide(&mut self, charges: &[Charge]) -> Vec<Outcome> {
        let mut answers = Vec::with_capacity(charges.len());
        for (index, charge) in charges.iter().enumerate() {
            let found = charge.decide(self.at, &self.states(charge, index));
            let is_admitted = found.iter().all(|found| found.fits);
            let units = if is_admitted { charge.cost } else { 0 };
            let places = self.slots.places[index].iter();
            for (place, found) in places.zip(found.iter()) {
                self.entries[*place].stored.take_in(found, units);
            }
            self.note_waits(charge, index, &found);
            answers.push(Outcome { at: self.at, found });
        }
        answers
    }

    pub(super) fn look(&mut self, looks: &[Charge]) -> Vec<Outcome> {
        let mut answers = Vec::with_capacity(looks.len());
        for (index, look) in looks.iter().enumerate() {
            let found = look.look(self.at, &self.states(look, index));
            self.note_waits(look, index, &found);
            answers.push(Outcome { at: self.at, found });
        }
        answers
    }

    /// Grants what is asked for ahead: up to an eighth of what is left, so that other nodes find some too.
    pub(super) fn grant(
        &mut self,
        ahead: &[Charge],
        (charges, answers): (&[Charge], &[Outcome]),
    ) -> Vec<Grant> {
        let fits = |outcome: &Outcome| outcome.found.iter().all(|found| found.fits);
        let worth_it = worth_granting(charges.iter().zip(answers.iter().map(fits)));
        let mut grants = Vec::with_capacity(ahead.len());
        for (index, ask) in ahead.iter().enumerate() {
            let index = charges.len() + index;
            let (part, place) = (ask.parts.first(), *self.slots.places[index].first());
            let mut state = *self.states(ask, index).first();
            let left = match worth_it.get(part) {
                Some(false) => 0,
                _ => state.remaining(part.policy(), self.at),
            };
            let units = ask.cost.min(left / 8);
            if units > 0 {
                state.take(units);
                let found = Found::new(true, state);
                self.entries[place].stored.take_in(&found, units);
            }
            grants.push(Grant {
                at: self.at,
                span: part.span(self.at),
                units,
                state,
                in_force: part.policy().in_force(),
            });
        }
        grants
    }

    /// Whether the server has left the same.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let differs = |entry: &Entry| {
            let remains = entry.remains.as_deref();
            remains.is_some_and(|remains| !entry.stored.is_left(remains))
        };
        if self.entries.iter().any(differs) {
            return Err(fault("the server and the library have decided differently"));
        }
        Ok(())
    }

    fn states(&self, charge: &Charge, index: usize) -> Few<State> {
        let mut places = self.slots.places[index].iter();
        charge.parts.map(|part| match places.next() {
            Some(place) => self.entries[*place].stored.state(part, self.at),
            None => part.unused(self.at),
        })
    }
}

impl Entry {
    fn read(row: &PgRow, kind: Kind, at: Timestamp) -> Result<Self, StoreError> {
        let found: Option<Numbers> = column(row, "found")?;
        let limit = |name| {
            let numbers: Option<Numbers> = column(row, name)?;
            Ok::<_, StoreError>(numbers.map(|numbers| stored_limit(&numbers, None)))
        };
        Ok(Self {
            stored: Stored::of(kind, &found.unwrap_or_default(), at),
            remains: column(row, "remains")?,
            own: limit("own")?,
            every: limit("every")?,
        })
    }
}

impl Stored {
    fn of(kind: Kind, found: &[Option<i64>], now: Timestamp) -> Self {
        match kind {
            Kind::Window => Self::State(State::Window(usage(found, 0))),
            Kind::Pair => Self::State(State::Pair(Pair {
                previous: usage(found, 3),
                current: usage(found, 0),
            })),
            Kind::Log => {
                let event = |place: usize| {
                    Some(Event {
                        at: instant(number(found, place)?),
                        units: count(number(found, place + 1)?),
                        total: number(found, place + 2)?,
                    })
                };
                let (newest, first) = (event(0), event(3));
                let log = Log::of(now, newest, first);
                Self::Log {
                    log,
                    newest,
                    first,
                    used_before: log.used,
                }
            }
            Kind::Bucket | Kind::Block => {
                let at = number(found, 0).map_or(now, instant);
                let of = |place| count(number(found, place).unwrap_or(0));
                if kind == Kind::Block {
                    let refused = of(1);
                    return Self::Block { refused, at };
                }
                Self::Bucket(Bucket {
                    at,
                    used: of(1),
                    parts: of(2),
                    since: number(found, 3).map_or(now, instant),
                    is_moved: false,
                })
            }
        }
    }

    /// What a decision finds.
    fn state(&self, part: &Part, now: Timestamp) -> State {
        match *self {
            Self::State(state) => state,
            Self::Log { log, .. } => State::Log(log),
            Self::Bucket(bucket) => State::of_bucket(bucket, part.policy(), now),
            Self::Block { refused, at } => {
                State::Block(Block::as_of(refused, at, part.policy(), now))
            }
        }
    }

    /// Takes in what a decision has left, when that is stored.
    fn take_in(&mut self, found: &Found, units: u32) {
        match (self, found.state) {
            (Self::State(stored), state) if units > 0 || !found.fits => *stored = state,
            (Self::Log { log, .. }, State::Log(after)) if units > 0 => *log = after,
            (Self::Bucket(bucket), State::Bucket(after)) if units > 0 || after.is_moved => {
                *bucket = after;
            }
            (Self::Block { refused, at }, State::Block(after))
                if *refused != after.refused || (after.refused > 0 && *at != after.at) =>
            {
                (*refused, *at) = (after.refused, after.at);
            }
            // Nothing has changed; and a slot is of the kind of its parts.
            _ => {}
        }
    }

    /// Whether this is what the server says to have left.
    fn is_left(&self, remains: &[Option<i64>]) -> bool {
        let is = |place: usize, mine: u64| number(remains, place).map(count) == Some(mine);
        let is_at = |mine: Timestamp| number(remains, 0).map(instant) == Some(mine);
        match self {
            Self::State(state) => state
                .window()
                .is_some_and(|usage| is(0, usage.used) && is(1, usage.denied)),
            Self::Log { log, .. } => is(0, log.used),
            Self::Bucket(bucket) => is_at(bucket.at) && is(1, bucket.used) && is(2, bucket.parts),
            Self::Block { refused, at } => is(1, *refused) && (*refused == 0 || is_at(*at)),
        }
    }
}
