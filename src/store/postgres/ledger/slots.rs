//! What the server is told of a batch: its slots, and the charges on them.

use std::collections::HashMap;

use crate::limit::Algorithm;
use crate::limit::few::Few;
use crate::limit::timestamp::millis;
use crate::store::postgres::database::Call;
use crate::store::postgres::spans;
use crate::store::postgres::statements::Statements;
use crate::store::{Charge, Part};

/// How the state of a slot is stored, by the numbers that the functions of the server have for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Window = 0,
    Pair = 1,
    Log = 2,
    Bucket = 3,
    Block = 4,
}

impl Kind {
    fn of(part: &Part) -> Self {
        match part.policy().algorithm() {
            _ if part.is_block() => Self::Block,
            Algorithm::SlidingCounter => Self::Pair,
            Algorithm::SlidingWindow => Self::Log,
            Algorithm::TokenBucket => Self::Bucket,
            _ => Self::Window,
        }
    }
}

/// A counter of a key.
pub(super) struct Slot<'a> {
    /// A part of one of its charges, for what all of them share.
    pub(super) like: &'a Part,
    pub(super) kind: Kind,
}

/// The counters of a batch, each once, in the order of their locks; and the parts of its charges.
pub(super) struct Slots<'a> {
    pub(super) each: Vec<Slot<'a>>,
    /// For each charge where the states of its parts are.
    pub(super) places: Vec<Few<usize>>,
    /// So many are charges; what is asked for ahead stands behind them.
    charges: usize,
    asks: &'a [Charge],
}

impl<'a> Slots<'a> {
    pub(super) fn of(asks: &'a [Charge], charges: usize) -> Self {
        let parts = || asks.iter().flat_map(|charge| charge.parts.iter());
        let mut slots: Vec<_> = {
            let unique: HashMap<_, _> = parts().map(|part| (names(part), part)).collect();
            unique.into_iter().collect()
        };
        slots.sort_unstable_by_key(|(names, _)| *names);
        let place_of: HashMap<_, _> = slots
            .iter()
            .enumerate()
            .map(|(place, (names, _))| (*names, place))
            .collect();
        let place = |part: &Part| place_of.get(&names(part)).copied().unwrap_or(0);
        let places = asks.iter().map(|charge| charge.parts.map(place)).collect();
        let slot = |(_, like): (_, &'a Part)| Slot {
            like,
            kind: Kind::of(like),
        };
        Self {
            each: slots.into_iter().map(slot).collect(),
            places,
            charges,
            asks,
        }
    }

    /// The call that charges.
    pub(super) fn charge(
        &self,
        statements: &Statements,
        given: Option<i64>,
        shift: i64,
    ) -> Call<'a> {
        let parts = Parts::of(self);
        let lasts = self.numbers(|slot| spans::lasts(slot.like.policy()));
        let call = sqlx::query(statements.charge.sql()).bind(given).bind(shift);
        self.bound(call)
            .bind(lasts)
            .bind(number(self.charges))
            .bind(parts.firsts)
            .bind(parts.costs)
            .bind(parts.forced)
            .bind(parts.slots)
            .bind(parts.limits)
            .bind(parts.rates)
            .bind(parts.kin)
            .bind(parts.afters)
            .bind(parts.blocks)
            .bind(parts.windows)
    }

    /// The call that looks.
    pub(super) fn read(&self, statements: &Statements, given: Option<i64>, shift: i64) -> Call<'a> {
        self.bound(sqlx::query(statements.read.sql()).bind(given).bind(shift))
    }

    fn bound(&self, call: Call<'a>) -> Call<'a> {
        let texts = |of: fn(&'a Part) -> &'a str| -> Vec<&'a str> {
            self.each.iter().map(|slot| of(slot.like)).collect()
        };
        let kinds: Vec<i32> = self.each.iter().map(|slot| slot.kind as i32).collect();
        call.bind(kinds)
            .bind(texts(|part| &part.rule.counter))
            .bind(texts(|part| part.key.as_str()))
            .bind(texts(|part| &part.rule.limits))
            .bind(self.numbers(|slot| spans::period(slot.like.policy())))
    }

    fn numbers(&self, of: impl Fn(&Slot<'_>) -> i64) -> Vec<i64> {
        self.each.iter().map(of).collect()
    }
}

/// What a slot is found by. The server sorts by the bytes of these, as this does.
fn names(part: &Part) -> (&str, &str) {
    (&part.rule.counter, part.key.as_str())
}

/// Numbers that the server counts from 1.
fn number(place: usize) -> i32 {
    i32::try_from(place).unwrap_or(i32::MAX)
}

/// The parts of all charges, one behind the other, a column each.
#[derive(Default)]
struct Parts {
    /// Where each charge begins, and behind the last one the end.
    firsts: Vec<i32>,
    costs: Vec<i64>,
    forced: Vec<bool>,
    slots: Vec<i32>,
    limits: Vec<i64>,
    rates: Vec<i64>,
    /// Of each charge with blocks, parts of one policy have the same number.
    kin: Vec<i32>,
    afters: Vec<i64>,
    blocks: Vec<i64>,
    windows: Vec<i64>,
}

impl Parts {
    fn of(slots: &Slots<'_>) -> Self {
        let mut parts = Self::default();
        for (charge, places) in slots.asks.iter().zip(&slots.places) {
            parts.firsts.push(number(parts.slots.len() + 1));
            parts.costs.push(i64::from(charge.cost));
            parts.forced.push(charge.is_forced);
            let has_blocks = charge.parts.iter().any(Part::is_block);
            for (part, place) in charge.parts.iter().zip(places.iter()) {
                parts.push(part, *place);
                let kin = charge
                    .parts
                    .iter()
                    .position(|other| other.policy() == part.policy());
                let kin = kin.filter(|_| has_blocks).map_or(0, |kin| number(kin + 1));
                parts.kin.push(kin);
            }
        }
        parts.firsts.push(number(parts.slots.len() + 1));
        parts
    }

    fn push(&mut self, part: &Part, place: usize) {
        let policy = part.policy();
        let blocking = policy.blocking().filter(|_| part.is_block());
        self.slots.push(number(place + 1));
        self.limits.push(i64::from(policy.limit()));
        self.rates.push(i64::from(policy.own_rate()));
        self.afters
            .push(blocking.map_or(0, |blocking| i64::from(blocking.after)));
        self.blocks
            .push(blocking.map_or(0, |blocking| millis(blocking.lasts)));
        self.windows.push(millis(policy.window()));
    }
}
