//! Limits that are set at run time.

use std::sync::Arc;

use super::Limiter;
use crate::limit::{Key, Limit, StoredLimit};
use crate::store::{LimitsAsk, NewLimit, Rule, SetLimit, StoreError, Which};

/// A key as a client can make it has a handful of parts of some 200 bytes at most.
const LONGEST_KEY: usize = 1_024;
/// What the name in an error is shortened to.
const SHOWN: usize = 80;

/// Limits that are stored, in place of those that the policies were built with.
impl Limiter {
    /// Sets the limit of a key under a policy, or with `None` of the policy itself: of all keys without a limit of their own.
    ///
    /// It is stored, and holds for all who count under the policy's name in this store, from the next charge on: it is read in the
    /// transaction of the charge. What was used stays used, so a key whose limit falls below it has 0 left, and one whose limit
    /// rises has more at once. [`Limit::BLOCKED`] and [`Limit::EXEMPT`] are limits too. Another limit of the same key is replaced.
    ///
    /// What another process answers [from memory](crate::Policy::leases) goes on for up to 250 ms under the former limit. While the store gives no answer, limits hold that this process has set, or has met in charges.
    ///
    /// # Errors
    ///
    /// [`StoreError::UnknownPolicy`] when no policy of this limiter has the name (letter case does not count),
    /// [`StoreError::EndedLimit`] when the limit has ended already, [`StoreError::LongKey`] when the key is longer than 1,024
    /// bytes as it is stored; another [`StoreError`] when the store gives no answer, and the limit may be set or not.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Key, Limit, Limiter, MemoryStore, Policy, StoreError};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let api = Limiter::new(Policy::fixed(100, 60).name("api")).store(&MemoryStore::new());
    /// let (big, bad) = (Key::new("user", 42), Key::new("user", 13));
    ///
    /// api.set_limit("api", &big, 5_000).await?;
    /// api.set_limit("api", &bad, Limit::BLOCKED.ends_after(Duration::from_secs(3_600))).await?;
    /// // An outage elsewhere: everybody else gets less for now.
    /// api.set_limit("api", None, 20).await?;
    ///
    /// assert_eq!(api.peek(&big).await?.remaining(), 5_000);
    /// assert!(api.check(&bad).await?.is_denied());
    /// assert_eq!(api.check(&Key::new("user", 7)).await?.remaining(), 19);
    /// # Ok::<(), StoreError>(()) }).unwrap();
    /// ```
    pub async fn set_limit(
        &self,
        policy: &str,
        key: impl Into<Option<&Key>>,
        limit: impl Into<Limit>,
    ) -> Result<(), StoreError> {
        let (key, limit) = (key.into(), limit.into());
        if key.is_some_and(|key| key.as_str().len() > LONGEST_KEY) {
            return Err(StoreError::LongKey);
        }
        let now = self.store_handle().told_time().await?;
        let ends_at = limit.end(now);
        if ends_at.is_some_and(|ends_at| ends_at <= now) {
            return Err(StoreError::EndedLimit);
        }
        let new = NewLimit {
            units: limit.units(),
            ends_at,
        };
        self.change_limit(policy, key, Some(new)).await.map(drop)
    }

    /// Removes the limit of a key under a policy, or with `None` of the policy itself, and says whether there was one. What holds
    /// then is the policy's.
    ///
    /// # Errors
    ///
    /// [`StoreError::UnknownPolicy`] when no policy of this limiter has the name; another [`StoreError`] when the store gives no
    /// answer.
    pub async fn remove_limit(
        &self,
        policy: &str,
        key: impl Into<Option<&Key>>,
    ) -> Result<bool, StoreError> {
        self.change_limit(policy, key.into(), None).await
    }

    /// The limit that was set for a key under a policy, or with `None` for the policy itself. `None` when there is none, or it has
    /// ended. What is in force for a key, wherever it comes from, is in a [look](Self::peek): the limit of its policy.
    ///
    /// # Errors
    ///
    /// As [`remove_limit`](Self::remove_limit).
    pub async fn stored_limit(
        &self,
        policy: &str,
        key: impl Into<Option<&Key>>,
    ) -> Result<Option<StoredLimit>, StoreError> {
        let which = Which::Of(key.into().cloned());
        Ok(self.list_limits(policy, which).await?.into_iter().next())
    }

    /// The limits that were set for keys under a policy, in the order of the keys' texts: up to `most` of those after a key, or from
    /// the first one on. Those that have ended are left out.
    ///
    /// # Errors
    ///
    /// As [`remove_limit`](Self::remove_limit).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limit, Limiter, MemoryStore, Policy, StoreError};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let api = Limiter::new(Policy::fixed(100, 60).name("api")).store(&MemoryStore::new());
    /// for user in 0..30 {
    ///     api.set_limit("api", &Key::new("user", user), Limit::EXEMPT).await?;
    /// }
    ///
    /// let mut all = Vec::new();
    /// loop {
    ///     let page = api.stored_limits("api", all.last(), 20).await?;
    ///     let keys: Vec<_> = page.iter().filter_map(|stored| stored.key().cloned()).collect();
    ///     let is_last = keys.len() < 20;
    ///     all.extend(keys);
    ///     if is_last {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(all.len(), 30);
    /// # Ok::<(), StoreError>(()) }).unwrap();
    /// ```
    pub async fn stored_limits(
        &self,
        policy: &str,
        after: impl Into<Option<&Key>>,
        most: u32,
    ) -> Result<Vec<StoredLimit>, StoreError> {
        let after = after.into().cloned();
        self.list_limits(policy, Which::Keys { after, most }).await
    }

    async fn change_limit(
        &self,
        policy: &str,
        key: Option<&Key>,
        limit: Option<NewLimit>,
    ) -> Result<bool, StoreError> {
        let filed_under = self.rule_named(policy)?.limits.clone();
        let store = self.store_handle();
        let set = SetLimit {
            filed_under,
            key: key.cloned(),
            limit,
            now: store.told_time().await?,
        };
        store.set_limit(set).await
    }

    async fn list_limits(
        &self,
        policy: &str,
        which: Which,
    ) -> Result<Vec<StoredLimit>, StoreError> {
        let filed_under = self.rule_named(policy)?.limits.clone();
        let store = self.store_handle();
        let ask = LimitsAsk {
            filed_under,
            which,
            now: store.told_time().await?,
        };
        store.limits(ask).await
    }

    pub(super) fn rule_named(&self, policy: &str) -> Result<&Arc<Rule>, StoreError> {
        let is_meant = |rule: &&Arc<Rule>| {
            let name = rule.policy.as_name();
            name.eq_ignore_ascii_case(policy)
        };
        match self.inner.rules.iter().find(is_meant) {
            Some(rule) => Ok(rule),
            None => Err(StoreError::UnknownPolicy(
                policy.chars().take(SHOWN).collect(),
            )),
        }
    }
}
