//! Charges that are known to be over: refused from memory until they may fit.
//!
//! What the store has refused it refuses again, until time goes by or somebody frees units. What this process does clears
//! what is known at once; of other processes the writer reads what they have written into `changes`. So it may refuse too
//! much for a moment, and never too little.

mod refusal;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::refusal::Refusal;
use super::backend::{Attempts, Freed, FreedSet};
use crate::limit::Timestamp;
use crate::limit::algorithm::State;
use crate::store::{Charge, Outcome, Part, Reset};

/// Threads that charge different keys seldom meet.
const SHARDS: usize = 16;
/// Some 30 MB. Beyond it others go, which are asked for once more.
const MOST_KEYS: usize = 1 << 16;
/// What was refused of keys that are not known any more, and is still to be counted. Beyond it less is told than was.
const MOST_ATTEMPTS: usize = 1 << 12;

/// What is known to be over, of one store handle.
pub(super) struct Refusals {
    shards: [Mutex<Shard>; SHARDS],
    /// How many keys are known, so that a store without any is not searched.
    count: AtomicUsize,
    hasher: RandomState,
}

#[derive(Default)]
struct Shard {
    known: HashMap<Part, Refusal>,
    /// Raised whenever units of a key become free.
    freed: u64,
    /// What was refused of keys that are not known any more.
    attempts: Vec<Attempts>,
}

/// How far each shard was when a batch was taken: what became free since, the batch may not have found.
pub(super) struct Moment([u64; SHARDS]);

impl Default for Refusals {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            count: AtomicUsize::new(0),
            hasher: RandomState::new(),
        }
    }
}

impl Refusals {
    /// Whether nothing is known.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Refuses a charge that is known to be over.
    pub(super) fn refuse(&self, charge: &Charge, now: Timestamp) -> Option<Outcome> {
        if self.is_empty() {
            return None;
        }
        let mut parts = charge.parts.iter().filter(|part| !part.is_block());
        parts.find_map(|part| self.shard(part).known.get_mut(part)?.refuse(charge, now))
    }

    pub(super) fn moment(&self) -> Moment {
        Moment(std::array::from_fn(|index| lock(&self.shards[index]).freed))
    }

    /// Takes in what the store has answered to a charge of a batch that was taken at a moment.
    pub(super) fn note(&self, charge: &Charge, outcome: &Outcome, moment: &Moment) {
        if outcome.found.iter().all(|found| found.fits) {
            if !self.is_empty() {
                for part in charge.parts.iter() {
                    self.forget(part);
                }
            }
            return;
        }
        let Some(refusal) = Refusal::of(charge, outcome) else {
            return;
        };
        let part = refusal.part().clone();
        let index = self.index(&part);
        let mut guard = lock(&self.shards[index]);
        let shard = &mut *guard;
        if shard.freed != moment.0[index] {
            return;
        }
        let is_full = shard.known.len() >= MOST_KEYS / SHARDS;
        if is_full
            && !shard.known.contains_key(&part)
            && let Some(other) = shard.known.keys().next().cloned()
        {
            self.count
                .fetch_sub(shard.remove(&other), Ordering::Relaxed);
        }
        match shard.known.insert(part, refusal) {
            Some(mut before) => shard.keep(before.take_attempts()),
            None => {
                self.count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Forgets what is known of a key: it has units again.
    pub(super) fn free(&self, part: &Part) {
        let mut shard = self.shard(part);
        shard.freed += 1;
        self.count.fetch_sub(shard.remove(part), Ordering::Relaxed);
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
        for shard in &self.shards {
            lock(shard).attempts.clear();
        }
    }

    /// Units that were refused from memory and are not counted yet, of the window that a part is in.
    pub(super) fn uncounted(&self, part: &Part, at: Timestamp, state: &State) -> u64 {
        if !state.counts_refusals() {
            return 0;
        }
        let shard = self.shard(part);
        let known = shard.known.get(part).and_then(Refusal::uncounted);
        let all = shard.attempts.iter().chain(&known);
        let own = all.filter(|attempts| attempts.are_of(part, at, state));
        own.map(|attempts| attempts.units).sum()
    }

    /// What was refused from memory and is to be counted. What is over is forgotten.
    pub(super) fn take_attempts(&self, now: Timestamp) -> Vec<Attempts> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            let mut guard = lock(shard);
            let shard = &mut *guard;
            taken.append(&mut shard.attempts);
            let before = shard.known.len();
            shard.known.retain(|_, refusal| {
                taken.extend(refusal.take_attempts());
                !refusal.is_over(now)
            });
            let gone = before - shard.known.len();
            self.count.fetch_sub(gone, Ordering::Relaxed);
        }
        taken
    }

    /// Whether something may have to be counted.
    pub(super) fn has_attempts(&self) -> bool {
        !self.is_empty()
            || self
                .shards
                .iter()
                .any(|shard| !lock(shard).attempts.is_empty())
    }

    fn forget(&self, part: &Part) {
        self.count
            .fetch_sub(self.shard(part).remove(part), Ordering::Relaxed);
    }

    fn forget_where(&self, is_meant: impl Fn(&Part) -> bool) {
        for shard in &self.shards {
            let mut guard = lock(shard);
            let shard = &mut *guard;
            shard.freed += 1;
            // Of several policies each tells what it has.
            let meant = shard.known.iter().filter(|(_, refusal)| {
                let mut parts = refusal.parts();
                parts.any(&is_meant)
            });
            let meant: Vec<_> = meant.map(|(part, _)| part.clone()).collect();
            for part in &meant {
                self.count.fetch_sub(shard.remove(part), Ordering::Relaxed);
            }
        }
    }

    fn shard(&self, part: &Part) -> MutexGuard<'_, Shard> {
        lock(&self.shards[self.index(part)])
    }

    fn index(&self, part: &Part) -> usize {
        usize::try_from(self.hasher.hash_one(&part.key) % SHARDS as u64).unwrap_or(0)
    }
}

impl Shard {
    /// Removes what is known of a part, and says how many that were.
    fn remove(&mut self, part: &Part) -> usize {
        let Some(mut refusal) = self.known.remove(part) else {
            return 0;
        };
        self.keep(refusal.take_attempts());
        1
    }

    fn keep(&mut self, attempts: Option<Attempts>) {
        if self.attempts.len() < MOST_ATTEMPTS {
            self.attempts.extend(attempts);
        }
    }
}

/// A panic in between leaves a key known or not, never half of it.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
