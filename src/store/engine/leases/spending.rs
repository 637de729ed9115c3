//! What is spent from leases, and what is told of them.

use super::Leases;
use crate::limit::Timestamp;
use crate::limit::algorithm::{Found, Span};
use crate::limit::few::Few;
use crate::store::{Charge, GiveBack, Outcome, Part};

impl Leases {
    /// Spends units, when there are enough for every part of a charge, and tells of which leases it is time to ask for more.
    pub(in crate::store::engine) fn spend(
        &self,
        charge: &Charge,
        now: Timestamp,
        mut ask: impl FnMut(&Part),
    ) -> Option<Outcome> {
        if !may_be_leased(charge) {
            return None;
        }
        let found = match charge.parts.only() {
            Some(part) => Few::one(self.spend_of(part, charge.cost, now, &mut ask)?),
            None => self.spend_of_each(charge, now, &mut ask)?,
        };
        Some(Outcome { at: now, found })
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

    /// All of several parts, or nothing. What can't be spent is not touched, so that it is idle.
    fn spend_of_each(
        &self,
        charge: &Charge,
        now: Timestamp,
        ask: &mut impl FnMut(&Part),
    ) -> Option<Few<Found>> {
        let covers = |part: &Part| {
            let shard = self.table.lock(part);
            let lease = shard.get();
            lease.is_some_and(|lease| lease.covers(part.policy().limit(), charge.cost, now))
        };
        if !charge.parts.iter().all(covers) {
            return None;
        }
        let found = charge.parts.map(|part| {
            let found = self.spend_of(part, charge.cost, now, ask);
            found.unwrap_or_else(|| Found::new(false, part.unused(now)))
        });
        if found.iter().all(|found| found.fits) {
            return Some(found);
        }
        // Somebody has spent what was there a moment ago.
        for (part, found) in charge.parts.iter().zip(found.iter()) {
            if found.fits {
                self.unspend(part, charge.cost, found, now);
            }
        }
        None
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
