//! What a test has done to the time.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// How the server's clock is moved, and whether it counts at all. Nothing of it is set outside tests.
#[derive(Debug, Default)]
pub(in crate::store::postgres) struct TestTime {
    shift: AtomicI64,
    is_given: AtomicBool,
}

impl TestTime {
    /// By how many milliseconds the server's clock is moved.
    pub(in crate::store::postgres) fn shift(&self) -> i64 {
        self.shift.load(Ordering::Relaxed)
    }

    /// Whether all goes by a clock of the test's.
    pub(super) fn is_given(&self) -> bool {
        self.is_given.load(Ordering::Relaxed)
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(in crate::store::postgres) fn move_by(&self, millis: i64) {
        self.shift.store(millis, Ordering::Relaxed);
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(in crate::store::postgres) fn give(&self) {
        self.is_given.store(true, Ordering::Relaxed);
    }
}
