//! Charges that are known to be over: refused from memory until they may fit.
//!
//! What the store has refused it refuses again, until time goes by or somebody frees units. What this process does clears
//! what is known at once; of other processes the writer reads what they have written into `changes`. So it may refuse too
//! much for a moment, and never too little.

mod known;
#[cfg(test)]
mod tests;
mod uncounted;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::known::{Answer, Known};
pub(super) use self::uncounted::Uncounted;
use super::backend::{Attempts, Freed, FreedSet};
use super::table::{SHARDS, Table};
use crate::limit::Timestamp;
use crate::limit::algorithm::{Found, State};
use crate::limit::few::Few;
use crate::store::{Charge, Outcome, Part, Reset};

/// What is known to be over, of one store handle.
#[derive(Default)]
pub(super) struct Refusals {
    table: Table<Known>,
    /// Whether room was found beside a refusal, which is not to be told any more when some of it is used.
    has_room: AtomicBool,
    /// For each shard of the table, how often units of its keys became free. It is raised before what is known goes.
    freed: [AtomicU64; SHARDS],
    /// What was refused of keys that are not known any more. It is locked after a shard, if both are.
    attempts: Mutex<Uncounted>,
}

/// How far each shard was when a batch was taken: what became free since, the batch may not have found.
pub(super) struct Moment([u64; SHARDS]);

impl Refusals {
    /// Sets how many keys are known at most. Of as many that are not known any more what was refused is still counted.
    pub(super) fn set_max_keys(&self, max_keys: usize) {
        self.table.set_max_keys(max_keys);
    }

    #[cfg(all(test, feature = "sqlite"))]
    pub(super) fn count(&self) -> usize {
        self.table.len()
    }

    /// Whether nothing is known.
    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Refuses a charge that is known to be over.
    pub(super) fn refuse(&self, charge: &Charge, now: Timestamp) -> Option<Outcome> {
        if self.is_empty() || !may_be_known(charge) {
            return None;
        }
        if let Some(part) = charge.parts.only() {
            let mut shard = self.table.lock(part);
            let found = Few::one(shard.get_mut()?.refuse(part, charge.cost, now)?);
            return Some(Outcome { at: now, found });
        }
        let mut found = charge.parts.map(|part| {
            let shard = self.table.lock(part);
            let known = shard.get();
            let found = known.and_then(|known| known.find(part, charge.cost, now));
            found.unwrap_or_else(|| Found::unknown(part.unused(now)))
        });
        if !is_enough(charge, &found) {
            return None;
        }
        let parts = charge.parts.iter().zip(found.iter_mut());
        for (part, found) in parts.filter(|(_, found)| !found.fits) {
            let mut shard = self.table.lock(part);
            let known = shard.get_mut();
            let told = known.and_then(|known| known.refuse(part, charge.cost, now));
            *found = told.unwrap_or(*found);
        }
        Some(Outcome { at: now, found })
    }

    pub(super) fn moment(&self) -> Moment {
        // What was put in line before it was noted here is in the batch that is taken after this.
        Moment(std::array::from_fn(|shard| {
            self.freed[shard].load(Ordering::Acquire)
        }))
    }

    /// Takes in what the store has answered to a charge of a batch that was taken at a moment.
    pub(super) fn note(&self, charge: &Charge, outcome: &Outcome, moment: &Moment) {
        let is_admitted = outcome.found.iter().all(|found| found.fits);
        let may_be_known = !is_admitted && may_be_known(charge);
        for (part, found) in charge.parts.iter().zip(outcome.found.iter()) {
            if is_admitted {
                self.forget(part);
                continue;
            }
            if found.fits {
                // Others have freed something.
                self.forget_if(part, |known| known.has_refused(charge.cost));
            }
            if may_be_known && !part.is_block() {
                self.note_part(part, charge.cost, outcome.at, found, moment);
            }
        }
    }

    fn note_part(&self, part: &Part, cost: u32, at: Timestamp, found: &Found, moment: &Moment) {
        let Some(answer) = Answer::of(part, cost, at, found) else {
            return;
        };
        let mut shard = self.table.lock(part);
        let freed = &self.freed[shard.number()];
        if freed.load(Ordering::Acquire) != moment.0[shard.number()] {
            return;
        }
        if answer.fits() {
            self.has_room.store(true, Ordering::Relaxed);
        }
        match shard.get_mut() {
            Some(known) => {
                let attempts = known.take_attempts(part);
                known.note(part, answer);
                self.keep(attempts);
            }
            None => shard.insert(Known::new(part, answer), |part, mut gone| {
                self.keep(gone.take_attempts(part));
            }),
        }
    }

