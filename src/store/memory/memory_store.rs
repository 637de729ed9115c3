//! The store, and its handle.

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::rows::Rows;
#[cfg(any(test, feature = "test-util"))]
use crate::clock::{Clock, ManualClock};
use crate::limit::Timestamp;
use crate::store::handle::{StoreId, Users};
use crate::store::health::{DecidedWithout, Health};
use crate::store::store_clock::StoreClock;
use crate::store::{
    Charge, GiveBack, Handle, Outcome, Reset, Store, StoreError, StoreHandle, StoreHealth,
};

/// About 50 MB of keys and counts.
const DEFAULT_MAX_KEYS: usize = 1 << 18;

/// Counters in this process's memory: gone with it, and seen by it alone.
///
/// It decides with the same functions as the durable stores and answers at once. Clones are the same store.
///
/// Nothing runs in the background: what has expired goes when new keys come, so until then an idle store keeps its size.
///
/// It holds at most [`max_keys`](Self::max_keys) keys. When that is reached, expired keys go first, then those that have
/// something left, with the fewest used units first, then those that have used all but were not refused yet. The counter
/// of a key that was refused stays while it has nothing left: a new key gets [`StoreError::Full`] instead. In an exact
/// sliding window each admitted event counts as a key.
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
        Self(Arc::new(Memory::new(Arc::default())))
    }

    /// Sets how many counters are held at most, at least 1. By default 262,144.
    #[must_use]
    pub fn max_keys(self, max_keys: usize) -> Self {
        self.0.max_keys.store(max_keys.max(1), Ordering::Relaxed);
        self
    }

    /// How the store is: whether there is room for what it was asked last.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::MemoryStore;
    ///
    /// assert!(MemoryStore::new().health().is_answering());
    /// ```
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        self.0.report()
    }

    /// Sets the clock that every decision on this store is made by. Only the first call counts.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn clock(self, clock: &ManualClock) -> Self {
        self.0.set_clock(Clock::Manual(clock.clone()));
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

impl Store for MemoryStore {
    fn handle(&self) -> StoreHandle {
        StoreHandle(Handle::Memory(Arc::clone(&self.0)))
    }
}

/// The counters, and what is set for them.
pub(crate) struct Memory {
    id: StoreId,
    rows: Mutex<Rows>,
    max_keys: AtomicUsize,
    /// Whether `rows` has limits that were set at run time.
    pub(super) has_limits: AtomicBool,
    clock: Arc<StoreClock>,
    users: Users,
    health: Health,
}

impl Memory {
    /// Nothing, and room for 262,144 keys. The clock may be set later.
    pub(in crate::store) fn new(clock: Arc<StoreClock>) -> Self {
        Self {
            id: StoreId::next(),
            rows: Mutex::default(),
            max_keys: AtomicUsize::new(DEFAULT_MAX_KEYS),
            has_limits: AtomicBool::new(false),
            clock,
            users: Users::default(),
            health: Health::new("memory".to_owned(), DecidedWithout::default()),
        }
    }

