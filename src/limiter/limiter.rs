//! A policy on a store.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use super::check::{Asked, decision};
use super::setup::Setup;
#[cfg(feature = "admin")]
use super::tally::Tallies;
use super::{Begun, FailureMode, Held, Keys};
use crate::limit::few::Few;
use crate::limit::{Decision, Key, Policies, Policy, PolicyError, Verdict};
use crate::store::{Charge, Handle, Part, Reset, Rule, Store, StoreError, StoreId};

/// One policy or several on a store, without HTTP: what the layer is built on, and what a handler, a job or an operator's
/// tool uses.
///
/// Several policies are charged all or nothing: a charge that one of them refuses uses nothing of the others.
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
    pub(super) inner: Arc<Inner>,
}

/// What clones share. It begins cache lines of its own, beside which clones are counted.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Inner {
    pub(super) rules: Few<Arc<Rule>>,
    pub(super) setup: Setup,
    pub(super) is_announced: AtomicBool,
    #[cfg(feature = "admin")]
    pub(super) tallies: Tallies,
}

impl Limiter {
    /// A limiter of one policy, or of several, on the store that the process shares.
    ///
    /// # Panics
    ///
    /// When there is no policy, or two have the same name. [`Limiter::try_new`] returns an error instead.
    #[must_use]
    #[track_caller]
    pub fn new(policies: impl Into<Policies>) -> Self {
        match Self::try_new(policies) {
            Ok(limiter) => limiter,
            Err(error) => panic!("{error}"),
        }
    }

    /// A limiter of one policy, or of several, on the store that the process shares.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] when there is no policy, or two have the same name, without regard to case.
    pub fn try_new(policies: impl Into<Policies>) -> Result<Self, PolicyError> {
        Ok(Self::of(policies.into().checked()?, Setup::new()))
    }

    /// Counts in this store, which other limiters and other processes may share.
    #[must_use]
    pub fn store(self, store: &(impl Store + ?Sized)) -> Self {
        self.with(|setup| setup.set_store(store.handle().0))
    }

    /// Names the policy, when it is the only one. Its counters are filed under the name.
    ///
    /// # Panics
    ///
    /// When the name is no valid one (see [`Policy::name`]), or there are several policies.
    #[must_use]
    #[track_caller]
    pub fn name(self, name: &str) -> Self {
        match self.with_only_policy(|policy| policy.try_name(name)) {
            Ok(limiter) => limiter,
            Err(error) => panic!("{error}"),
        }
    }

    /// Sets what is answered when the store fails or misses its deadline: [`FailureMode::Local`] by default.
    #[must_use]
    pub fn on_store_failure(self, failure_mode: FailureMode) -> Self {
        self.with(|setup| setup.failure_mode = failure_mode)
    }

    /// This limiter with one more policy, behind the others.
    pub(crate) fn and(&self, policy: Policy) -> Result<Self, PolicyError> {
        let policies = self.policies().cloned().chain([policy]);
        let policies = policies.collect::<Policies>().checked()?;
        Ok(self.with_policies(policies))
    }

    /// This limiter with its only policy changed.
    pub(crate) fn with_only_policy(
        &self,
        change: impl FnOnce(Policy) -> Result<Policy, PolicyError>,
    ) -> Result<Self, PolicyError> {
        let only = self
            .inner
            .rules
            .only()
            .ok_or(PolicyError::SeveralPolicies)?;
        let policy = change(only.policy.clone())?;
        Ok(self.with_policies(Few::one(policy)))
    }

    fn with_policies(&self, policies: Few<Policy>) -> Self {
        Self::of(policies, self.inner.setup.clone())
    }

    /// This limiter, set up otherwise.
    pub(super) fn with(&self, change: impl FnOnce(&mut Setup)) -> Self {
        let mut setup = self.inner.setup.clone();
        change(&mut setup);
        Self::of(self.inner.rules.map(|rule| rule.policy.clone()), setup)
    }

    fn of(policies: Few<Policy>, setup: Setup) -> Self {
        Self {
            inner: Arc::new(Inner {
                rules: policies.into_map(|policy| Arc::new(setup.rule(policy))),
                setup,
                is_announced: AtomicBool::new(false),
                #[cfg(feature = "admin")]
                tallies: Tallies::new(),
            }),
        }
    }

