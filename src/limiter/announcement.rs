//! What a limiter says in the log when it first serves.

use std::sync::atomic::Ordering;

use super::{Limiter, events};
use crate::store::{Handle, Rule};

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
            let key = key(place);
            events::announced(&rule.policy, key.as_deref(), store.name(), self.is_shadow());
            if inner.setup.store.is_some() {
                self.warn_of_odd_sharing(rule, store);
            }
        }
    }

    fn warn_of_odd_sharing(&self, rule: &Rule, store: &Handle) {
        let users = store.users();
        if users.is_odd_first_seen(&rule.counter, self.inner.setup.owner, &rule.policy) {
            events::shared(&rule.policy, store.name());
        }
    }
}