    pub(crate) fn id(&self) -> StoreId {
        self.id
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn set_clock(&self, clock: Clock) {
        self.clock.set(clock);
    }

    /// Whether it has room, which nobody is told of a memory that stands in for a store.
    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    pub(crate) fn report(&self) -> StoreHealth {
        StoreHealth::answering("memory", self.health.failure())
    }

    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    pub(crate) fn charge(&self, charge: &Charge) -> Result<Outcome, StoreError> {
        let max_keys = self.max_keys.load(Ordering::Relaxed);
        let mut rows = self.rows();
        // Read under the lock: an instant that waited for it would look like a clock that has stepped back.
        let at = self.now();
        rows.charge(charge, at, max_keys)
    }

    pub(crate) fn peek(&self, look: &Charge) -> Outcome {
        let rows = self.rows();
        rows.look(look, self.now())
    }

    pub(crate) fn give_back(&self, units: &[GiveBack]) {
        let mut rows = self.rows();
        let at = self.now();
        for back in units {
            rows.give_back(back, at);
        }
    }

    pub(crate) fn reset(&self, reset: &Reset) -> u64 {
        self.rows().reset(reset)
    }

    pub(crate) fn sweep(&self) -> u64 {
        let mut rows = self.rows();
        let now = self.now();
        let swept = rows.sweep(now);
        rows.limits.sweep(now);
        if rows.len() == 0 {
            // What a flood needed once need not be kept for ever.
            let limits = mem::take(&mut rows.limits);
            *rows = Rows::default();
            rows.limits = limits;
        }
        swept
    }

    pub(super) fn rows(&self) -> MutexGuard<'_, Rows> {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limit::{Key, Policy};
    use crate::store::suite::{Subject, charge_of};

    const NOW: Timestamp = Timestamp::from_unix_millis(0);

    crate::__store_suite!(Subject::new(async |clock| (
        MemoryStore::new().clock(&clock),
        ()
    )));

    fn charge(key: &Key, limit: u32) -> Charge {
        charge_of(&[(&Policy::fixed(limit, 60).name("p"), key)], 1)
    }

    fn store_of(max_keys: usize) -> (MemoryStore, ManualClock) {
        let clock = ManualClock::new(Timestamp::from_unix_millis(0));
        (MemoryStore::new().max_keys(max_keys).clock(&clock), clock)
    }

    fn is_admitted(store: &MemoryStore, key: &Key, limit: u32) -> bool {
        store.0.charge(&charge(key, limit)).unwrap().is_admitted()
    }

    #[test]
    fn a_flood_of_keys_stays_under_the_cap_and_frees_no_refused_key() {
        let (store, clock) = store_of(100);
        let refused = Key::new("user", "refused");
        for _ in 0..2 {
            let _ = is_admitted(&store, &refused, 1);
        }
        for n in 0..10_000 {
            assert!(is_admitted(&store, &Key::new("flood", n), 1));
            assert!(store.0.rows().len() <= 100);
        }
        clock.advance(Duration::from_millis(59_999));
        assert!(!is_admitted(&store, &refused, 1));
    }

    #[test]
    fn a_key_that_has_used_all_goes_after_those_that_have_something_left() {
        let (store, _) = store_of(100);
        let full = Key::new("user", "full");
        assert!(is_admitted(&store, &full, 1));
        for n in 0..1_000 {
            assert!(is_admitted(&store, &Key::new("flood", n), 9));
        }
        assert!(!is_admitted(&store, &full, 1));
    }

    #[test]
    fn the_keys_with_the_fewest_units_go_first() {
        let (store, _) = store_of(10);
        let busy = Key::new("user", "busy");
        for _ in 0..5 {
            assert!(is_admitted(&store, &busy, 9));
        }
        for n in 0..100 {
            assert!(is_admitted(&store, &Key::new("flood", n), 9));
        }
        let found = store.0.charge(&charge(&busy, 9)).unwrap().found;
        assert_eq!(found.first().state.remaining(&Policy::fixed(9, 60), NOW), 3);
    }

    #[test]
    fn a_new_key_gets_an_error_while_all_are_refused_ones() {
        let (store, clock) = store_of(10);
        let keys: Vec<_> = (0..10).map(|n| Key::new("user", n)).collect();
        for key in keys.iter().chain(&keys) {
            let _ = is_admitted(&store, key, 1);
        }
        let new = Key::new("user", "new");
        let answer = store.0.charge(&charge(&new, 1));
        assert!(matches!(answer, Err(StoreError::Full)), "{answer:?}");
        assert!(!is_admitted(&store, &keys[0], 1));
        clock.advance(Duration::from_secs(120));
        assert!(is_admitted(&store, &new, 1));
    }

    #[test]
    fn the_events_of_a_sliding_window_count_towards_the_cap() {
        let (store, clock) = store_of(10);
        let policy = Policy::sliding(100, 60);
        let charge = |n: u32| charge_of(&[(&policy, &Key::new("user", n))], 1);
        for n in 0..30 {
            clock.advance(Duration::from_millis(1));
            assert!(store.0.charge(&charge(n / 6)).unwrap().is_admitted());
            let rows = store.0.rows();
            assert!(rows.len() <= 10);
            assert!(rows.counts_are_right());
        }
    }

    #[test]
    fn what_a_sliding_counter_refuses_for_the_window_before_stays_refused() {
        let (store, clock) = store_of(50);
        let counter = Policy::sliding_counter(10, 60).name("refused");
        let charge = |cost| charge_of(&[(&counter, &Key::new("user", "a"))], cost);
        assert!(store.0.charge(&charge(10)).unwrap().is_admitted());
        clock.advance(Duration::from_secs(60));
        assert!(!store.0.charge(&charge(1)).unwrap().is_admitted());
        for n in 0..200 {
            assert!(is_admitted(&store, &Key::new("flood", n), 9));
        }
        assert!(!store.0.charge(&charge(1)).unwrap().is_admitted());
    }

    #[test]
    fn one_new_key_does_not_cost_all_keys_that_have_many_events() {
        let (store, clock) = store_of(1_000);
        let policy = Policy::sliding(1_000, 60);
        let charge = |n: u32| charge_of(&[(&policy, &Key::new("user", n))], 1);
        for _ in 0..100 {
            clock.advance(Duration::from_millis(1));
            for n in 0..10 {
                assert!(store.0.charge(&charge(n)).unwrap().is_admitted());
            }
        }
        assert!(store.0.charge(&charge(10)).unwrap().is_admitted());
        let used = |n| {
            let outcome = store.0.peek(&charge(n));
            outcome.found.first().state.used(&policy, outcome.at)
        };
        let left: u64 = (0..10).map(used).sum();
        assert!((700..1_000).contains(&left), "{left}");
    }

    #[test]
    fn a_refusal_is_an_answer_also_when_there_is_no_room_to_count_it() {
        let (store, _) = store_of(10);
        for n in (0..10).chain(0..10) {
            let _ = is_admitted(&store, &Key::new("user", n), 1);
        }
        assert!(!is_admitted(&store, &Key::new("user", "new"), 0));
    }
}
