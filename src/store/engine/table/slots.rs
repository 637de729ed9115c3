//! The keys of one shard, and which of them goes when there are too many.

use std::mem;

use hashbrown::HashTable;

use crate::store::Part;

/// So many are looked at for one that was not used lately. When all of them were, the last goes: a flood of new keys holds the
/// lock for no longer.
const LOOKED_AT: usize = 16;
/// Room for the first keys.
const FEW: usize = 16;

/// What is known of keys, beside each other, and where they are by their hashes.
pub(super) struct Slots<V> {
    /// Places in `known`, which are small: it is half empty at times, and they are not.
    places: HashTable<u32>,
    known: Vec<Slot<V>>,
    /// Where eviction goes on.
    hand: usize,
}

struct Slot<V> {
    hash: u64,
    part: Part,
    value: V,
    /// Whether it was used since eviction has passed it.
    is_recent: bool,
}

impl<V> Default for Slots<V> {
    fn default() -> Self {
        Self {
            places: HashTable::new(),
            known: Vec::new(),
            hand: 0,
        }
    }
}

impl<V> Slots<V> {
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn get(&self, hash: u64, part: &Part) -> Option<&V> {
        let slot = self.known.get(self.place(hash, part)?)?;
        Some(&slot.value)
    }

    /// What is known of a key, which counts as used by it.
    pub(super) fn get_mut(&mut self, hash: u64, part: &Part) -> Option<&mut V> {
        let place = self.place(hash, part)?;
        let slot = self.known.get_mut(place)?;
        slot.is_recent = true;
        Some(&mut slot.value)
    }

    pub(super) fn peek_mut(&mut self, hash: u64, part: &Part) -> Option<&mut V> {
        let place = self.place(hash, part)?;
        Some(&mut self.known.get_mut(place)?.value)
    }

    /// Adds a key that is not there. It has to be used once more before it counts as recent: most come once.
    pub(super) fn push(&mut self, hash: u64, part: Part, value: V, most: usize) {
        let Ok(place) = u32::try_from(self.known.len()) else {
            return;
        };
        if self.known.len() == self.known.capacity() {
            // Twice as much, and no more than is ever needed.
            let more = self.known.len().max(FEW);
            let more = more.min(most.saturating_sub(self.known.len())).max(1);
            self.known.reserve_exact(more);
        }
        self.known.push(Slot {
            hash,
            part,
            value,
            is_recent: false,
        });
        let known = &self.known;
        let hash_of = |place: &u32| known.get(*place as usize).map_or(0, |slot| slot.hash);
        self.places.insert_unique(hash, place, hash_of);
    }

    pub(super) fn remove(&mut self, hash: u64, part: &Part) -> Option<V> {
        let place = self.place(hash, part)?;
        self.take(place).map(|slot| slot.value)
    }

    /// Takes out a key that was not used since it was passed here last, if one is near.
    pub(super) fn evict(&mut self) -> Option<(Part, V)> {
        let mut place = 0;
        for _ in 0..LOOKED_AT {
            if self.hand >= self.known.len() {
                self.hand = 0;
            }
            place = self.hand;
            self.hand += 1;
            let slot = self.known.get_mut(place)?;
            if !mem::take(&mut slot.is_recent) {
                break;
            }
        }
        // The last one comes into its place, behind the hand.
        let slot = self.take(place)?;
        Some((slot.part, slot.value))
    }

    pub(super) fn retain(&mut self, mut is_kept: impl FnMut(&Part, &mut V) -> bool) {
        let mut place = 0;
        while let Some(slot) = self.known.get_mut(place) {
            if is_kept(&slot.part, &mut slot.value) {
                place += 1;
            } else {
                // Another one is there now.
                self.take(place);
            }
        }
    }

    fn place(&self, hash: u64, part: &Part) -> Option<usize> {
        let is_it = |place: &u32| {
            let slot = self.known.get(*place as usize);
            slot.is_some_and(|slot| slot.hash == hash && slot.part == *part)
        };
        let place = self.places.find(hash, is_it)?;
        Some(*place as usize)
    }

    /// Takes out what is at a place, which the last one gets.
    fn take(&mut self, place: usize) -> Option<Slot<V>> {
        let hash = self.known.get(place)?.hash;
        if let Ok(entry) = self.places.find_entry(hash, |at| *at as usize == place) {
            entry.remove();
        }
        let slot = self.known.swap_remove(place);
        let last = self.known.len();
        if let Some(moved) = self.known.get(place)
            && let Some(at) = self.places.find_mut(moved.hash, |at| *at as usize == last)
        {
            *at = u32::try_from(place).unwrap_or(*at);
        }
        Some(slot)
    }
}
