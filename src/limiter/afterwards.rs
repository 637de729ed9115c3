//! What is known only when the work is done: more that was used, and what should not count.

use super::{Charged, Check, Keys, Limiter};
use crate::limit::Decision;
use crate::limit::few::Few;
use crate::store::{Charge, Part, StoreError};

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
        self.begin_used(parts, cost).await
    }

    /// Gives back what a decision has charged, of every policy, as if the charge had not been made: for a request that should
    /// not count after all.
    ///
    /// Units go back to the window that they were taken from, never to another one, and never below zero; where the key was
    /// reset since, none do. Of a token bucket as much goes back as can't have drained since. A refused decision has charged
    /// nothing. Refund each decision once: the store can't tell a second time from another charge's units.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the store gives no answer. The units may stay charged then.
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
        let keys = decision.verdicts().map(|verdict| verdict.key().clone());
        let parts = self.try_parts(&keys.collect::<Vec<_>>())?;
        let is_local = decision.is_degraded();
        Charged::of(parts, is_local).refund(self, decision).await
    }

    /// Charges what was used already, and leaves it to the store: nobody waits for the answer.
    pub(crate) fn record_unheard(&self, parts: Few<Part>, cost: u32) {
        // When the store refuses it at once, the failure mode decides; what comes later goes its way.
        drop(self.begin_used(parts, cost).take_ready());
    }

    /// Begins to charge what was used already.
    fn begin_used(&self, parts: Few<Part>, cost: u32) -> Check {
        if cost == 0 {
            return self.begin(parts, 0);
        }
        let charge = Charge::forced(parts, cost);
        let reply = self.store_handle().charge(&charge);
        Check::forced(self.clone(), reply, charge.into_policies(), cost)
    }
}
