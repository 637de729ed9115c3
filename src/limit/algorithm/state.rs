//! What a key has used under a policy, and what follows from it for a charge.

use std::time::Duration;

use super::LONGEST_WAY;
use super::block::Block;
use super::fixed_window::Usage;
use super::sliding_counter::{Moment, Pair};
use super::sliding_window::Log;
use super::taken::Taken;
use super::token_bucket::{Bucket, Rate};
use crate::limit::timestamp::millis;
use crate::limit::{Algorithm, Policy, Timestamp};

/// What a key has used under a policy, as of the instant of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Of fixed windows and calendar quotas.
    Window(Usage),
    /// Of the sliding counter.
    Pair(Pair),
    /// Of the exact sliding window.
    Log(Log),
    /// Of the token bucket.
    Bucket(Bucket),
    /// Of the refusals that block a key. It stands beside the state of its policy.
    Block(Block),
}

impl State {
    /// The state of a key that was never seen.
    pub(crate) fn unused(policy: &Policy, now: Timestamp) -> Self {
        match policy.algorithm() {
            Algorithm::SlidingCounter => Self::Pair(Pair::default()),
            Algorithm::SlidingWindow => Self::Log(Log::of(now, None, None)),
            Algorithm::TokenBucket => Self::Bucket(Bucket::full(now)),
            _ => Self::Window(Usage::default()),
        }
    }

    pub(crate) fn is_block(&self) -> bool {
        matches!(self, Self::Block(_))
    }

    /// That of a bucket which was stored.
    pub(crate) fn of_bucket(bucket: Bucket, policy: &Policy, now: Timestamp) -> Self {
        Self::Bucket(bucket.drained(rate(policy), now))
    }

    /// A bucket that was stored, without what is certain to be still there of units that were taken from it. Which limit is in force
    /// for the key now is not known here: it may have drained as fast as under its own, or under that of then.
    pub(crate) fn bucket_without(
        bucket: Bucket,
        policy: &Policy,
        units: u32,
        taken_at: Timestamp,
        now: Timestamp,
    ) -> Bucket {
        let fastest = Rate {
            units: policy.rate().max(policy.own_rate()),
            ..rate(policy)
        };
        bucket.give_back(units, taken_at, fastest, now)
    }

    /// Whether the clock has stepped back so far that what is stored must be moved, also when nothing is used.
    pub(crate) fn is_moved(&self) -> bool {
        match self {
            Self::Window(_) | Self::Pair(_) => false,
            Self::Log(log) => log.is_moved,
            Self::Bucket(bucket) => bucket.is_moved,
            Self::Block(block) => block.is_moved,
        }
    }

    /// The counter of the window in force, of what is counted by windows.
    pub(crate) fn window(&self) -> Option<&Usage> {
        match self {
            Self::Window(usage) => Some(usage),
            Self::Pair(pair) => Some(&pair.current),
            Self::Log(_) | Self::Bucket(_) | Self::Block(_) => None,
        }
    }

    /// The same, to be changed.
    pub(crate) fn window_mut(&mut self) -> Option<&mut Usage> {
        match self {
            Self::Window(usage) => Some(usage),
            Self::Pair(pair) => Some(&mut pair.current),
            Self::Log(_) | Self::Bucket(_) | Self::Block(_) => None,
        }
    }

    /// Whether refused units are counted.
    pub(crate) fn counts_refusals(&self) -> bool {
        self.window().is_some()
    }

    /// From when on nobody needs what is stored of it.
    pub(crate) fn expires_at(&self, policy: &Policy, now: Timestamp) -> Timestamp {
        let used_until = match self {
            Self::Window(_) | Self::Pair(_) => return policy.expires_at(policy.span(now)),
            Self::Log(log) => log.newest.unwrap_or(now).saturating_add(policy.period()),
            Self::Bucket(_) => now.saturating_add(self.reset_after(policy, now)),
            Self::Block(block) => block.over_at(policy),
        };
        used_until.saturating_add(LONGEST_WAY)
    }

    /// Whether `cost` units fit. A cost of 0 asks for nothing and always does.
    pub(crate) fn fits(&self, policy: &Policy, cost: u32, now: Timestamp) -> bool {
        let limit = policy.limit();
        cost == 0
            || policy.is_exempt()
            || match self {
                Self::Window(usage) => usage.fits(limit, cost),
                Self::Pair(pair) => pair.fits(limit, cost, moment(policy, now)),
                Self::Log(log) => log.fits(limit, cost),
                Self::Bucket(bucket) => bucket.fits(limit, cost, rate(policy)),
                Self::Block(block) => block.until(policy).is_none(),
            }
    }

    /// Uses `cost` units.
    pub(crate) fn take(&mut self, cost: u32) {
        if cost == 0 {
            return;
        }
        match self {
            Self::Window(usage) => usage.take(cost),
            Self::Pair(pair) => pair.current.take(cost),
            Self::Log(log) => log.take(cost),
            Self::Bucket(bucket) => bucket.take(cost),
            Self::Block(_) => {}
        }
    }

    /// Takes back the units of the charge that has left this state, as if it had not been made.
    pub(crate) fn give_back(&mut self, policy: &Policy, units: u32) {
        match self {
            Self::Window(usage) => usage.give_back(units),
            Self::Pair(pair) => pair.current.give_back(units),
            Self::Log(log) => log.give_back(units),
            Self::Bucket(bucket) => {
                *bucket = bucket.give_back(units, bucket.at, rate(policy), bucket.at);
            }
            Self::Block(_) => {}
        }
    }

