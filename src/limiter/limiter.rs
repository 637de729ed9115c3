//! A policy on a store.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::{Check, FailureMode};
use crate::limit::{Decision, Key, Policy};
use crate::store::{Charge, Counter, Reset, Store, StoreError, StoreHandle};

/// A policy on a store, without HTTP: what the layer is built on, and what a handler, a job or an operator's tool uses.
///
/// Clones share their counters. Without [`store`](Self::store) a limiter counts in an embedded in-memory SQLite that the
/// process shares, but its counters are its own: two limiters never meet there. On a given store a counter belongs to
/// the policy's name, algorithm and window, and to the key.
///
/// # Examples
///
/// ```
/// use tollgate::{Key, Limiter, Policy, StoreError};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let mails = Limiter::new(Policy::fixed(10, 3_600).name("mails"));
/// let user = Key::new("user", 42);
///
/// let decision = mails.check_n(&user, 8).await?;
/// assert!(decision.is_allowed());
///
/// // A refused charge uses nothing: two more are still there.
/// assert!(mails.check_n(&user, 5).await?.is_denied());
/// assert!(mails.check_n(&user, 2).await?.is_allowed());
///
/// // Looking uses nothing either.
/// assert_eq!(mails.peek(&user).await?.remaining(), 0);
///
/// assert_eq!(mails.reset(&user).await?, 10);
/// assert_eq!(mails.peek(&user).await?.remaining(), 10);
/// # Ok::<(), StoreError>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Limiter {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    policy: Policy,
    /// `None` is the store that the process shares.
    store: Option<StoreHandle>,
    /// Tells this limiter, and its clones, from all others in the process.
    owner: u64,
    counter: Arc<Counter>,
    failure_mode: FailureMode,
    is_announced: AtomicBool,
}

