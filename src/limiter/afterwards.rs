//! What is known only when the work is done: more that was used, and what should not count.

use super::check::Asked;
use super::{Begun, Keys, Limiter};
use crate::limit::Decision;
use crate::limit::algorithm::Taken;
use crate::limit::few::Few;
use crate::store::{Charge, GiveBack, Part, StoreError};

impl Limiter {
    /// Charges units that were used already: they are taken whether they fit or not. What is used may pass the limit then, and
    /// nothing is left until enough of it has gone.
    ///
    /// For a cost that is known only afterwards: [`check`](Self::check) one unit before the work, and record the rest when it is
    /// done. A cost of 0 looks.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    ///
    /// # Cancel safety
    ///
    /// The units are on their way once this was polled for the first time, also when it is dropped then.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Policy, StoreError};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let tokens = Limiter::new(Policy::hourly(1_000).name("tokens")).store(&MemoryStore::new());
    /// let user = Key::new("user", 42);
    ///
    /// assert!(tokens.check(&user).await?.is_allowed());
    /// // The answer took 1,500 of them:
    /// let after = tokens.record(&user, 1_499).await?;
    /// assert_eq!((after.used(), after.remaining()), (1_500, 0));
    /// # Ok::<(), StoreError>(()) }).unwrap();
    /// ```
    pub async fn record(&self, keys: impl Keys, cost: u32) -> Result<Decision, StoreError> {
        let parts = self.try_parts(keys.as_slice())?;
        match self.begin_used(parts, cost) {
            Begun::Decided(decision, _) => decision,
            Begun::Waits(check) => check.await,
        }
    }

    /// Gives back what a decision has charged, of every policy, as if the charge had not been made: for a request that should
    /// not count after all.
    ///
    /// Units go back to the window that they were taken from, never to another one, and never below zero; where the key was
    /// reset since, none do. A [block](crate::Policy::block_for) that began while they were out ends. Of a token bucket as much goes back as can't have drained since. A refused decision has charged
    /// nothing, and neither has a look. Refund each decision once: the store can't tell a second time from another charge's units.
    ///
    /// The decision may be one of a layer with this [limiter](crate::RateLimitLayer::limiter), or of another limiter on the same
    /// given [store](Self::store).
    ///
    /// # Errors
    ///
    /// [`StoreError::ForeignDecision`] when the decision is about counters of another store, or of another limiter on the store
    /// that the process shares. Another [`StoreError`] when the store gives no answer: it takes the units back later, unless the
    /// process ends first.
    ///
    /// # Cancel safety
    ///
    /// The units are on their way once this was polled for the first time, also when it is dropped then.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Policy, StoreError};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let exports = Limiter::new(Policy::daily(3).name("exports")).store(&MemoryStore::new());
    /// let user = Key::new("user", 42);
    ///
    /// let decision = exports.check(&user).await?;
    /// // The export has failed:
    /// exports.refund(&decision).await?;
    /// assert_eq!(exports.peek(&user).await?.remaining(), 3);
    /// # Ok::<(), StoreError>(()) }).unwrap();
    /// ```
    pub async fn refund(&self, decision: &Decision) -> Result<(), StoreError> {
        self.begin_refund(decision)?.await
    }

    /// Gives back what a decision has charged, and leaves it to the store: nobody waits for the answer.
    pub(crate) fn refund_unheard(&self, decision: &Decision) {
        // A layer gives back its own decisions. They are on their way when this returns.
        drop(self.begin_refund(decision));
    }

    /// Begins to give back what a decision has charged.
    fn begin_refund(
        &self,
        decision: &Decision,
    ) -> Result<impl Future<Output = Result<(), StoreError>> + use<>, StoreError> {
        let mut units = Vec::new();
        let mut is_local = false;
        for verdict in decision.verdicts() {
            let Some(charged_by) = verdict.charged_by() else {
                continue;
            };
            is_local = charged_by == self.charges_locally_as();
            if !is_local && charged_by != self.charges_as() {
                return Err(StoreError::ForeignDecision);
            }
            let taken_at = verdict.decided_at();
            let part = self.part(verdict.policy().clone(), verdict.key().clone());
            units.extend(part.block().map(|block| GiveBack {
                part: block,
                units: 0,
                from: Taken::Refusals { since: taken_at },
                taken_at,
            }));
            units.push(GiveBack {
                part,
                units: verdict.cost(),
                from: verdict.taken(),
                taken_at,
            });
        }
        Ok(self.store_handle().give_back(units, is_local))
    }

    /// Charges what was used already, and leaves it to the store: nobody waits for the answer.
    pub(crate) fn record_unheard(&self, parts: Few<Part>, cost: u32) {
        // When the store refuses it at once, the failure mode decides; what comes later goes its way.
        drop(self.begin_used(parts, cost));
    }

    /// Begins to charge what was used already.
    fn begin_used(&self, parts: Few<Part>, cost: u32) -> Begun {
        if cost == 0 {
            return self.begin(parts, 0);
        }
        let charge = Charge::forced(parts, cost);
        let reply = self.store_handle().charge(&charge);
        Begun::with(reply, Asked::forced(charge.into_policies(), cost), self)
    }
}
