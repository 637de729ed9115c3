//! The heaviest of any number of keys, in a bounded number of slots.

use std::collections::HashMap;

use crate::limit::Key;

/// The algorithm Space-Saving (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data
/// Streams, 2005), with weights.
///
/// As long as there are no more keys than slots every count is exact. After that a new key takes the slot of the one with the least,
/// and its count, which it can't be told apart from then and is its error. So of each key that is here the count is too high by its
/// error at most, one that is not here has no more than the least count of all slots, and that is at most the total divided by the
/// slots.
///
/// Slots are found by key, and kept in a heap with the least count on top.
#[derive(Debug)]
pub(super) struct SpaceSaving {
    most: usize,
    slots: Vec<Slot>,
    places: HashMap<Key, usize>,
    /// Numbers of slots: the count of each is at least that of the one above it.
    heap: Vec<usize>,
    total: u64,
}

#[derive(Debug)]
struct Slot {
    key: Key,
    count: u64,
    error: u64,
    in_heap: usize,
}

impl SpaceSaving {
    /// Nothing, in so many slots at most; at least 1.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            slots: Vec::new(),
            places: HashMap::new(),
            heap: Vec::new(),
            total: 0,
        }
    }

    /// Counts units of a key. One that is here already allocates nothing.
    pub(super) fn add(&mut self, key: &Key, units: u64) {
        if units == 0 {
            return;
        }
        self.total = self.total.saturating_add(units);
        let slot = match self.places.get(key) {
            Some(slot) => *slot,
            None => self.place(key),
        };
        let count = &mut self.slots[slot].count;
        *count = count.saturating_add(units);
        self.sink(self.slots[slot].in_heap);
    }

    /// Units of all keys, also of those that are not here any more.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// What a key that is not here has at most.
    pub(super) fn missing_at_most(&self) -> u64 {
        if self.slots.len() < self.most {
            return 0;
        }
        self.heap.first().map_or(0, |slot| self.slots[*slot].count)
    }

    /// What a key has at least and at most.
    pub(super) fn bounds(&self, key: &Key) -> (u64, u64) {
        match self.places.get(key) {
            Some(slot) => self.slots[*slot].bounds(),
            None => (0, self.missing_at_most()),
        }
    }

    /// The keys that are here.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.slots.iter().map(|slot| &slot.key)
    }

    /// Forgets everything, and keeps the room for it.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.places.clear();
        self.heap.clear();
        self.total = 0;
    }

    /// A slot for a key that has none.
    fn place(&mut self, key: &Key) -> usize {
        if self.slots.len() < self.most {
            let slot = self.slots.len();
            self.slots.push(Slot {
                key: key.clone(),
                count: 0,
                error: 0,
                in_heap: self.heap.len(),
            });
            self.heap.push(slot);
            self.rise(self.heap.len() - 1);
            self.places.insert(key.clone(), slot);
            return slot;
        }
        let least = self.heap[0];
        let slot = &mut self.slots[least];
        self.places.remove(&slot.key);
        slot.key = key.clone();
        slot.error = slot.count;
        self.places.insert(key.clone(), least);
        least
    }

    fn count_at(&self, place: usize) -> u64 {
        self.slots[self.heap[place]].count
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for place in [one, other] {
            self.slots[self.heap[place]].in_heap = place;
        }
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.count_at(above) <= self.count_at(place) {
                return;
            }
            self.swap(place, above);
            place = above;
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let below = 2 * place + 1..(2 * place + 3).min(self.heap.len());
            let Some(least) = below.min_by_key(|place| self.count_at(*place)) else {
                return;
            };
            if self.count_at(place) <= self.count_at(least) {
                return;
            }
            self.swap(place, least);
            place = least;
        }
    }
}

impl Slot {
    fn bounds(&self) -> (u64, u64) {
        (self.count - self.error, self.count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(number: u16) -> Key {
        Key::new("user", number)
    }

    #[test]
    fn as_long_as_there_are_no_more_keys_than_slots_every_count_is_exact() {
        let mut sketch = SpaceSaving::new(100);
        for round in 0..3 {
            for number in 0..100 {
                sketch.add(&key(number), u64::from(number * round) + 1);
            }
        }
        for number in 0..100 {
            let exact = 3 + 3 * u64::from(number);
            assert_eq!(sketch.bounds(&key(number)), (exact, exact));
        }
        // Who comes now takes the slot of one that has the least.
        assert_eq!(sketch.missing_at_most(), 3);
    }

    #[test]
    fn counts_saturate() {
        let mut sketch = SpaceSaving::new(1);
        for number in 0..3 {
            sketch.add(&key(number), u64::MAX);
        }
        assert_eq!(sketch.bounds(&key(2)), (0, u64::MAX));
        assert_eq!(sketch.total(), u64::MAX);
    }

    proptest! {
        #[test]
        fn the_bounds_hold_what_was_counted_and_no_heavy_key_is_missing(
            most in 1_usize..20,
            // Some keys come often, most seldom.
            charges in proptest::collection::vec((prop_oneof![0_u16..5, 0_u16..200], 0_u64..9), 0..600),
        ) {
            let mut sketch = SpaceSaving::new(most);
            let mut exact: HashMap<u16, u64> = HashMap::new();
            for (number, units) in charges {
                sketch.add(&key(number), units);
                *exact.entry(number).or_default() += units;
            }
            let total: u64 = exact.values().sum();
            prop_assert_eq!(sketch.total(), total);
            prop_assert!(sketch.slots.len() <= most && sketch.places.len() == sketch.slots.len());
            prop_assert!(sketch.missing_at_most() <= total / most as u64);
            for (number, units) in exact {
                let (at_least, at_most) = sketch.bounds(&key(number));
                prop_assert!((at_least..=at_most).contains(&units), "{number}: {at_least} {units} {at_most}");
                prop_assert!(at_most - at_least <= sketch.missing_at_most());
                let is_here = sketch.keys().any(|here| *here == key(number));
                prop_assert!(is_here || units <= sketch.missing_at_most());
            }
            for place in 1..sketch.heap.len() {
                prop_assert!(sketch.count_at((place - 1) / 2) <= sketch.count_at(place));
                prop_assert_eq!(sketch.slots[sketch.heap[place]].in_heap, place);
            }
        }
    }
}