impl Limiter {
    /// A limiter on the store that the process shares.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        static NEXT_OWNER: AtomicU64 = AtomicU64::new(1);
        let owner = NEXT_OWNER.fetch_add(1, Ordering::Relaxed);
        Self::of(policy, None, owner, FailureMode::default())
    }

    /// Counts in this store, which other limiters and other processes may share.
    #[must_use]
    pub fn store(self, store: &(impl Store + ?Sized)) -> Self {
        let store = Some(store.handle().0);
        Self::of(
            self.inner.policy.clone(),
            store,
            self.inner.owner,
            self.inner.failure_mode,
        )
    }

    /// Names the policy. Its counters are filed under the name.
    ///
    /// # Panics
    ///
    /// When the name is no valid one; see [`Policy::name`].
    #[must_use]
    #[track_caller]
    pub fn name(self, name: &str) -> Self {
        let policy = self.inner.policy.clone().name(name);
        Self::of(
            policy,
            self.inner.store.clone(),
            self.inner.owner,
            self.inner.failure_mode,
        )
    }

    /// Sets what is answered when the store fails or misses its deadline: [`FailureMode::Closed`] by default.
    #[must_use]
    pub fn on_store_failure(self, failure_mode: FailureMode) -> Self {
        let inner = &self.inner;
        Self::of(
            inner.policy.clone(),
            inner.store.clone(),
            inner.owner,
            failure_mode,
        )
    }

    fn of(
        policy: Policy,
        store: Option<StoreHandle>,
        owner: u64,
        failure_mode: FailureMode,
    ) -> Self {
        let name = policy.counter_name();
        let counter = Counter {
            name: match store {
                Some(_) => name,
                None => format!("{owner};{name}"),
            },
            window: policy.window(),
        };
        Self {
            inner: Arc::new(Inner {
                policy,
                store,
                owner,
                counter: Arc::new(counter),
                failure_mode,
                is_announced: AtomicBool::new(false),
            }),
        }
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.inner.policy
    }

    pub(super) fn failure_mode(&self) -> FailureMode {
        self.inner.failure_mode
    }

    /// Charges one unit to the key.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the store gives no answer, unless [`FailureMode::Open`] is set. A refusal is a
    /// [`Decision`], not an error.
    ///
    /// # Cancel safety
    ///
    /// A call that is dropped may or may not have charged the unit. It leaves nothing behind that others would notice.
    pub async fn check(&self, key: &Key) -> Result<Decision, StoreError> {
        self.check_n(key, 1).await
    }

    /// Charges `cost` units to the key: all of them or none. A cost of 0 looks, and is always allowed.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    ///
    /// # Cancel safety
    ///
    /// As [`check`](Self::check).
    pub async fn check_n(&self, key: &Key, cost: u32) -> Result<Decision, StoreError> {
        self.announce(|| None);
        self.begin(key.clone(), cost).await
    }

    /// Looks at the key: uses nothing, and creates no row.
    ///
    /// The decision is the one that a charge of one unit would get now, without that unit having been used.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the store gives no answer, whatever the failure mode.
    pub async fn peek(&self, key: &Key) -> Result<Decision, StoreError> {
        let store = self.store_handle();
        let look = self.charge_of(store, key.clone(), 1);
        let at = look.at;
        let usage = store.peek(look).await?.usage;
        let policy = self.policy();
        let fits = usage.used < u64::from(policy.limit());
        Ok(Decision::fixed_window(
            policy,
            key.clone(),
            1,
            at,
            fits,
            usage,
        ))
    }

    /// Forgets what the key has used and attempted, and says how many used units of the current window that were.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the store gives no answer.
    pub async fn reset(&self, key: &Key) -> Result<u64, StoreError> {
        self.reset_keys(key, false).await
    }

    /// Does [`reset`](Self::reset) to the key and to every key that starts with its parts, a thousand at a time.
    ///
    /// `user:42` covers `user:42|route:/login` too, and not `user:421`.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the store gives no answer. Some of the keys may be reset then.
    pub async fn reset_under(&self, prefix: &Key) -> Result<u64, StoreError> {
        self.reset_keys(prefix, true).await
    }

    async fn reset_keys(&self, key: &Key, with_keys_under: bool) -> Result<u64, StoreError> {
        let store = self.store_handle();
        let reset = Reset {
            counter: Arc::clone(&self.inner.counter),
            key: key.clone(),
            with_keys_under,
            at: store.now(),
        };
        store.reset(reset).await
    }

    /// Deletes the expired rows of the whole store now, and says how many those were. The store does it by itself too.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the store gives no answer. Some of the rows may be deleted then.
    pub async fn sweep(&self) -> Result<u64, StoreError> {
        self.store_handle().sweep().await
    }

    /// Begins to charge the key.
    pub(crate) fn begin(&self, key: Key, cost: u32) -> Check {
        let store = self.store_handle();
        let charge = self.charge_of(store, key.clone(), cost);
        let at = charge.at;
        let reply = if cost == 0 {
            store.peek(charge)
        } else {
            store.charge(charge)
        };
        Check::new(self.clone(), reply, key, cost, at)
    }

    fn charge_of(&self, store: &StoreHandle, key: Key, cost: u32) -> Charge {
        Charge {
            counter: Arc::clone(&self.inner.counter),
            key,
            limit: self.inner.policy.limit(),
            cost,
            at: store.now(),
        }
    }

    /// What tells this limiter's counters from all others: the store, and the name in it.
    pub(crate) fn counter_id(&self) -> (usize, &str) {
        (self.store_handle().id(), &self.inner.counter.name)
    }

    /// Says once what the policy is and where it counts, so that swapped arguments are seen. `key` tells what is keyed on.
    pub(crate) fn announce(&self, key: impl FnOnce() -> Option<String>) {
        let inner = &*self.inner;
        if inner.is_announced.load(Ordering::Relaxed)
            || inner.is_announced.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let store = self.store_handle();
        let (policy, store_name) = (&inner.policy, store.name());
        let key = key().map_or_else(String::new, |key| format!(", key {key}"));
        tracing::info!("{policy}{key}, store {store_name}");
        let is_odd = || {
            store
                .users()
                .is_odd_first_seen(&inner.counter.name, inner.owner, policy)
        };
        if inner.store.is_some() && is_odd() {
            if policy.is_named() {
                let name = policy.as_name();
                tracing::warn!(
                    "two limits named {name} are on the store {store_name} with different limits ({policy}): they share \
                     their counters, and each is held to its own; give them names of their own with .name(\"…\") if \
                     that is not meant"
                );
            } else {
                tracing::warn!(
                    "two limits without a name are both {policy}, on the store {store_name}: they share their counters; \
                     give them names of their own with .name(\"…\")"
                );
            }
        }
    }

    fn store_handle(&self) -> &StoreHandle {
        self.inner.store.as_ref().unwrap_or_else(|| shared_store())
    }
}

/// The store of all limiters to which none was given: it lives as long as the process.
fn shared_store() -> &'static StoreHandle {
    static SHARED: OnceLock<StoreHandle> = OnceLock::new();
    SHARED.get_or_init(StoreHandle::in_memory)
}
