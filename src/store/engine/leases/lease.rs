//! What one key has leased.

use std::time::Duration;

use crate::limit::algorithm::fixed_window::Usage;
use crate::limit::algorithm::sliding_counter::Pair;
use crate::limit::algorithm::{Found, Span, State, Taken};
use crate::limit::{InForce, Timestamp};
use crate::store::engine::backend::{Ahead, Grant};
use crate::store::{GiveBack, Part};

/// A quarter of a second of what one key can ask for on one machine.
const MOST_AHEAD: u32 = 1 << 20;
/// A lease that was used up so soon was much too small, or too small; one that lasted so long was too large.
const AT_ONCE: Duration = Duration::from_millis(250);
const SOON: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(8);
/// What is asked for first, when the second charge comes at once.
const FIRST_AHEAD: u32 = 4;

/// What was taken for a key, and how much of it is left.
pub(super) struct Lease {
    /// That of the policy which asks.
    pub(super) limit: u32,
    /// What was set at run time in its place, at the last grant.
    pub(super) in_force: Option<InForce>,
    pub(super) span: Span,
    /// The counter after the last grant, with all that is left of the lease counted as used.
    pub(super) usage: Usage,
    /// Of a sliding counter that of the window before, which counts too. Most keys have none, and there are many keys.
    pub(super) before: Option<Box<Usage>>,
    pub(super) left: u32,
    /// Whether the backend has ever told what the counter has.
    pub(super) was_granted: bool,
    /// The last grant. When half of it is spent the next one is asked for.
    pub(super) granted: u32,
    /// How much to ask for next.
    pub(super) ahead: u32,
    /// When the last grant was asked for, and when it was taken.
    pub(super) asked_at: Timestamp,
    pub(super) taken_at: Timestamp,
    pub(super) spent_at: Timestamp,
    pub(super) more: More,
}

/// Whether more is to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum More {
    No,
    /// It is in the queue.
    Wanted,
    /// It is with the backend. There is never more than one such for a key.
    Asked,
}

impl Lease {
    pub(super) fn new(part: &Part, now: Timestamp) -> Self {
        Self {
            limit: part.policy().limit(),
            in_force: None,
            span: part.span(now),
            usage: Usage::default(),
            before: None,
            left: 0,
            was_granted: false,
            granted: 0,
            ahead: 0,
            asked_at: now,
            taken_at: now,
            spent_at: now,
            more: More::No,
        }
    }

    /// Whether a charge can be spent from it.
    pub(super) fn covers(&self, limit: u32, cost: u32, now: Timestamp) -> bool {
        self.left >= cost && self.is_in_force(limit, now)
    }

    /// Spends units that it covers, and says whether it is time to ask for more.
    pub(super) fn spend(&mut self, cost: u32, now: Timestamp) -> bool {
        self.left -= cost;
        self.spent_at = now;
        let is_time = self.more == More::No && self.is_half_empty();
        if is_time {
            self.more = More::Wanted;
        }
        is_time
    }

    pub(super) fn is_half_empty(&self) -> bool {
        self.left < self.granted / 2
    }

    /// What the counter has, without the units that are not spent.
    pub(super) fn state(&self) -> State {
        let mut usage = self.usage;
        usage.used = usage.used.saturating_sub(u64::from(self.left));
        state_of(self.before.as_deref(), usage)
    }

    /// What a charge has found that was spent from it.
    pub(super) fn found(&self) -> Found {
        Found {
            in_force: self.in_force,
            ..Found::new(true, self.state())
        }
    }

    /// How much the counter had left when the backend was asked last.
    pub(super) fn room(&self, part: &Part, now: Timestamp) -> u32 {
        let policy = part.policy().with_limit(self.in_force);
        state_of(self.before.as_deref(), self.usage).remaining(&policy, now)
    }

    /// Only in its own window, and not before it was taken: a clock that has stepped back would spend it in the past. And only as
    /// long as the limit that it was taken under.
    fn is_in_force(&self, limit: u32, now: Timestamp) -> bool {
        let has_ended = || {
            let until = self.in_force.and_then(|in_force| in_force.until);
            until.is_some_and(|until| until.at <= now)
        };
        self.limit == limit && self.taken_at <= now && now < self.span.end && !has_ended()
    }

    /// Whether units of the lease came from there.
    pub(super) fn is_of(&self, from: Taken) -> bool {
        // One that nothing was granted to is of nothing.
        let start = self.span.start;
        self.was_granted
            && from
                == Taken::Window {
                    start,
                    epoch: self.usage.epoch,
                }
    }

    pub(super) fn give_back(&mut self, part: &Part) -> Option<GiveBack> {
        let units = std::mem::take(&mut self.left);
        (units > 0).then(|| GiveBack {
            part: part.clone(),
            units,
            taken_at: self.taken_at,
            from: Taken::Window {
                start: self.span.start,
                epoch: self.usage.epoch,
            },
        })
    }

    /// Asks for as much as some seconds need. It grows fast while it is much too small: each ask that is too small costs the
    /// database as much as one that is not.
    pub(super) fn ask(&mut self, part: &Part, now: Timestamp) -> Option<Ahead> {
        let lasted = now.saturating_duration_since(self.asked_at);
        let is_at_once = lasted <= AT_ONCE;
        if lasted > LONG {
            self.ahead /= 2;
        } else if self.ahead == 0 && lasted <= SOON {
            self.ahead = if is_at_once { FIRST_AHEAD } else { 1 };
        } else if self.granted > 0 && lasted <= SOON {
            // As long as nothing was granted there is nothing that is too small.
            let times = if is_at_once { 4 } else { 2 };
            self.ahead = self.ahead.saturating_mul(times).min(MOST_AHEAD);
        }
        self.asked_at = now;
        let units = self.ahead;
        self.more = if units > 0 { More::Asked } else { More::No };
        (units > 0).then(|| Ahead {
            part: part.clone(),
            units,
        })
    }
}

impl Grant {
    /// All of it, for nobody who could spend it.
    pub(super) fn give_back(&self, part: &Part) -> Option<GiveBack> {
        (self.units > 0).then(|| GiveBack {
            part: part.clone(),
            units: self.units,
            taken_at: self.at,
            from: self.state.taken(part.policy(), self.at),
        })
    }
}

fn state_of(before: Option<&Usage>, current: Usage) -> State {
    match before {
        None => State::Window(current),
        Some(&previous) => State::Pair(Pair { previous, current }),
    }
}
