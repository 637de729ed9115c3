//! The clock of one store.

use std::sync::OnceLock;

use crate::clock::Clock;
use crate::limit::Timestamp;

/// The clock of one store: its own, unless a limiter that has one sets it. Only the first one counts.
#[derive(Debug, Default)]
pub(super) struct StoreClock {
    own: Clock,
    set: OnceLock<Clock>,
}

impl StoreClock {
    #[cfg(feature = "_engine")]
    pub(super) fn new(own: Clock) -> Self {
        Self {
            own,
            set: OnceLock::new(),
        }
    }

    pub(super) fn get(&self) -> &Clock {
        self.set.get().unwrap_or(&self.own)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.get().now()
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn set(&self, clock: Clock) {
        self.set.get_or_init(|| clock);
    }
}
