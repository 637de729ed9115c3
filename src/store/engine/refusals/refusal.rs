//! One counter that is known to be over.

use std::sync::Arc;
use std::time::Duration;

use crate::limit::algorithm::fixed_window::MOST_DENIED;
use crate::limit::algorithm::{Found, State};
use crate::limit::{Timestamp, Verdict};
use crate::store::engine::backend::Attempts;
use crate::store::{Charge, Outcome, Part, Rule};

/// After so long the store is asked again in any case. Who frees something tells of it, but for versions before there were such
/// changes, and people at a shell.
const LONGEST: Duration = Duration::from_secs(5);

/// What a store has said of a counter, until when it says the same, and what was refused meanwhile.
#[derive(Debug)]
pub(super) struct Refusal {
    /// The policy whose limit it was held to.
    rule: Arc<Rule>,
    cost: u32,
    at: Timestamp,
    found: Found,
    until: Timestamp,
    /// What the same charge found elsewhere, where it had room.
    beside: Box<[Beside]>,
    /// Units that were refused from memory, and how many of them were handed over to be counted.
    refused: u64,
    counted: u64,
}

/// What a charge found of a counter that did not refuse it.
#[derive(Debug)]
struct Beside {
    part: Part,
    found: Found,
    until: Timestamp,
}

impl Refusal {
    /// What is known of a part that has refused a charge. `None` when the store must be asked the next time too, since its
    /// refusals are counted: they will block the key.
    pub(super) fn of(
        part: &Part,
        found: &Found,
        charge: &Charge,
        outcome: &Outcome,
    ) -> Option<Self> {
        if part.block().is_some() && found.blocked_until.is_none() {
            return None;
        }
        let at = outcome.at;
        let latest = at.saturating_add(LONGEST);
        let changes_at = |part: &Part, found: &Found| {
            let changes_at = changes_at(part, found, at);
            changes_at.map_or(latest, |changes_at| changes_at.min(latest))
        };
        let key = part.key.clone();
        let wait = Verdict::new(part.policy(), key, charge.cost, at, found).retry_after();
        let until = wait.map_or(latest, |wait| at.saturating_add(wait));
        let until = until.min(changes_at(part, found));
        let others = charge.parts.iter().zip(outcome.found.iter());
        let others = others.filter(|(part, found)| found.fits && !part.is_block());
        let beside = others.map(|(part, found)| Beside {
            part: part.clone(),
            found: *found,
            until: changes_at(part, found),
        });
        (until > at).then(|| Self {
            rule: Arc::clone(&part.rule),
            cost: charge.cost,
            at,
            found: *found,
            until,
            beside: beside.collect(),
            refused: 0,
            counted: 0,
        })
    }

    /// The units of the charge that was refused.
    pub(super) fn cost(&self) -> u32 {
        self.cost
    }

    /// The other counters that it tells of.
    pub(super) fn beside(&self) -> impl Iterator<Item = &Part> {
        self.beside.iter().map(|beside| &beside.part)
    }

    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        // After a step back of the clock the store has another opinion.
        now >= self.until || now < self.at
    }

    /// Whether it refuses a charge of so many units: under the same limit, and not a cheaper one.
    pub(super) fn refuses(&self, part: &Part, cost: u32, now: Timestamp) -> bool {
        // How long a dearer charge waits for events to leave, only the store can tell.
        let is_enough = match self.found.state {
            State::Log(_) => cost == self.cost,
            _ => cost >= self.cost,
        };
        is_enough && !self.is_over(now) && part.is_under(&self.rule)
    }

    /// Counts units that it has refused.
    pub(super) fn refuse(&mut self, cost: u32) {
        self.refused = self.refused.saturating_add(u64::from(cost));
    }

    /// What the store would find of it now.
    pub(super) fn found(&self, now: Timestamp) -> Found {
        let mut found = at(self.found, &self.rule, now);
        if let Some(usage) = found.state.window_mut() {
            usage.denied = usage.denied.saturating_add(self.refused).min(MOST_DENIED);
        }
        found
    }

    /// What it knows of another counter, when that has room for a charge of so many units.
    pub(super) fn found_beside(&self, part: &Part, cost: u32, now: Timestamp) -> Option<Found> {
        let is_told = |beside: &&Beside| now < beside.until && beside.part.is_same(part);
        let beside = self.beside.iter().find(is_told)?;
        let found = at(beside.found, &part.rule, now);
        let policy = part.policy().with_limit(found.in_force);
        found.state.fits(&policy, cost, now).then_some(found)
    }

    /// What was refused since this was last asked, where that is counted.
    pub(super) fn take_attempts(&mut self, part: &Part) -> Option<Attempts> {
        let units = self.refused - self.counted;
        self.counted = self.refused;
        self.attempts(part, units)
    }

    /// What was refused and not handed over yet.
    pub(super) fn uncounted(&self, part: &Part) -> Option<Attempts> {
        self.attempts(part, self.refused - self.counted)
    }

    fn attempts(&self, part: &Part, units: u64) -> Option<Attempts> {
        let epoch = self.found.state.window()?.epoch;
        (units > 0).then(|| Attempts {
            part: part.clone(),
            window_start: part.span(self.at).start,
            epoch,
            units,
        })
    }
}

/// What was found, as of now.
fn at(mut found: Found, rule: &Rule, now: Timestamp) -> Found {
    if let State::Bucket(bucket) = found.state {
        let policy = rule.policy.with_limit(found.in_force);
        found.state = State::of_bucket(bucket, &policy, now);
    }
    found
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
