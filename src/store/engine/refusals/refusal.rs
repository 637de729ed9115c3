//! One charge that is known to be over.

use std::time::Duration;

use crate::limit::algorithm::fixed_window::MOST_DENIED;
use crate::limit::algorithm::{Found, State};
use crate::limit::few::Few;
use crate::limit::{Timestamp, Verdict};
use crate::store::engine::backend::Attempts;
use crate::store::{Charge, Outcome, Part};

/// After so long the store is asked again in any case. Who frees something tells of it, but for versions before there were such
/// changes, and people at a shell.
const LONGEST: Duration = Duration::from_secs(5);

/// What a store has said of a charge, until when it says the same of another one, and what was refused meanwhile.
#[derive(Debug)]
pub(super) struct Refusal {
    parts: Few<Part>,
    cost: u32,
    outcome: Outcome,
    /// Which of the parts refuses.
    place: usize,
    until: Timestamp,
    /// Units that were refused from memory, and how many of them were handed over to be counted.
    refused: u64,
    counted: u64,
}

impl Refusal {
    /// `None` when the store must be asked the next time too: two policies refuse, or the refusals are counted since they will
    /// block the key.
    pub(super) fn of(charge: &Charge, outcome: &Outcome) -> Option<Self> {
        let parts = || charge.parts.iter().zip(outcome.found.iter());
        let mut violated = parts()
            .enumerate()
            .filter(|(_, (part, found))| !found.fits && !part.is_block());
        let (place, (part, found)) = violated.next()?;
        let will_block = part.block().is_some() && found.blocked_until.is_none();
        let may_be_known = charge.parts.iter().all(|part| part.policy().is_leased());
        if violated.next().is_some() || will_block || !may_be_known || charge.is_forced {
            return None;
        }
        let at = outcome.at;
        let key = part.key.clone();
        let wait = Verdict::new(part.policy(), key, charge.cost, at, found).retry_after();
        let until = at.saturating_add(wait.unwrap_or(LONGEST).min(LONGEST));
        let until = parts()
            .filter_map(|(part, found)| changes_at(part, found, at))
            .fold(until, Timestamp::min);
        (until > at).then(|| Self {
            parts: charge.parts.clone(),
            cost: charge.cost,
            outcome: outcome.clone(),
            place,
            until,
            refused: 0,
            counted: 0,
        })
    }

    /// The part that refuses.
    pub(super) fn part(&self) -> &Part {
        self.parts.get_or_first(self.place)
    }

    /// All parts that it is about.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter()
    }

    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        // After a step back of the clock the store has another opinion.
        now >= self.until || now < self.outcome.at
    }

    /// Refuses a charge, if it is known to be over.
    pub(super) fn refuse(&mut self, charge: &Charge, now: Timestamp) -> Option<Outcome> {
        if self.is_over(now) || !self.is_about(charge) {
            return None;
        }
        self.refused = self.refused.saturating_add(u64::from(charge.cost));
        let mut found = self.outcome.found.clone();
        for (place, (part, found)) in self.parts.iter().zip(found.iter_mut()).enumerate() {
            if place == self.place
                && let Some(usage) = found.state.window_mut()
            {
                usage.denied = usage.denied.saturating_add(self.refused).min(MOST_DENIED);
            }
            if let State::Bucket(bucket) = found.state {
                let policy = part.policy().with_limit(found.in_force);
                found.state = State::of_bucket(bucket, &policy, now);
            }
        }
        Some(Outcome { at: now, found })
    }

    /// Whether the same is true of a charge: of the same counters under the same limits, and not cheaper.
    fn is_about(&self, charge: &Charge) -> bool {
        let is_same = |(own, other): (&Part, &Part)| own.is_same(other);
        let is_simple = self.parts.only().is_some()
            && !matches!(self.outcome.found.first().state, State::Log(_));
        // Otherwise what else it finds, and how long it waits, hangs on its cost.
        let is_enough = charge.cost == self.cost || (is_simple && charge.cost > self.cost);
        is_enough
            && !charge.is_forced
            && self.parts.len() == charge.parts.len()
            && self.parts.iter().zip(charge.parts.iter()).all(is_same)
    }

    /// What was refused since this was last asked, where that is counted.
    pub(super) fn take_attempts(&mut self) -> Option<Attempts> {
        let units = self.refused - self.counted;
        self.counted = self.refused;
        self.attempts(units)
    }

    /// What was refused and not handed over yet.
    pub(super) fn uncounted(&self) -> Option<Attempts> {
        self.attempts(self.refused - self.counted)
    }

    fn attempts(&self, units: u64) -> Option<Attempts> {
        let found = self.outcome.found.get_or_first(self.place);
        let epoch = found.state.window()?.epoch;
        (units > 0).then(|| Attempts {
            part: self.part().clone(),
            window_start: self.part().span(self.outcome.at).start,
            epoch,
            units,
        })
    }
}

/// When something of what a part has found is not so any more, whoever asks.
fn changes_at(part: &Part, found: &Found, at: Timestamp) -> Option<Timestamp> {
    let of_state = match found.state {
        State::Window(_) | State::Pair(_) => Some(part.span(at).end),
        State::Log(log) => {
            let first = log.first.map(|(first, _)| first);
            first.map(|first| first.saturating_add(part.policy().period()))
        }
        State::Bucket(_) | State::Block(_) => None,
    };
    let of_limit = found.in_force.and_then(|in_force| in_force.until);
    let changes = [
        of_state,
        of_limit.map(|until| until.at),
        found.blocked_until,
    ];
    changes.into_iter().flatten().min()
}
