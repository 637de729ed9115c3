//! What a limiter is set to, beside its policies.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{FailureMode, Limiter};
#[cfg(any(test, feature = "test-util"))]
use crate::clock::ManualClock;
use crate::limit::{ChargedBy, Key, Policy};
use crate::store::{Handle, Part, Rule};

/// The lowest bits of a mark.
const MARK_BITS: u32 = 3;
const SHARED: u64 = 1;
const SHADOW: u64 = 2;
const LOCAL: u64 = 4;

/// What a limiter is set to. One that is made of another starts with its set-up.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// `None` is the store that the process shares.
    pub(super) store: Option<Handle>,
    /// Tells this limiter, and its clones, from all others in the process.
    pub(super) owner: u64,
    pub(super) failure_mode: FailureMode,
    pub(super) is_shadow: bool,
    #[cfg(any(test, feature = "test-util"))]
    clock: Option<ManualClock>,
}

impl Setup {
    pub(super) fn new() -> Self {
        static NEXT_OWNER: AtomicU64 = AtomicU64::new(1);
        Self {
            store: None,
            owner: NEXT_OWNER.fetch_add(1, Ordering::Relaxed),
            failure_mode: FailureMode::default(),
            is_shadow: false,
            #[cfg(any(test, feature = "test-util"))]
            clock: None,
        }
    }

    pub(super) fn set_store(&mut self, store: Handle) {
        #[cfg(any(test, feature = "test-util"))]
        if let Some(clock) = &self.clock {
            store.set_clock(clock);
        }
        self.store = Some(store);
    }

    /// A policy, and where it counts.
    pub(super) fn rule(&self, policy: Policy) -> Rule {
        let name = policy.counter_name();
        let shadow = if self.is_shadow { "shadow;" } else { "" };
        let counter = match &self.store {
            Some(_) => format!("{shadow}{name}"),
            None => format!("{};{shadow}{name}", self.owner),
        };
        Rule::new(counter, self.limits(&policy), policy)
    }

    /// What the limits are filed under that are set at run time for a policy, or for its shadow.
    fn limits(&self, policy: &Policy) -> String {
        let name = policy.as_name();
        match &self.store {
            Some(_) => name.to_owned(),
            None => format!("{};{name}", self.owner),
        }
    }
}

impl Limiter {
    /// Decides by this clock, which a test sets.
    ///
    /// On a [store](Self::store), whichever of the two is set first, it becomes the clock of the store, for all that use
    /// it; only the first clock of a store counts. Without one the limiter counts in a [`MemoryStore`](crate::MemoryStore)
    /// of its own, rather than in the store that the process shares.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "test-util")] {
    /// use std::time::Duration;
    /// use tollgate::{Key, Limiter, ManualClock, Policy, StoreError, Timestamp};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let clock = ManualClock::new(Timestamp::from_unix_millis(0));
    /// let mails = Limiter::new(Policy::fixed(1, 3_600).name("mails")).clock(&clock);
    /// let user = Key::new("user", 42);
    ///
    /// assert!(mails.check(&user).await?.is_allowed());
    /// assert!(mails.check(&user).await?.is_denied());
    /// clock.advance(Duration::from_secs(3_600));
    /// assert!(mails.check(&user).await?.is_allowed());
    /// # Ok::<(), StoreError>(()) }).unwrap();
    /// # }
    /// ```
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn clock(self, clock: &ManualClock) -> Self {
        let limiter = self.with(|setup| setup.clock = Some(clock.clone()));
        match &limiter.inner.setup.store {
            Some(store) => {
                store.set_clock(clock);
                limiter
            }
            None => limiter.store(&crate::store::MemoryStore::new()),
        }
    }

    /// Counts apart from limiters that are in force: what this one has used is nobody's but that of other shadows.
    pub(crate) fn shadow(&self, is_shadow: bool) -> Self {
        self.with(|setup| setup.is_shadow = is_shadow)
    }

    /// Whether nobody is refused by this limiter.
    pub(crate) fn is_shadow(&self) -> bool {
        self.inner.setup.is_shadow
    }

    /// A policy, which need not be one of this limiter's own, on its store, and its key.
    pub(crate) fn part(&self, policy: Policy, key: Key) -> Part {
        let mut rules = self.inner.rules.iter();
        let own = rules.find(|rule| rule.policy.is_same(&policy));
        let rule = match own {
            Some(rule) => Arc::clone(rule),
            None => self.inner.setup.rule(policy).into(),
        };
        Part { rule, key }
    }

    /// What a decision is marked with that was charged to counters of this limiter, and of all that share them: which store it
    /// is, or in the shared store which limiter, and whether it is a shadow.
    pub(super) fn charges_as(&self) -> ChargedBy {
        self.mark(0)
    }

    /// The same for this process's memory.
    pub(super) fn charges_locally_as(&self) -> ChargedBy {
        self.mark(LOCAL)
    }

    fn mark(&self, local: u64) -> ChargedBy {
        let setup = &self.inner.setup;
        let whose = match &setup.store {
            Some(store) => store.id().0 << MARK_BITS,
            None => (setup.owner << MARK_BITS) | SHARED,
        };
        let shadow = if setup.is_shadow { SHADOW } else { 0 };
        // Neither the number of a store nor that of an owner is 0.
        ChargedBy(NonZeroU64::new(whose | shadow | local).unwrap_or(NonZeroU64::MAX))
    }
}
