//! The answers to a batch, told from the states that the script has found and from what it has decided.
//!
//! The decisions are made twice, there and here: here for what they tell, and what is told is that of the other stores. Should they
//! differ in one number, nothing is answered.

use super::answer::Numbers;
use super::failure::fault;
use super::plan::{Kind, Plan};
use crate::limit::algorithm::block::Block;
use crate::limit::algorithm::fixed_window::Usage;
use crate::limit::algorithm::sliding_counter::Pair;
use crate::limit::algorithm::sliding_window::Log;
use crate::limit::algorithm::token_bucket::Bucket;
use crate::limit::algorithm::{Found, State};
use crate::limit::few::Few;
use crate::limit::{InForce, Limit, StoredLimit, Timestamp};
use crate::store::engine::{Ahead, Charged, Grant};
use crate::store::{Charge, Outcome, Part, StoreError};

/// What a counter has, as the charges of a batch go by.
enum Kept {
    Window(Usage),
    Pair(Pair),
    Log(Log),
    Bucket(Bucket),
    Block { refused: u64, at: Timestamp },
}

/// What a script has answered to a batch.
pub(super) struct Replay<'p, 'a> {
    plan: &'p Plan<'a>,
    pub(super) now: Timestamp,
    kept: Vec<Kept>,
    /// How many charges of each record were admitted.
    admitted: Vec<u64>,
    granted: Vec<u32>,
    /// The limits that were set at run time, of the key and of all keys.
    limits: Vec<[Option<StoredLimit>; 2]>,
    has_limits: bool,
    /// The record, the part, and when enough has left.
    waits: Vec<(usize, usize, Timestamp)>,
}

/// Modulus of the running totals of events.
const TOTALS: i64 = 1 << 52;

impl<'p, 'a> Replay<'p, 'a> {
    pub(super) fn read(
        plan: &'p Plan<'a>,
        ahead: usize,
        numbers: &mut Numbers,
    ) -> Result<Self, StoreError> {
        let now = numbers.instant()?;
        let mut kept = Vec::with_capacity(plan.parts.len());
        for part in &plan.parts {
            kept.push(Kept::read(part, now, numbers)?);
        }
        let mut admitted = Vec::with_capacity(plan.len());
        for _ in 0..plan.len() {
            admitted.push(numbers.count()?);
        }
        let mut granted = Vec::with_capacity(ahead);
        for _ in 0..ahead {
            granted.push(numbers.units()?);
        }
        let mut limits = Vec::with_capacity(plan.limits.all.len());
        for _ in &plan.limits.all {
            limits.push([limit(numbers)?, limit(numbers)?]);
        }
        let mut waits = Vec::new();
        while numbers.left() > 0 {
            waits.push((numbers.place()?, numbers.place()?, numbers.instant()?));
        }
        Ok(Self {
            plan,
            now,
            kept,
            admitted,
            granted,
            has_limits: limits.iter().flatten().any(Option::is_some),
            limits,
            waits,
        })
    }

    /// The answers to looks.
    pub(super) fn look(&self, looks: &[Charge]) -> Result<Vec<Outcome>, StoreError> {
        let mut answers = Vec::with_capacity(looks.len());
        for (look, record) in looks.iter().zip(&self.plan.places) {
            let limited = self.limited(look);
            let look = limited.as_ref().unwrap_or(look);
            let mut found = look.look(self.now, &self.states(look)?);
            self.tell_waits(*record, &mut found);
            answers.push(Outcome {
                at: self.now,
                found,
            });
        }
        Ok(answers)
    }

    /// The answers to charges, and what was granted ahead.
    pub(super) fn charge(
        mut self,
        charges: &[Charge],
        ahead: &[Ahead],
    ) -> Result<Charged, StoreError> {
        let mut answers = Vec::with_capacity(charges.len());
        let mut admitted = vec![0; self.admitted.len()];
        for (charge, record) in charges.iter().zip(&self.plan.places) {
            let limited = self.limited(charge);
            let charge = limited.as_ref().unwrap_or(charge);
            let mut found = charge.decide(self.now, &self.states(charge)?);
            let is_admitted = found.iter().all(|found| found.fits);
            admitted[*record] += u64::from(is_admitted);
            let units = if is_admitted { charge.cost } else { 0 };
            for (part, found) in charge.parts.iter().zip(found.iter()) {
                if let Some(entry) = self.plan.entry_of(part) {
                    self.kept[entry].store(&found.state, units);
                }
            }
            self.tell_waits(*record, &mut found);
            answers.push(Ok(Outcome {
                at: self.now,
                found,
            }));
        }
        if admitted != self.admitted {
            return Err(fault(
                "a script has decided otherwise than this version does",
            ));
        }
        let grants = self.grants(ahead)?;
        Ok(Charged::of(answers, grants))
    }