    /// Notes that units were used without asking the store: what is left of them is not what was found.
    pub(super) fn spent(&self, charge: &Charge) {
        if !self.has_room.load(Ordering::Relaxed) {
            return;
        }
        for part in charge.parts.iter() {
            if let Some(known) = self.table.lock(part).peek_mut() {
                known.forget_room();
            }
        }
    }

    /// Forgets what is known of a key: it has units again.
    pub(super) fn free(&self, part: &Part) {
        self.freed[self.table.shard_of(part)].fetch_add(1, Ordering::Release);
        self.forget(part);
    }

    /// Forgets what is known of the keys that others have freed, or whose limits they have changed.
    pub(super) fn free_all(&self, freed: &[Freed]) {
        if !freed.is_empty() {
            let freed = FreedSet::of(freed);
            self.forget_where(|part| freed.is_about(part));
        }
    }

    /// Forgets what is known of keys that were reset, those of `keys`.
    pub(super) fn forget_reset(&self, reset: &Reset, keys: impl Fn(&str) -> bool) {
        self.forget_where(|part| part.rule == reset.part.rule && keys(part.key.as_str()));
    }

    /// Forgets everything: anything may have become free.
    pub(super) fn forget_all(&self) {
        self.forget_where(|_| true);
    }

    /// Forgets everything, and what is still to be counted with it.
    pub(super) fn clear(&self) {
        self.forget_all();
        *self.attempts() = Uncounted::default();
    }

    /// Units that were refused from memory and are not counted yet, of the window that a part is in.
    pub(super) fn uncounted(&self, part: &Part, at: Timestamp, state: &State) -> u64 {
        if !state.counts_refusals() {
            return 0;
        }
        let shard = self.table.lock(part);
        let known = shard.get().and_then(|known| known.uncounted(part));
        let known = known.filter(|attempts| attempts.are_of(part, at, state));
        let known = known.map_or(0, |attempts| attempts.units);
        known + self.attempts().of(part, at, state)
    }

    /// What was refused from memory and is to be counted. What is over is forgotten.
    pub(super) fn take_attempts(&self, now: Timestamp) -> Vec<Attempts> {
        let mut taken = self.attempts().take(usize::MAX);
        let mut has_room = false;
        self.has_room.store(false, Ordering::Relaxed);
        self.table.retain(|part, known| {
            taken.extend(known.take_attempts(part));
            has_room |= known.has_room();
            !known.is_over(now)
        });
        if has_room {
            self.has_room.store(true, Ordering::Relaxed);
        }
        taken
    }

    /// Whether something may have to be counted.
    pub(super) fn has_attempts(&self) -> bool {
        !self.is_empty() || !self.attempts().is_empty()
    }

    fn forget(&self, part: &Part) {
        self.forget_if(part, |_| true);
    }

    fn forget_if(&self, part: &Part, is_meant: impl FnOnce(&Known) -> bool) {
        if self.is_empty() {
            return;
        }
        let mut shard = self.table.lock(part);
        if shard.get().is_some_and(is_meant)
            && let Some(mut known) = shard.remove()
        {
            self.keep(known.take_attempts(part));
        }
    }

    fn forget_where(&self, is_meant: impl Fn(&Part) -> bool) {
        for freed in &self.freed {
            freed.fetch_add(1, Ordering::Release);
        }
        self.table.retain(|part, known| {
            let is_meant = is_meant(part);
            if is_meant {
                self.keep(known.take_attempts(part));
            }
            !is_meant
        });
    }

    fn keep(&self, attempts: Option<Attempts>) {
        if attempts.is_some() {
            self.attempts().put(attempts, self.table.max_keys());
        }
    }

    fn attempts(&self) -> MutexGuard<'_, Uncounted> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether memory may answer it: no policy wants the store to be asked each time, and it may be refused.
fn may_be_known(charge: &Charge) -> bool {
    !charge.is_forced && charge.parts.iter().all(|part| part.policy().is_leased())
}

/// Whether what is known refuses a charge, and the store would tell nothing else of the keys that it is refused for.
fn is_enough(charge: &Charge, found: &Few<Found>) -> bool {
    let parts = || charge.parts.iter().zip(found.iter());
    let refused = || parts().filter(|(_, found)| !found.fits);
    // Others may be of a counter that many share. And refusals that block a key are for the store to count.
    let may_be_unknown =
        |part: &Part| part.block().is_none() && refused().all(|(other, _)| other.key != part.key);
    let is_enough =
        |(part, found): (&Part, &Found)| found.is_known || part.is_block() || may_be_unknown(part);
    refused().next().is_some() && parts().all(is_enough)
}