    /// Where a charge that was decided at `now`, and has left this state, took its units from.
    pub(crate) fn taken(&self, policy: &Policy, now: Timestamp) -> Taken {
        let start = policy.span(now).start;
        match self {
            Self::Window(Usage { epoch, .. }) => Taken::Window {
                start,
                epoch: *epoch,
            },
            Self::Pair(pair) => Taken::Window {
                start,
                epoch: pair.current.epoch,
            },
            Self::Log(log) => Taken::Event { at: log.at },
            Self::Bucket(Bucket { at, .. }) | Self::Block(Block { at, .. }) => {
                Taken::Bucket { at: *at }
            }
        }
    }

    /// Counts `cost` units as refused, where that is counted.
    pub(crate) fn refuse(&mut self, cost: u32) {
        if let Some(usage) = self.window_mut() {
            usage.refuse(cost);
        }
    }

    /// Units in force, rounded up.
    pub(crate) fn used(&self, policy: &Policy, now: Timestamp) -> u64 {
        match self {
            Self::Window(usage) => usage.used,
            Self::Pair(pair) => pair.used(moment(policy, now)),
            Self::Log(log) => log.used,
            Self::Bucket(bucket) => bucket.used_ceil(),
            Self::Block(_) => 0,
        }
    }

    /// Units refused in the current window; 0 where that is not counted.
    pub(crate) fn denied(&self) -> u64 {
        self.window().map_or(0, |usage| usage.denied)
    }

    /// Units that are left, from 0 to the limit; `u32::MAX` when there is none.
    pub(crate) fn remaining(&self, policy: &Policy, now: Timestamp) -> u32 {
        if policy.is_exempt() {
            return u32::MAX;
        }
        let left = u64::from(policy.limit()).saturating_sub(self.used(policy, now));
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// The time until `cost` units fit, if nobody else uses the key: zero when they do now, `None` when they never do.
    ///
    /// A limit that ends by then is followed by the next one. Where that takes a search for another event, or other rates, it may
    /// be told somewhat late, or of a bucket early.
    pub(crate) fn fits_after(
        &self,
        policy: &Policy,
        cost: u32,
        now: Timestamp,
    ) -> Option<Duration> {
        let under_this = self.fits_under(policy, cost, now);
        let Some((end, next)) = policy.until() else {
            return under_this;
        };
        let until_end = end.saturating_duration_since(now);
        if under_this.is_some_and(|wait| wait < until_end) {
            return under_this;
        }
        let mut state = *self;
        if let Self::Log(log) = &mut state
            && cost <= policy.limit()
        {
            // It was searched for under this limit.
            log.leaves = None;
        }
        let under_next = state.fits_under(&next, cost, now)?;
        Some(under_next.max(until_end))
    }

    /// The same under a limit that does not end.
    fn fits_under(&self, policy: &Policy, cost: u32, now: Timestamp) -> Option<Duration> {
        let limit = policy.limit();
        if self.fits(policy, cost, now) {
            return Some(Duration::ZERO);
        }
        if cost > limit {
            return None;
        }
        let millis = match self {
            Self::Window(_) => policy.span(now).end.millis_since(now),
            Self::Pair(pair) => pair.fits_after(limit, cost, moment(policy, now)),
            Self::Log(log) => log.fits_after(limit, cost, policy.period(), now),
            Self::Bucket(bucket) => bucket.fits_after(limit, cost, rate(policy), now)?,
            Self::Block(block) => block.over_at(policy).millis_since(now),
        };
        Some(Duration::from_millis(millis))
    }

    /// The time until the whole limit is available again. For windows with a beginning it is their end, in any case.
    pub(crate) fn reset_after(&self, policy: &Policy, now: Timestamp) -> Duration {
        Duration::from_millis(match self {
            Self::Window(_) => policy.span(now).end.millis_since(now),
            Self::Pair(pair) => pair.empty_after(moment(policy, now)),
            Self::Log(log) => log.empty_after(policy.period(), now),
            Self::Bucket(bucket) => bucket.full_after(rate(policy), now).unwrap_or(u64::MAX),
            Self::Block(block) => block.over_at(policy).millis_since(now),
        })
    }

    /// The time in which no more than what is left should be used: `t` of the `RateLimit` field.
    ///
    /// For windows with a beginning it is their end. Otherwise it is the time until there is more; while something is
    /// left it is also at least as long as what is left takes to be earned, so that a client which spreads what is left
    /// over it keeps the policy's pace, and never longer than the policy's window.
    pub(crate) fn effective_window(&self, policy: &Policy, now: Timestamp) -> Duration {
        let remaining = self.remaining(policy, now);
        if let Self::Window(_) = self {
            let end = self.reset_after(policy, now);
            // A limit that ends is followed by another one, sooner or later than the window.
            let has_end = remaining == 0 && policy.until().is_some();
            let more_after = has_end.then(|| self.fits_after(policy, 1, now));
            return more_after.flatten().unwrap_or(end);
        }
        let more_after = remaining
            .checked_add(1)
            .and_then(|cost| self.fits_after(policy, cost, now))
            .unwrap_or_else(|| policy.window());
        if remaining == 0 {
            return more_after;
        }
        let pace = u128::from(remaining) * policy.window().as_millis();
        let pace = pace.div_ceil(u128::from(policy.limit().max(1)));
        let pace = Duration::from_millis(u64::try_from(pace).unwrap_or(u64::MAX));
        more_after.max(pace).min(policy.window())
    }
}

/// Where `now` stands in its window.
fn moment(policy: &Policy, now: Timestamp) -> Moment {
    let length = millis(policy.period()).unsigned_abs().max(1);
    let gone = now.millis_since(policy.span(now).start);
    Moment {
        gone: gone.min(length - 1),
        length,
    }
}

fn rate(policy: &Policy) -> Rate {
    Rate {
        units: policy.rate(),
        period: millis(policy.period()).unsigned_abs().max(1),
    }
}
