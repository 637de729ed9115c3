//! How long what was recorded is kept.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A month.
const OF_CALLS: Duration = Duration::from_secs(30 * 86_400);
/// A year, and a month to compare it with.
const OF_USAGE: Duration = Duration::from_secs(400 * 86_400);

/// How long what was recorded is kept; a store's handles share it with its writer.
#[derive(Debug)]
pub(super) struct Retention {
    calls_millis: AtomicU64,
    usage_millis: AtomicU64,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            calls_millis: AtomicU64::new(millis(OF_CALLS)),
            usage_millis: AtomicU64::new(millis(OF_USAGE)),
        }
    }
}

impl Retention {
    /// How long an allowed request is kept.
    pub(super) fn of_calls(&self) -> Duration {
        Duration::from_millis(self.calls_millis.load(Ordering::Relaxed))
    }

    pub(super) fn set_of_calls(&self, kept_for: Duration) {
        self.calls_millis.store(millis(kept_for), Ordering::Relaxed);
    }

    /// How long the sums of a day are kept after it.
    pub(super) fn of_usage(&self) -> Duration {
        Duration::from_millis(self.usage_millis.load(Ordering::Relaxed))
    }

    pub(super) fn set_of_usage(&self, kept_for: Duration) {
        self.usage_millis.store(millis(kept_for), Ordering::Relaxed);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
