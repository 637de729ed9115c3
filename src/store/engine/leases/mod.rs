//! Units that were charged in advance, and are spent in memory.
//!
//! A key that is charged again and again takes more from the database than was asked for: a lease. Its units are used as
//! far as the database knows, so no process can spend them twice. What is not spent goes back. `spending.rs` spends, and
//! `returning.rs` says what goes back; here is what is asked for.

mod lease;
mod returning;
mod spending;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::lease::{Lease, More};
use self::spending::may_be_leased;
use super::backend::{Ahead, Grant};
use super::table::Table;
use crate::limit::Timestamp;
use crate::limit::algorithm::State;
use crate::store::{Charge, GiveBack, Part};

/// The leases of one store handle.
#[derive(Default)]
pub(super) struct Leases {
    table: Table<Lease>,
    /// What is left of leases that had to make room for others.
    evicted: Mutex<Vec<GiveBack>>,
    /// Whether there may be something to give back.
    is_outstanding: AtomicBool,
}

impl Leases {
    /// Sets how many keys are remembered at most.
    pub(super) fn set_max_keys(&self, max_keys: usize) {
        self.table.set_max_keys(max_keys);
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.table.len()
    }

    /// What to ask for beside a charge that is about to be made, if anything.
    pub(super) fn ahead_of(&self, charge: &Charge, now: Timestamp) -> impl Iterator<Item = Ahead> {
        // What was used already says nothing of what will come.
        let is_asked = may_be_leased(charge) && !charge.is_forced;
        let parts = charge.parts.iter().filter(move |_| is_asked);
        parts.filter_map(move |part| self.ahead_of_part(charge, part, now))
    }

    fn ahead_of_part(&self, charge: &Charge, part: &Part, now: Timestamp) -> Option<Ahead> {
        let limit = part.policy().limit();
        let mut shard = self.table.lock(part);
        let Some(lease) = shard.get_mut() else {
            // Whether the key comes again is not known yet.
            shard.insert(Lease::new(part, now), |part, mut lease| {
                self.evicted().extend(lease.give_back(part));
            });
            self.is_outstanding.store(true, Ordering::Relaxed);
            return None;
        };
        let may_ask = lease.more == More::No && lease.limit == limit;
        // Of several parts another one may have been short.
        let needs_more = charge.parts.only().is_some()
            || !lease.covers(limit, charge.cost, now)
            || lease.is_half_empty();
        (may_ask && needs_more)
            .then(|| lease.ask(part, now))
            .flatten()
    }

    /// What to ask for when a lease is half empty. It may have been dropped since, and another have taken its place.
    pub(super) fn refill_of(&self, part: &Part, now: Timestamp) -> Option<Ahead> {
        let mut shard = self.table.lock(part);
        let lease = shard.get_mut()?;
        let is_wanted = lease.more == More::Wanted && lease.limit == part.policy().limit();
        is_wanted.then(|| lease.ask(part, now)).flatten()
    }

    /// Asks for nothing any more, after what was under way has been lost.
    pub(super) fn forget_asks(&self) {
        self.table.retain(|_, lease| {
            lease.more = More::No;
            true
        });
    }

    /// Takes in what was granted of what was asked for. What was left under a higher limit goes back.
    pub(super) fn install(&self, ahead: &Ahead, grant: Option<&Grant>) -> Option<GiveBack> {
        let part = &ahead.part;
        let mut shard = self.table.lock(part);
        let is_asking =
            |lease: &&mut Lease| lease.more == More::Asked && lease.limit == part.policy().limit();
        let Some(lease) = shard.get_mut().filter(is_asking) else {
            // The one that asked had to go.
            return grant?.give_back(part);
        };
        lease.more = More::No;
        let grant = grant?;
        let (before, usage) = match grant.state {
            State::Window(usage) => (None, usage),
            State::Pair(pair) => (Some(pair.previous), pair.current),
            // A backend grants units of windows.
            State::Log(_) | State::Bucket(_) | State::Block(_) => return None,
        };
        let is_same = lease.span == grant.span && lease.usage.epoch == usage.epoch;
        let policy = part.policy().with_limit(grant.in_force);
        let is_over =
            !policy.is_exempt() && grant.state.used(&policy, grant.at) > u64::from(policy.limit());
        let rest = if is_same && !is_over {
            None
        } else {
            // Of a fixed window that is over nobody misses it, nor of a counter that was reset.
            let is_missed = is_same || (before.is_some() && lease.span != grant.span);
            lease.give_back(part).filter(|_| is_missed)
        };
        lease.in_force = grant.in_force;
        lease.span = grant.span;
        lease.usage = usage;
        lease.before = before.map(Box::new);
        lease.left = lease.left.saturating_add(grant.units);
        lease.was_granted = true;
        lease.granted = grant.units;
        lease.taken_at = grant.at;
        lease.spent_at = grant.at;
        if grant.units > 0 {
            self.is_outstanding.store(true, Ordering::Relaxed);
        }
        rest
    }

    /// Whether there may be something to give back.
    pub(super) fn is_outstanding(&self) -> bool {
        self.is_outstanding.load(Ordering::Relaxed)
    }

    fn evicted(&self) -> MutexGuard<'_, Vec<GiveBack>> {
        self.evicted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
