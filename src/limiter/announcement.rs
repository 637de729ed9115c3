//! What a limiter says in the log when it first serves.

use std::sync::atomic::Ordering;

use super::Limiter;
use crate::store::{Rule, StoreHandle};

impl Limiter {
    /// Says once what each policy is and where it counts, so that swapped arguments are seen. `key` tells what the policy
    /// of this place is keyed on.
    pub(crate) fn announce(&self, key: impl Fn(usize) -> Option<String>) {
        let inner = &*self.inner;
        if inner.is_announced.load(Ordering::Relaxed)
            || inner.is_announced.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let store = self.store_handle();
        for (place, rule) in inner.rules.iter().enumerate() {
            let (policy, store_name) = (&rule.policy, store.name());
            let key = key(place).map_or_else(String::new, |key| format!(", key {key}"));
            tracing::info!("{policy}{key}, store {store_name}");
            if inner.store.is_some() {
                self.warn_of_odd_sharing(rule, store);
            }
        }
    }

    fn warn_of_odd_sharing(&self, rule: &Rule, store: &StoreHandle) {
        let (policy, store_name) = (&rule.policy, store.name());
        let users = store.users();
        if !users.is_odd_first_seen(&rule.counter, self.inner.owner, policy) {
            return;
        }
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
