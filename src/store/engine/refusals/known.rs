//! What is known of one counter.

use std::sync::Arc;
use std::time::Duration;

use crate::limit::algorithm::fixed_window::MOST_DENIED;
use crate::limit::algorithm::{Found, State};
use crate::limit::{Timestamp, Verdict};
use crate::store::engine::backend::Attempts;
use crate::store::{Part, Rule};

/// After so long the store is asked again in any case. Who frees something tells of it, but for versions before there were such
/// changes, and people at a shell.
const LONGEST: Duration = Duration::from_secs(5);
/// How long a dearer charge waits for events to leave, only the store can tell. So many costs are remembered for each log.
const MOST_COSTS: usize = 4;

/// What a store has said of a counter, until when it says the same, and what was refused meanwhile.
#[derive(Debug)]
pub(super) struct Known {
    /// The policy whose limit it was held to.
    rule: Arc<Rule>,
    /// Refusals, of a log one for each cost, and room that a charge has found which another policy refused.
    answers: Vec<Answer>,
    /// Units that were refused from memory, and how many of them were handed over to be counted.
    refused: u64,
    counted: u64,
}

/// What a charge has found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    cost: u32,
    at: Timestamp,
    found: Found,
    until: Timestamp,
}

impl Answer {
    /// What a part has said of a charge. `None` when the store must be asked the next time too, since refusals are counted: they will
    /// block the key.
    pub(super) fn of(part: &Part, cost: u32, at: Timestamp, found: &Found) -> Option<Self> {
        if !found.fits && part.block().is_some() && found.blocked_until.is_none() {
            return None;
        }
        let latest = at.saturating_add(LONGEST);
        let key = part.key.clone();
        let wait = Verdict::new(part.policy(), key, cost, at, found).retry_after();
        let fits_at = wait.map(|wait| at.saturating_add(wait));
        let ends = [fits_at, changes_at(part, found, at)];
        let until = ends.into_iter().flatten().fold(latest, Timestamp::min);
        (until > at).then_some(Self {
            cost,
            at,
            found: *found,
            until,
        })
    }

    pub(super) fn fits(&self) -> bool {
        self.found.fits
    }

    fn is_over(&self, now: Timestamp) -> bool {
        // After a step back of the clock the store has another opinion.
        now >= self.until || now < self.at
    }

    fn is_of_log(&self) -> bool {
        matches!(self.found.state, State::Log(_))
    }

    /// Whether it refuses a charge of so many units: not a cheaper one.
    fn refuses(&self, cost: u32) -> bool {
        let is_enough = if self.is_of_log() {
            cost == self.cost
        } else {
            cost >= self.cost
        };
        !self.found.fits && is_enough
    }

    /// What was found, as of now.
    fn found(&self, rule: &Rule, now: Timestamp) -> Found {
        let mut found = self.found;
        if let State::Bucket(bucket) = found.state {
            let policy = rule.policy.with_limit(found.in_force);
            found.state = State::of_bucket(bucket, &policy, now);
        }
        found
    }
}

impl Known {
    pub(super) fn new(part: &Part, answer: Answer) -> Self {
        Self {
            rule: Arc::clone(&part.rule),
            // Most have one.
            answers: Vec::from([answer]),
            refused: 0,
            counted: 0,
        }
    }

    /// Takes in what the store has said now, with what was refused since and handed over.
    pub(super) fn note(&mut self, part: &Part, mut answer: Answer) {
        if !part.is_under(&self.rule) {
            self.rule = Arc::clone(&part.rule);
            self.answers.clear();
        }
        self.answers.retain(|known| !known.is_over(answer.at));
        if answer.fits() {
            self.answers
                .retain(|known| !known.fits() && known.cost > answer.cost);
        } else if answer.is_of_log() {
            self.answers
                .retain(|known| known.fits() || known.cost != answer.cost);
            if self.answers.len() >= MOST_COSTS {
                self.answers.remove(0);
            }
        } else {
            // What was refused for a cheaper charge is as true as it was.
            let before = self.answers.iter().find(|known| !known.fits());
            if let Some(before) = before.filter(|before| before.cost < answer.cost) {
                answer.cost = before.cost;
                answer.until = before.until.min(answer.until);
            }
            self.answers.retain(Answer::fits);
            (self.refused, self.counted) = (0, 0);
        }
        self.answers.reserve_exact(1);
        self.answers.push(answer);
    }

    /// Forgets the room that was found: somebody has used some of it.
    pub(super) fn forget_room(&mut self) {
        self.answers.retain(|known| !known.fits());
    }

    pub(super) fn has_room(&self) -> bool {
        self.answers.iter().any(Answer::fits)
    }

    /// Whether nothing is known any more.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.answers.iter().all(|known| known.is_over(now))
    }

    /// Whether it has refused a charge of so many units, or of fewer.
    pub(super) fn has_refused(&self, cost: u32) -> bool {
        let mut answers = self.answers.iter();
        answers.any(|known| !known.fits() && known.cost <= cost)
    }

    /// What the store would find now, as far as that is known.
    pub(super) fn find(&self, part: &Part, cost: u32, now: Timestamp) -> Option<Found> {
        if !part.is_under(&self.rule) {
            return None;
        }
        let answers = || self.answers.iter().filter(|known| !known.is_over(now));
        if let Some(refusal) = answers().find(|known| known.refuses(cost)) {
            let mut found = refusal.found(&self.rule, now);
            if let Some(usage) = found.state.window_mut() {
                usage.denied = usage.denied.saturating_add(self.refused).min(MOST_DENIED);
            }
            return Some(found);
        }
        let room = answers().find(|known| known.fits())?;
        let found = room.found(&self.rule, now);
        let policy = part.policy().with_limit(found.in_force);
        found.state.fits(&policy, cost, now).then_some(found)
    }

    /// Refuses a charge, if it is known to be over, and says what it has found.
    pub(super) fn refuse(&mut self, part: &Part, cost: u32, now: Timestamp) -> Option<Found> {
        let mut found = self.find(part, cost, now).filter(|found| !found.fits)?;
        self.refused = self.refused.saturating_add(u64::from(cost));
        found.state.refuse(cost);
        Some(found)
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
        let refusal = self.answers.iter().find(|known| !known.fits())?;
        let epoch = refusal.found.state.window()?.epoch;
        (units > 0).then(|| Attempts {
            part: part.clone(),
            window_start: part.span(refusal.at).start,
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
