//! A bounded store in this process's memory: the reference for every other one.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::contract::sealed::{Handle, Sealed};
use super::handle::Users;
use super::{Charge, Counter, Outcome, Reset, Store, StoreError, StoreHandle};
use crate::clock::Clock;
#[cfg(any(test, feature = "test-util"))]
use crate::clock::ManualClock;
use crate::limit::fixed_window::Usage;
use crate::limit::{Key, Timestamp};

/// About 50 MB of keys and counts.
const DEFAULT_MAX_KEYS: usize = 1 << 18;
/// This part of the keys goes at once when the cap is reached, so that the search for them is rare.
const EVICTED_AT_ONCE: usize = 8;
/// Expired keys are looked for after so many new ones.
const SWEPT_EVERY: usize = 4_096;
/// While no room can be made, it is looked for this often.
const SEARCHED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Counters in this process's memory: gone with it, and seen by it alone.
///
/// It decides with the same functions as the durable stores and answers at once. Clones are the same store.
///
/// Nothing runs in the background: what has expired goes when new keys come, so until then an idle store keeps its size.
///
/// It holds at most [`max_keys`](Self::max_keys) keys. When that is reached, expired keys go first, then those that have
/// something left, with the fewest used units first, then those that have used all but were not refused yet. The counter
/// of a key that was refused never goes before its window ends: a new key gets [`StoreError::Full`] instead.
///
/// # Examples
///
/// ```
/// use tollgate::{MemoryStore, RateLimitLayer};
///
/// let store = MemoryStore::new().max_keys(10_000);
/// let layer = RateLimitLayer::fixed(100, 60).store(&store);
/// ```
#[derive(Clone)]
pub struct MemoryStore(Arc<Memory>);

impl MemoryStore {
    /// An empty store for at most 262,144 keys.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Memory {
            rows: Mutex::default(),
            max_keys: AtomicUsize::new(DEFAULT_MAX_KEYS),
            clock: OnceLock::new(),
            users: Users::default(),
        }))
    }

    /// Sets how many counters are held at most, at least 1. By default 262,144.
    #[must_use]
    pub fn max_keys(self, max_keys: usize) -> Self {
        self.0.max_keys.store(max_keys.max(1), Ordering::Relaxed);
        self
    }

    /// Sets the clock that every decision on this store is made by. Only the first call counts.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn clock(self, clock: &ManualClock) -> Self {
        self.0.clock.get_or_init(|| Clock::Manual(clock.clone()));
        self
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Sealed for MemoryStore {
    fn handle(&self) -> Handle {
        Handle(StoreHandle::Memory(Arc::clone(&self.0)))
    }
}

impl Store for MemoryStore {}

/// The counters, and what is set for them.
pub(crate) struct Memory {
    rows: Mutex<Rows>,
    max_keys: AtomicUsize,
    clock: OnceLock<Clock>,
    users: Users,
}

