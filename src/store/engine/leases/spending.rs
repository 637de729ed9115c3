//! What is spent from leases, and what is told of them.

use super::Leases;
use crate::limit::algorithm::{Found, Span};
use crate::limit::few::Few;
use crate::limit::{Timestamp, Verdict};
use crate::store::{Charge, GiveBack, Outcome, Part};

impl Leases {
    /// Spends units, when there are enough for every part of a charge, and tells of which leases it is time to ask for more.
    pub(in crate::store::engine) fn spend(
        &self,
        charge: &Charge,
        now: Timestamp,
        ask: impl FnMut(&Part),
    ) -> Option<Outcome> {
        let found = self.spend_each(charge, now, ask, |_, found| found, |found| found)?;
        Some(Outcome { at: now, found })
    }

    /// Spends units as [`spend`](Self::spend) does, and returns what each policy says of it.
    pub(in crate::store::engine) fn spend_and_judge(
        &self,
        charge: &Charge,
        now: Timestamp,
        ask: impl FnMut(&Part),
    ) -> Option<Few<Verdict>> {
        let judge = |part: &Part, found| {
            Verdict::new(part.policy(), part.key.clone(), charge.cost, now, &found)
        };
        self.spend_each(charge, now, ask, judge, Verdict::found)
    }

    /// All of the parts, or nothing. `tell` makes of what a part found what is returned, and `told` takes it out again.
    fn spend_each<T>(
        &self,
        charge: &Charge,
        now: Timestamp,
        mut ask: impl FnMut(&Part),
        tell: impl Fn(&Part, Found) -> T,
        told: impl Fn(&T) -> &Found,
    ) -> Option<Few<T>> {
        if !may_be_leased(charge) {
            return None;
        }
        let mut take = |part| {
            let found = self.spend_of(part, charge.cost, now, &mut ask)?;
            Some(tell(part, found))
        };
        if let Some(part) = charge.parts.only() {
            return take(part).map(Few::one);
        }
        // What can't be spent is not touched, so that it is idle.
        let is_covered = |part| self.covers(part, charge.cost, now);
        if !charge.parts.iter().all(is_covered) {
            return None;
        }
        match charge.parts.try_map(take) {
            Ok(all) => Some(all),
            Err(some) => {
                // Somebody has spent what was there a moment ago.
                for (part, one) in charge.parts.iter().zip(Few::iter_some(some.as_ref())) {
                    self.unspend(part, charge.cost, told(one), now);
                }
                None
            }
        }
    }

    fn covers(&self, part: &Part, cost: u32, now: Timestamp) -> bool {
        let shard = self.table.lock(part);
        let lease = shard.get();
        lease.is_some_and(|lease| lease.covers(part.policy().limit(), cost, now))
    }

    fn spend_of(
        &self,
        part: &Part,
        cost: u32,
        now: Timestamp,
        ask: &mut impl FnMut(&Part),
    ) -> Option<Found> {
        let mut shard = self.table.lock(part);
        let lease = shard.get_mut()?;
        if !lease.covers(part.policy().limit(), cost, now) {
            return None;
        }
        let is_time = lease.spend(cost, now);
        let found = lease.found();
        drop(shard);
        if is_time {
            ask(part);
        }
        Some(found)
    }

    /// Puts back what was spent of a charge that is not made, or has it go back when its lease is gone.
    fn unspend(&self, part: &Part, units: u32, found: &Found, now: Timestamp) {
        let back = GiveBack {
            part: part.clone(),
            units,
            taken_at: now,
            from: found.state.taken(part.policy(), now),
        };
        if !self.restore(&back) {
            self.evicted().push(back);
        }
    }

    /// Takes in what the backend counts of charges of several parts, of which leases may hold some, and leaves out what is not spent.
    pub(in crate::store::engine) fn take_in(&self, charge: &Charge, outcome: &mut Outcome) {
        if charge.parts.only().is_some() {
            return;
        }
        let at = outcome.at;
        for (part, found) in charge.parts.iter().zip(outcome.found.iter_mut()) {
            let Some(usage) = found.state.window_mut() else {
                continue;
            };
            if let Some(lease) = self.table.lock(part).peek_mut()
                && lease.left > 0
                && (lease.span, lease.usage.epoch) == (part.span(at), usage.epoch)
            {
                lease.usage = *usage;
                usage.used = usage.used.saturating_sub(u64::from(lease.left));
            }
        }
    }

    /// Units that the database counts as used in an epoch of a window, and that are not.
    pub(in crate::store::engine) fn unspent(&self, part: &Part, span: Span, epoch: u64) -> u32 {
        let shard = self.table.lock(part);
        let lease = shard.get();
        let lease = lease.filter(|lease| lease.span == span && lease.usage.epoch == epoch);
        lease.map_or(0, |lease| lease.left)
    }
}

/// Whether all that a charge takes may be spent from leases.
pub(super) fn may_be_leased(charge: &Charge) -> bool {
    charge.parts.iter().all(|part| {
        let policy = part.policy();
        policy.is_leased() && policy.algorithm().keeps_units() && !part.is_block()
    })
}