    /// The policy; of several the first.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.inner.rules.first().policy
    }

    /// The policies, in their order.
    #[must_use]
    pub fn policies(&self) -> impl DoubleEndedIterator<Item = &Policy> + ExactSizeIterator {
        self.inner.rules.iter().map(|rule| &rule.policy)
    }

    pub(crate) fn failure_mode(&self) -> FailureMode {
        self.inner.setup.failure_mode
    }

    /// Charges one unit to the key, or to one key for each policy.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when there are several keys, but not as many as policies; and when the store gives no answer, if
    /// [`FailureMode::Closed`] is set, or by [`FailureMode::Local`] the memory of this process has no room for the key
    /// either. A refusal is a [`Decision`], not an error.
    ///
    /// # Cancel safety
    ///
    /// A call that is dropped may or may not have charged the unit. It leaves nothing behind that others would notice.
    pub async fn check(&self, keys: impl Keys) -> Result<Decision, StoreError> {
        self.check_n(keys, 1).await
    }

    /// Charges `cost` units to the key, or to one key for each policy: all of them or none. A cost of 0 looks, and is
    /// always allowed.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    ///
    /// # Cancel safety
    ///
    /// As [`check`](Self::check).
    pub async fn check_n(&self, keys: impl Keys, cost: u32) -> Result<Decision, StoreError> {
        let parts = self.try_parts(keys.as_slice())?;
        self.announce(|_| None);
        match self.begin(parts, cost) {
            Begun::Decided(decision, _) => decision,
            Begun::Waits(check) => check.await,
        }
    }

    /// Looks at the key, or at one key for each policy: uses nothing, and creates no row.
    ///
    /// The decision is the one that a charge of one unit would get now, without that unit having been used.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the store gives no answer, whatever the failure mode.
    pub async fn peek(&self, keys: impl Keys) -> Result<Decision, StoreError> {
        let parts = self.try_parts(keys.as_slice())?;
        let look = Charge::new(parts.clone(), 1);
        let outcome = self.store_handle().peek(look).await?;
        Ok(decision(&parts, Vec::new(), 1, &outcome))
    }

    /// Forgets what the key has used and attempted under each policy, and says how many used units that were in force. What
    /// was counted in this process's memory while the store failed is forgotten too, and not in that number.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the store gives no answer. Some of the policies may be reset then.
    pub async fn reset(&self, keys: impl Keys) -> Result<u64, StoreError> {
        self.reset_keys(keys.as_slice(), false).await
    }

    /// Does [`reset`](Self::reset) to the key and to every key that starts with its parts, a thousand at a time.
    ///
    /// `user:42` covers `user:42|route:/login` too, and not `user:421`.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the store gives no answer. Some of the keys may be reset then.
    pub async fn reset_under(&self, prefixes: impl Keys) -> Result<u64, StoreError> {
        self.reset_keys(prefixes.as_slice(), true).await
    }

    /// Does [`reset`](Self::reset) to every key of the policy of this name, a thousand at a time. Other policies keep what they
    /// have counted.
    ///
    /// # Errors
    ///
    /// [`StoreError::UnknownPolicy`] when none of the limiter's policies has the name, without regard to case. Another
    /// [`StoreError`] when the store gives no answer: some of the keys may be reset then. One that needs more than ten seconds is
    /// [`StoreError::DeadlineExceeded`], and goes on.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Policy, StoreError};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let mails = Limiter::new(Policy::fixed(1, 3_600).name("mails")).store(&MemoryStore::new());
    /// for user in 0..3 {
    ///     assert!(mails.check(&Key::new("user", user)).await?.is_allowed());
    /// }
    /// assert_eq!(mails.reset_policy("mails").await?, 3);
    /// assert!(mails.check(&Key::new("user", 0)).await?.is_allowed());
    /// # Ok::<(), StoreError>(()) }).unwrap();
    /// ```
    pub async fn reset_policy(&self, name: &str) -> Result<u64, StoreError> {
        let part = Part {
            rule: Arc::clone(self.rule_named(name)?),
            key: Key::prefix_of_all(),
        };
        self.reset_part(&part, true).await
    }

    async fn reset_keys(&self, keys: &[Key], with_keys_under: bool) -> Result<u64, StoreError> {
        let mut units: u64 = 0;
        for part in self.try_parts(keys)?.iter() {
            units = units.saturating_add(self.reset_part(part, with_keys_under).await?);
        }
        Ok(units)
    }

    /// Resets a counter, and before it that of the refusals which block its key.
    async fn reset_part(&self, part: &Part, with_keys_under: bool) -> Result<u64, StoreError> {
        let store = self.store_handle();
        let mut units: u64 = 0;
        for part in part.block().into_iter().chain([part.clone()]) {
            let reset = Reset {
                part,
                with_keys_under,
                at: store.told_time().await?,
            };
            units = units.saturating_add(store.reset(reset).await?);
        }
        Ok(units)
    }

    /// Deletes the expired rows of the whole store now, and says how many those were. Units that were charged ahead and are
    /// idle go back as well. The store does both by itself too, but under a clock that a test sets.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the store gives no answer. Some of the rows may be deleted then.
    pub async fn sweep(&self) -> Result<u64, StoreError> {
        self.store_handle().sweep().await
    }

    /// Begins to charge the parts, which are this limiter's, or some of them.
    pub(crate) fn begin(&self, parts: Few<Part>, cost: u32) -> Begun {
        let store = self.store_handle();
        let charge = Charge::new(parts, cost);
        let reply = if cost == 0 {
            store.look(charge.clone())
        } else {
            store.charge(&charge)
        };
        Begun::with(reply, Asked::new(charge.into_policies(), cost), self)
    }

    /// Begins to charge those of the parts that were not charged before. When one that was refuses, nothing is charged: the
    /// store is asked what all of them would say to another charge, which is how long to wait.
    pub(crate) fn begin_held(&self, held: Held, cost: u32) -> Begun {
        let store = self.store_handle();
        let is_refused = held.verdicts.iter().flatten().any(Verdict::is_denied);
        let reply = if is_refused {
            let parts = held.parts.clone();
            let charge = Charge::new(parts, cost);
            // It is refused again, and uses nothing, but counts for a block.
            Some(if held.has_refusal_that_blocks() {
                store.charge(&charge)
            } else {
                store.look(charge)
            })
        } else {
            let rest = held.rest.clone();
            rest.map(|parts| store.charge(&Charge::new(parts, cost)))
        };
        match reply {
            Some(reply) => Begun::with(reply, Asked::held(held, cost), self),
            None => Begun::held(held, cost, self),
        }
    }

    pub(super) fn try_parts(&self, keys: &[Key]) -> Result<Few<Part>, StoreError> {
        let policies = self.inner.rules.len();
        if keys.len() != 1 && keys.len() != policies {
            let keys = keys.len();
            return Err(StoreError::KeyCount { keys, policies });
        }
        if keys.iter().any(|key| *key != keys[0]) && self.decides_by_key() {
            return Err(StoreError::KeysApart);
        }
        Ok(self.parts(keys))
    }

    /// Each policy with its key, of which there is one for all or one for each.
    pub(crate) fn parts(&self, keys: &[Key]) -> Few<Part> {
        let rules = &self.inner.rules;
        let mut keys = keys.iter().cycle().cloned();
        rules.map(|rule| Part {
            rule: Arc::clone(rule),
            // There is at least one, and they go round.
            key: keys.next().unwrap_or_else(|| Key::constant("")),
        })
    }

    /// Each policy with the one key of all.
    pub(crate) fn parts_of(&self, key: Key) -> Few<Part> {
        match self.inner.rules.only() {
            Some(rule) => Few::one(Part {
                rule: Arc::clone(rule),
                key,
            }),
            None => self.parts(&[key]),
        }
    }

    pub(crate) fn store_id(&self) -> StoreId {
        self.store_handle().id()
    }

    /// Whether its store decides nothing about several keys together.
    pub(crate) fn decides_by_key(&self) -> bool {
        let store = self.inner.setup.store.as_ref();
        store.is_some_and(Handle::decides_by_key)
    }

    pub(super) fn store_handle(&self) -> &Handle {
        let store = self.inner.setup.store.as_ref();
        store.unwrap_or_else(|| shared_store())
    }
}

/// The store of all limiters to which none was given: it lives as long as the process.
fn shared_store() -> &'static Handle {
    static SHARED: OnceLock<Handle> = OnceLock::new();
    SHARED.get_or_init(Handle::in_memory)
}
