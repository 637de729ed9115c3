//! A bounded map of keys, in shards: what is known of them in memory.
//!
//! It holds so many keys and no more. When a shard is full a new key takes the place of one that was not used lately, which
//! its owner is handed.

mod slots;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;

use self::slots::Slots;
use crate::store::Part;

/// Threads that charge different keys seldom meet.
pub(super) const SHARDS: usize = 16;
/// Enough for those that are active within a minute on one host.
const DEFAULT_MAX_KEYS: usize = 1 << 16;
/// Bits of a hash that no index of a shard looks at: it takes its places from the lowest, and tells them apart by the highest.
const SHARD_BITS: u32 = 48;

/// What is known of each of at most so many keys.
pub(super) struct Table<V> {
    shards: [Shard<V>; SHARDS],
    /// A fast one, of a random seed that clients do not know. Whoever finds keys that meet all the same makes a lookup compare
    /// numbers, and no more of them than there are keys in a shard.
    hasher: SeedableRandomState,
    /// How many keys there are, so that an empty table is not searched.
    count: AtomicUsize,
    /// How many keys a shard may hold.
    most_of_shard: AtomicUsize,
}

/// Alone in its cache lines, so that a lock that is taken slows nobody down who takes another one.
#[repr(align(128))]
struct Shard<V>(Mutex<Slots<V>>);

/// The shard of a part, for as long as nobody else uses it.
pub(super) struct Locked<'a, V> {
    slots: MutexGuard<'a, Slots<V>>,
    table: &'a Table<V>,
    part: &'a Part,
    hash: u64,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        let seed = RandomState::new().hash_one(0_u8);
        Self {
            shards: std::array::from_fn(|_| Shard(Mutex::default())),
            hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_random()),
            count: AtomicUsize::new(0),
            most_of_shard: AtomicUsize::new(DEFAULT_MAX_KEYS / SHARDS),
        }
    }
}

impl<V> Table<V> {
    /// Sets how many keys it may hold, at least one for each shard. When there are more, they go as new ones come.
    pub(super) fn set_max_keys(&self, max_keys: usize) {
        let most = (max_keys / SHARDS).max(1);
        self.most_of_shard.store(most, Ordering::Relaxed);
    }

    /// How many keys it may hold.
    pub(super) fn max_keys(&self) -> usize {
        self.most_of_shard.load(Ordering::Relaxed) * SHARDS
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The shard of a part, to look at what is known of it or to change that.
    pub(super) fn lock<'a>(&'a self, part: &'a Part) -> Locked<'a, V> {
        let hash = self.hasher.hash_one(part);
        Locked {
            slots: lock(&self.shards[shard_of(hash)]),
            table: self,
            part,
            hash,
        }
    }

    /// The number of the shard of a part.
    pub(super) fn shard_of(&self, part: &Part) -> usize {
        shard_of(self.hasher.hash_one(part))
    }

    /// Goes through all keys, a shard at a time, and drops those that are not to be kept.
    pub(super) fn retain(&self, mut is_kept: impl FnMut(&Part, &mut V) -> bool) {
        for shard in &self.shards {
            let mut slots = lock(shard);
            let before = slots.len();
            slots.retain(&mut is_kept);
            let gone = before - slots.len();
            self.count.fetch_sub(gone, Ordering::Relaxed);
        }
    }
}

impl<V> Locked<'_, V> {
    /// Which shard it is.
    pub(super) fn number(&self) -> usize {
        shard_of(self.hash)
    }

    /// What is known of the part.
    pub(super) fn get(&self) -> Option<&V> {
        self.slots.get(self.hash, self.part)
    }

    /// What is known of the part, which does not count as used by it.
    pub(super) fn peek_mut(&mut self) -> Option<&mut V> {
        self.slots.peek_mut(self.hash, self.part)
    }

    /// What is known of the part, which is in use then.
    pub(super) fn get_mut(&mut self) -> Option<&mut V> {
        self.slots.get_mut(self.hash, self.part)
    }

    /// Takes in what is known of the part now. What was known of it before is handed to `gone`, and what goes since there is no
    /// more room.
    pub(super) fn insert(&mut self, value: V, mut gone: impl FnMut(&Part, V)) {
        if let Some(known) = self.get_mut() {
            let before = std::mem::replace(known, value);
            gone(self.part, before);
            return;
        }
        let most = self.table.most_of_shard.load(Ordering::Relaxed);
        while self.slots.len() >= most
            && let Some((part, value)) = self.slots.evict()
        {
            self.table.count.fetch_sub(1, Ordering::Relaxed);
            gone(&part, value);
        }
        self.slots.push(self.hash, self.part.clone(), value, most);
        self.table.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets the part, and returns what was known of it.
    pub(super) fn remove(&mut self) -> Option<V> {
        let value = self.slots.remove(self.hash, self.part)?;
        self.table.count.fetch_sub(1, Ordering::Relaxed);
        Some(value)
    }
}

fn shard_of(hash: u64) -> usize {
    usize::try_from(hash >> SHARD_BITS).unwrap_or(0) % SHARDS
}

/// A panic in between leaves a key known or not, never half of it.
fn lock<V>(shard: &Shard<V>) -> MutexGuard<'_, Slots<V>> {
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
}
