//! What was counted of the keys of one counter.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::recent::{Recent, Top};
use crate::limit::{Decision, Key, Policy, Timestamp};
use crate::limiter::Limiter;
use crate::store::StoreId;

/// The keys of one counter that use most, and those that are refused most: of all limiters of this process that are asked about.
pub(crate) struct Tally {
    admitted: Mutex<Recent>,
    refused: Mutex<Recent>,
}

/// The tallies of a limiter's policies, each in its place, once somebody has asked for them.
pub(in crate::limiter) type Tallies = OnceLock<Box<[Arc<Tally>]>>;

/// The number of a store, and what a counter is filed under there.
type Counter = (u64, String);

impl Tally {
    fn new(now: Timestamp) -> Self {
        Self {
            admitted: Mutex::new(Recent::new(now)),
            refused: Mutex::new(Recent::new(now)),
        }
    }

    /// The tally of a counter: limiters that share the one share the other.
    fn of(store: StoreId, counter: &str, now: Timestamp) -> Arc<Self> {
        static ALL: OnceLock<Mutex<HashMap<Counter, Weak<Tally>>>> = OnceLock::new();
        let tallies = ALL.get_or_init(Mutex::default);
        let mut tallies = tallies.lock().unwrap_or_else(PoisonError::into_inner);
        tallies.retain(|_, tally| tally.strong_count() > 0);
        let tally = tallies.entry((store.0, counter.to_owned())).or_default();
        tally.upgrade().unwrap_or_else(|| {
            let new = Arc::new(Self::new(now));
            *tally = Arc::downgrade(&new);
            new
        })
    }

    /// The keys with the most units that were admitted. What was given back afterwards is in it.
    pub(crate) fn busiest(&self, now: Timestamp) -> Top {
        let top = lock(&self.admitted).all(now);
        // Not under the lock: requests wait for it.
        top.sorted()
    }

    /// The keys with the most charges that were refused.
    pub(crate) fn most_refused(&self, now: Timestamp) -> Top {
        let top = lock(&self.refused).all(now);
        top.sorted()
    }

    fn admitted(&self, key: &Key, units: u32, at: Timestamp) {
        lock(&self.admitted).add(key, units.into(), at);
    }

    fn refused(&self, key: &Key, at: Timestamp) {
        lock(&self.refused).add(key, 1, at);
    }
}

impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It is full of keys.
        f.debug_struct("Tally").finish_non_exhaustive()
    }
}

/// A panic in between leaves a count that is a little off.
fn lock(recent: &Mutex<Recent>) -> MutexGuard<'_, Recent> {
    recent.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Limiter {
    /// Counts from now on which keys use most and are refused most, and tells the tally of each policy, in their order. Limiters that
    /// are made of this one later do not count.
    pub(crate) fn tallies(&self) -> &[Arc<Tally>] {
        self.inner.tallies.get_or_init(|| {
            let store = self.store_handle();
            let rules = self.inner.rules.iter();
            rules
                .map(|rule| Tally::of(store.id(), &rule.counter, store.now()))
                .collect()
        })
    }

    /// Counts a decision, if somebody has asked for it.
    pub(in crate::limiter) fn tally(&self, decision: &Decision) {
        let Some(tallies) = self.inner.tallies.get() else {
            return;
        };
        for verdict in decision.verdicts() {
            let policy = verdict.policy();
            let mut rules = self.inner.rules.iter().zip(tallies);
            // A policy that was computed for the request has none, unless it counts under the name of one of these.
            let rule = rules.find(|(rule, _)| have_one_counter(&rule.policy, policy));
            let Some((_, tally)) = rule else {
                continue;
            };
            let (key, at) = (verdict.key(), verdict.decided_at());
            // What layers outside have charged is in their tallies.
            let has_used = verdict.charged_by().is_some() || decision.is_uncounted();
            if decision.is_allowed() && has_used {
                tally.admitted(key, verdict.cost(), at);
            } else if decision.is_denied() && verdict.is_denied() {
                tally.refused(key, at);
            }
        }
    }
}

/// Whether two policies of one limiter count together: those that differ in no more than their limits.
fn have_one_counter(one: &Policy, other: &Policy) -> bool {
    one.algorithm() == other.algorithm()
        && one.period() == other.period()
        && one.as_name() == other.as_name()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[tokio::test]
    async fn nothing_is_counted_until_somebody_asks_and_those_who_share_a_counter_share_it() {
        let store = MemoryStore::new();
        let of = |limit| Limiter::new(Policy::fixed(limit, 60).name("p")).store(&store);
        let (one, other) = (of(9), of(99));
        let key = Key::new("user", 1);
        assert!(one.check(&key).await.unwrap().is_allowed());
        assert!(one.inner.tallies.get().is_none());

        let [tally] = one.tallies() else {
            panic!("there is one policy");
        };
        assert!(Arc::ptr_eq(tally, &other.tallies()[0]));
        assert!(!Arc::ptr_eq(tally, &of(9).name("q").tallies()[0]));
        for limiter in [&one, &other] {
            assert!(limiter.check(&key).await.unwrap().is_allowed());
        }
        assert_eq!(tally.busiest(one.now()).total, 2);
    }
}