    fn grants(&mut self, ahead: &[Ahead]) -> Result<Vec<Grant>, StoreError> {
        let mut grants = Vec::with_capacity(ahead.len());
        for (ahead, units) in ahead.iter().zip(std::mem::take(&mut self.granted)) {
            let part = &ahead.part;
            let Some(entry) = self.plan.entry_of(part) else {
                return Err(fault("what was asked for ahead is not in its batch"));
            };
            let mut state = self.kept[entry].state(part, self.now);
            state.take(units);
            self.kept[entry].store(&state, units);
            grants.push(Grant {
                at: self.now,
                span: part.span(self.now),
                units,
                state,
                in_force: self.in_force(part),
            });
        }
        Ok(grants)
    }

    fn states(&self, charge: &Charge) -> Result<Few<State>, StoreError> {
        let entry = |part: &Part| self.plan.entry_of(part);
        if charge.parts.iter().any(|part| entry(part).is_none()) {
            return Err(fault("a counter is not in its batch"));
        }
        Ok(charge.parts.map(|part| match entry(part) {
            Some(entry) => self.kept[entry].state(part, self.now),
            None => part.unused(self.now),
        }))
    }

    /// The charge under the limits that were set at run time, if any were.
    fn limited(&self, charge: &Charge) -> Option<Charge> {
        if !self.has_limits {
            return None;
        }
        charge.limited(|part| self.in_force(part))
    }

    fn in_force(&self, part: &Part) -> Option<InForce> {
        let place = (&*part.rule.limits, part.key.as_str());
        let [key, all] = self.limits.get(self.plan.limits.of(&place)?)?;
        InForce::of(key.as_ref(), all.as_ref(), part.policy().limit(), self.now)
    }

    fn tell_waits(&self, record: usize, found: &mut Few<Found>) {
        // They are in the order of the records.
        let first = self.waits.partition_point(|(of, ..)| *of < record);
        let of_record = self.waits[first..].iter();
        for (_, part, leaves) in of_record.take_while(|(of, ..)| *of == record) {
            if let Some(found) = found.iter_mut().nth(*part)
                && let (false, State::Log(log)) = (found.fits, &mut found.state)
            {
                log.leaves = Some(*leaves);
            }
        }
    }
}

impl Kept {
    fn read(part: &Part, now: Timestamp, numbers: &mut Numbers) -> Result<Self, StoreError> {
        Ok(match Kind::of(part) {
            Kind::Window | Kind::Month => Self::Window(numbers.usage()?),
            Kind::Pair => {
                let (current, previous) = (numbers.usage()?, numbers.usage()?);
                Self::Pair(Pair { previous, current })
            }
            Kind::Log => {
                let (mut newest, first) = (numbers.event()?, numbers.event()?);
                if let (Some(newest), Some(first)) = (&mut newest, &first)
                    && newest.total < first.total
                {
                    // They have begun anew in between.
                    newest.total += TOTALS;
                }
                Self::Log(Log::of(now, newest, first))
            }
            Kind::Bucket => Self::Bucket(numbers.bucket()?),
            Kind::Block => Self::Block {
                refused: numbers.count()?,
                at: numbers.instant()?,
            },
        })
    }

    fn state(&self, part: &Part, now: Timestamp) -> State {
        let policy = part.policy();
        match self {
            Self::Window(usage) => State::Window(*usage),
            Self::Pair(pair) => State::Pair(*pair),
            Self::Log(log) => State::Log(*log),
            Self::Bucket(bucket) => State::of_bucket(*bucket, policy, now),
            Self::Block { refused, at } => State::Block(Block::as_of(*refused, *at, policy, now)),
        }
    }

    /// Takes in what a charge of so many units has left.
    fn store(&mut self, state: &State, units: u32) {
        match (self, state) {
            (Self::Window(usage), State::Window(after)) => *usage = *after,
            (Self::Pair(pair), State::Pair(after)) => *pair = *after,
            (Self::Log(log), State::Log(after)) if units > 0 => *log = *after,
            // A refusal leaves the bucket as it was: another rate may ask next.
            (Self::Bucket(bucket), State::Bucket(after)) if units > 0 || after.is_moved => {
                *bucket = *after;
            }
            (Self::Block { refused, at }, State::Block(after)) => {
                (*refused, *at) = (after.refused, after.at);
            }
            // A counter's name tells its algorithm, so a place never changes what it keeps.
            _ => {}
        }
    }
}

/// A limit that was set at run time, if one was.
fn limit(numbers: &mut Numbers) -> Result<Option<StoredLimit>, StoreError> {
    let what = numbers.next()?;
    if what == 0 {
        return Ok(None);
    }
    let (units, has_end, end) = (numbers.units()?, numbers.next()?, numbers.instant()?);
    let limit = Limit::of_stored((what == 1).then_some(units));
    Ok(Some(StoredLimit::new(
        None,
        limit,
        (has_end == 1).then_some(end),
    )))
}
