//! What goes back of leases, and to where it came from.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Leases;
use super::lease::{Lease, More};
use crate::limit::Timestamp;
use crate::store::engine::backend::{Freed, FreedSet};
use crate::store::{Charge, GiveBack, Outcome, Part, Reset, StoreError};

/// What was not touched for so long goes back. A key that had no lease is forgotten then: most keys come once.
const IDLE: Duration = Duration::from_millis(2_500);
/// How much a key asked for is remembered for so long, so that it need not begin small when it comes back.
const REMEMBERED: Duration = Duration::from_secs(60);

impl Leases {
    /// What is left of leases that keep charges from their units: it goes back first, so that those find it. What covers a charge
    /// of several parts stays, as long as the backend is known to have room for all that its counter is charged beside it.
    pub(in crate::store::engine) fn rests_before(
        &self,
        charges: &[Charge],
        now: Timestamp,
    ) -> Vec<GiveBack> {
        let mut all: HashMap<&Part, u64> = HashMap::new();
        if charges.iter().any(|charge| charge.parts.only().is_none()) {
            for charge in charges {
                for part in charge.parts.iter() {
                    *all.entry(part).or_default() += u64::from(charge.cost);
                }
            }
        }
        let all = |part: &Part| all.get(part).copied().unwrap_or(0);
        let mut rests = Vec::new();
        for charge in charges {
            let parts = charge.parts.iter();
            rests.extend(parts.filter_map(|part| self.rest_before(charge, part, all(part), now)));
        }
        rests
    }

    fn rest_before(
        &self,
        charge: &Charge,
        part: &Part,
        all: u64,
        now: Timestamp,
    ) -> Option<GiveBack> {
        if !part.policy().algorithm().keeps_units() {
            return None;
        }
        let mut shard = self.table.lock(part);
        let lease = shard.peek_mut()?;
        let may_stay = charge.parts.only().is_none()
            && lease.covers(part.policy().limit(), charge.cost, now)
            && u64::from(lease.room(part, now)) >= all;
        if may_stay {
            return None;
        }
        lease.give_back(part)
    }

    /// What is left of leases of counters that have refused charges, and the places of those charges.
    pub(in crate::store::engine) fn rests_behind(
        &self,
        charges: &[Charge],
        answers: &[Result<Outcome, StoreError>],
    ) -> (Vec<usize>, Vec<GiveBack>) {
        let (mut places, mut rests, mut found_of) = (Vec::new(), Vec::new(), HashSet::new());
        for (place, (charge, answer)) in charges.iter().zip(answers).enumerate() {
            let Ok(outcome) = answer else {
                continue;
            };
            let parts = charge.parts.iter().zip(outcome.found.iter());
            let mut is_refused_beside = false;
            for (part, _) in parts.filter(|(_, found)| !found.fits) {
                let mut shard = self.table.lock(part);
                let rest = shard.peek_mut().and_then(|lease| lease.give_back(part));
                if let Some(rest) = rest {
                    found_of.insert(part);
                    rests.push(rest);
                }
                is_refused_beside |= found_of.contains(part);
            }
            if is_refused_beside {
                places.push(place);
            }
        }
        (places, rests)
    }

    /// What is left of a sliding counter's lease whose window is over, and counts still.
    pub(in crate::store::engine) fn take_ended(
        &self,
        part: &Part,
        now: Timestamp,
    ) -> Option<GiveBack> {
        let mut shard = self.table.lock(part);
        let lease = shard.peek_mut();
        let has_ended = |lease: &&mut Lease| lease.before.is_some() && lease.span.end <= now;
        lease.filter(has_ended)?.give_back(part)
    }

    /// Puts back what could not be given back, if its lease is still there.
    pub(in crate::store::engine) fn restore(&self, back: &GiveBack) -> bool {
        let mut shard = self.table.lock(&back.part);
        let lease = shard.peek_mut().filter(|lease| lease.is_of(back.from));
        let Some(lease) = lease else {
            return false;
        };
        lease.left = lease.left.saturating_add(back.units);
        true
    }

    /// Notes that units go back to the counter which a lease was taken from, so that less is told as used. They are not spent
    /// again from here: only the database knows of a reset by another process.
    pub(in crate::store::engine) fn note_given_back(&self, back: &GiveBack) {
        if let Some(lease) = self.table.lock(&back.part).peek_mut()
            && lease.is_of(back.from)
        {
            let used = lease.usage.used.saturating_sub(u64::from(back.units));
            lease.usage.used = used.max(u64::from(lease.left));
        }
    }

    /// What is left of leases that had to make room for others: it goes back.
    pub(in crate::store::engine) fn take_evicted(&self) -> Vec<GiveBack> {
        std::mem::take(&mut *self.evicted())
    }

    /// Empties all leases: the counters are not those that they were taken from. What is asked for stays so.
    pub(in crate::store::engine) fn empty_all(&self) {
        self.table.retain(|_, lease| {
            lease.left = 0;
            true
        });
        self.evicted().clear();
    }

    /// Drops the leases of keys that were reset, those of `keys`, and says how many units of the window in force they held.
    pub(in crate::store::engine) fn forget(
        &self,
        reset: &Reset,
        keys: impl Fn(&str) -> bool,
    ) -> u64 {
        let in_force = reset.part.span(reset.at);
        let mut units = 0;
        self.table.retain(|part, lease| {
            let is_meant = part.rule == reset.part.rule && keys(part.key.as_str());
            if is_meant && lease.span == in_force {
                units += u64::from(lease.left);
            }
            !is_meant
        });
        units
    }

    /// Takes out the leases of keys that were reset, or whose limit was set or removed, and what is left of them.
    pub(in crate::store::engine) fn take_of(&self, freed: &[Freed]) -> Vec<GiveBack> {
        let ended = FreedSet::of(freed.iter().filter(|freed| freed.ends_leases()));
        if ended.is_empty() {
            return Vec::new();
        }
        let mut rests = Vec::new();
        self.table.retain(|part, lease| {
            let is_meant = ended.is_about(part);
            if is_meant {
                rests.extend(lease.give_back(part));
            }
            !is_meant
        });
        rests
    }

    /// What has not been touched for a while goes back, up to `most` of it, and what is left of windows that are over.
    pub(in crate::store::engine) fn take_idle(&self, now: Timestamp, most: usize) -> Vec<GiveBack> {
        self.is_outstanding.store(false, Ordering::Relaxed);
        let mut idle = Vec::new();
        let mut is_outstanding = false;
        self.table.retain(|part, lease| {
            // After a step back of the clock nothing has been touched since.
            let has_stepped = now < lease.spent_at;
            let since = now.saturating_duration_since(lease.spent_at);
            let is_idle = since >= IDLE || has_stepped || now >= lease.span.end;
            if is_idle && idle.len() < most {
                idle.extend(lease.give_back(part));
            }
            if has_stepped {
                lease.spent_at = now;
            }
            let remembered = if lease.ahead > 0 { REMEMBERED } else { IDLE };
            let stays = lease.left > 0 || lease.more != More::No || since < remembered;
            is_outstanding |= stays;
            stays
        });
        if is_outstanding {
            self.is_outstanding.store(true, Ordering::Relaxed);
        }
        idle
    }

    /// Everything: the store is closed, or others have changed more than can be told.
    pub(in crate::store::engine) fn take_all(&self) -> Vec<GiveBack> {
        let mut rests = self.take_evicted();
        self.table.retain(|part, lease| {
            rests.extend(lease.give_back(part));
            false
        });
        rests
    }
}
