//! A limiter as operators see it: each policy for itself, and where it counts.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::Limiter;
use super::limiter::Inner;
use super::tally::Tallies;
use crate::limit::Timestamp;
use crate::limit::few::Few;
use crate::store::Handle;

impl Limiter {
    /// A limiter of each policy alone, on the same counters, to look at them and to reset them.
    pub(crate) fn one_by_one(&self) -> impl Iterator<Item = Self> {
        self.inner.rules.iter().map(|rule| Self {
            inner: Arc::new(Inner {
                rules: Few::one(Arc::clone(rule)),
                setup: self.inner.setup.clone(),
                is_announced: AtomicBool::new(true),
                tallies: Tallies::new(),
            }),
        })
    }

    /// What the first policy's counters are filed under in the store.
    pub(crate) fn counter(&self) -> &str {
        &self.inner.rules.first().counter
    }

    pub(crate) fn shared_store(&self) -> Handle {
        self.store_handle().clone()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.store_handle().now()
    }
}