impl Memory {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.get().unwrap_or(&Clock::System).now()
    }

    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    pub(crate) fn charge(&self, charge: &Charge) -> Result<Outcome, StoreError> {
        let max_keys = self.max_keys.load(Ordering::Relaxed);
        self.rows().charge(charge, max_keys)
    }

    pub(crate) fn peek(&self, look: &Charge) -> Outcome {
        let rows = self.rows();
        Outcome {
            is_admitted: true,
            usage: rows
                .counters
                .get(&Place::of(look))
                .map(|row| row.usage)
                .unwrap_or_default(),
        }
    }

    pub(crate) fn reset(&self, reset: &Reset) -> u64 {
        self.rows().reset(reset)
    }

    pub(crate) fn sweep(&self) -> u64 {
        self.rows().sweep(self.now())
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        // A panic in between leaves a counter that was charged or not, never half of one.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("max_keys", &self.max_keys)
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Rows {
    counters: HashMap<Place, Row>,
    new_since_sweep: usize,
    /// When no room could be made: a flood of new keys must not search for some again and again.
    full_at: Option<Timestamp>,
}

#[derive(PartialEq, Eq, Hash)]
struct Place {
    counter: Arc<Counter>,
    key: Key,
    window_start: Timestamp,
}

impl Place {
    fn of(charge: &Charge) -> Self {
        Self {
            counter: Arc::clone(&charge.counter),
            key: charge.key.clone(),
            window_start: charge.span().start,
        }
    }
}

struct Row {
    usage: Usage,
    limit: u32,
    expires_at: Timestamp,
}

impl Row {
    /// Which rows go first when there are too many: the least. `None` never goes.
    fn eviction_rank(&self) -> Option<(bool, u64)> {
        let is_used_up = self.usage.used >= u64::from(self.limit);
        (self.usage.denied == 0).then_some((is_used_up, self.usage.used))
    }
}

impl Rows {
    fn charge(&mut self, charge: &Charge, max_keys: usize) -> Result<Outcome, StoreError> {
        let place = Place::of(charge);
        let row = match self.counters.get_mut(&place) {
            Some(row) => row,
            None => {
                self.make_room(charge.at, max_keys)?;
                self.counters.entry(place).or_insert(Row {
                    usage: Usage::default(),
                    limit: charge.limit,
                    expires_at: charge.expires_at(),
                })
            }
        };
        row.limit = charge.limit;
        let is_admitted = row.usage.charge(charge.limit, charge.cost);
        Ok(Outcome {
            is_admitted,
            usage: row.usage,
        })
    }

    fn make_room(&mut self, now: Timestamp, max_keys: usize) -> Result<(), StoreError> {
        self.new_since_sweep += 1;
        if self.counters.len() < max_keys {
            if self.new_since_sweep >= SWEPT_EVERY {
                self.sweep(now);
            }
            return Ok(());
        }
        let is_known_full = self.full_at.is_some_and(|full_at| {
            full_at <= now && now < full_at.saturating_add(SEARCHED_AGAIN_AFTER)
        });
        if !is_known_full {
            self.sweep(now);
            if self.counters.len() >= max_keys {
                self.evict(max_keys.div_ceil(EVICTED_AT_ONCE));
            }
            if self.counters.len() < max_keys {
                return Ok(());
            }
            self.full_at = Some(now);
        }
        Err(StoreError::Full)
    }

    /// Forgets up to `count` keys, in the order of their rank.
    fn evict(&mut self, count: usize) {
        let ranks = self.counters.values().filter_map(Row::eviction_rank);
        let mut ranks: Vec<_> = ranks.collect();
        if ranks.is_empty() {
            return;
        }
        let last = count.min(ranks.len()) - 1;
        let (_, last_rank, _) = ranks.select_nth_unstable(last);
        let last_rank = *last_rank;
        // Those below the last rank first: of those that have it some may stay.
        let mut left = count;
        for goes_whole in [true, false] {
            self.counters.retain(|_, row| {
                let rank = row.eviction_rank();
                let goes = left > 0
                    && rank
                        .is_some_and(|rank| rank < last_rank || (!goes_whole && rank == last_rank));
                left -= usize::from(goes);
                !goes
            });
        }
    }

    fn sweep(&mut self, now: Timestamp) -> u64 {
        self.new_since_sweep = 0;
        let before = self.counters.len();
        self.counters.retain(|_, row| row.expires_at > now);
        (before - self.counters.len()) as u64
    }

    fn reset(&mut self, reset: &Reset) -> u64 {
        let in_force = reset.span().start;
        let (from, to) = reset.key.under();
        let mut units = 0;
        for (place, row) in &mut self.counters {
            let is_under = || reset.with_keys_under && (&*from..&*to).contains(&place.key.as_str());
            if place.counter == reset.counter && (place.key == reset.key || is_under()) {
                if place.window_start == in_force {
                    units += row.usage.used;
                }
                row.usage.reset();
            }
        }
        units
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::suite::{Subject, contract_suite};

    contract_suite!(Subject::new(async |clock| (
        MemoryStore::new().clock(&clock),
        ()
    )));

    fn charge(key: &Key, limit: u32, at: i64) -> Charge {
        Charge {
            counter: Arc::new(Counter {
                name: "p".to_owned(),
                window: Duration::from_secs(60),
            }),
            key: key.clone(),
            limit,
            cost: 1,
            at: Timestamp::from_unix_millis(at),
        }
    }

    #[test]
    fn a_flood_of_keys_stays_under_the_cap_and_frees_no_refused_key() {
        let store = MemoryStore::new().max_keys(100);
        let refused = Key::new("user", "refused");
        for _ in 0..2 {
            let _ = store.0.charge(&charge(&refused, 1, 0));
        }
        for n in 0..10_000 {
            store
                .0
                .charge(&charge(&Key::new("flood", n), 1, 0))
                .unwrap();
            assert!(store.0.rows().counters.len() <= 100);
        }
        assert!(
            !store
                .0
                .charge(&charge(&refused, 1, 59_999))
                .unwrap()
                .is_admitted
        );
    }

    #[test]
    fn a_key_that_has_used_all_goes_after_those_that_have_something_left() {
        let store = MemoryStore::new().max_keys(100);
        let full = Key::new("user", "full");
        store.0.charge(&charge(&full, 1, 0)).unwrap();
        for n in 0..1_000 {
            store
                .0
                .charge(&charge(&Key::new("flood", n), 9, 0))
                .unwrap();
        }
        assert!(!store.0.charge(&charge(&full, 1, 0)).unwrap().is_admitted);
    }

    #[test]
    fn the_keys_with_the_fewest_units_go_first() {
        let store = MemoryStore::new().max_keys(10);
        let busy = Key::new("user", "busy");
        for _ in 0..5 {
            store.0.charge(&charge(&busy, 9, 0)).unwrap();
        }
        for n in 0..100 {
            store
                .0
                .charge(&charge(&Key::new("flood", n), 9, 0))
                .unwrap();
        }
        assert_eq!(store.0.charge(&charge(&busy, 9, 0)).unwrap().usage.used, 6);
    }

    #[test]
    fn a_new_key_gets_an_error_while_all_are_refused_ones() {
        let store = MemoryStore::new().max_keys(10);
        let keys: Vec<_> = (0..10).map(|n| Key::new("user", n)).collect();
        for key in keys.iter().chain(&keys) {
            store.0.charge(&charge(key, 1, 0)).unwrap();
        }
        let new = Key::new("user", "new");
        let answer = store.0.charge(&charge(&new, 1, 0));
        assert!(matches!(answer, Err(StoreError::Full)), "{answer:?}");
        assert!(!store.0.charge(&charge(&keys[0], 1, 0)).unwrap().is_admitted);
        assert!(
            store
                .0
                .charge(&charge(&new, 1, 120_000))
                .unwrap()
                .is_admitted
        );
    }
}
