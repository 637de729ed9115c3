//! How long what was recorded is kept.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::clock;

/// A month.
const OF_CALLS: Duration = Duration::from_secs(30 * 86_400);
/// A year, and a month to compare it with.
const OF_USAGE: Duration = Duration::from_secs(400 * 86_400);

/// A store that records deletes nothing before: in so long a program says whether it wants another time than the usual one.
const TO_BE_SET: Duration = Duration::from_secs(30);

/// How long what was recorded is kept, and whether this store deletes it then at all: one that only counts, or reads, was not
/// told how long others mean to keep it. A store's handles share it with its writer.
#[derive(Debug)]
pub(super) struct Retention {
    calls_millis: AtomicU64,
    usage_millis: AtomicU64,
    is_set: AtomicBool,
    records_since: OnceLock<Instant>,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            calls_millis: AtomicU64::new(millis(OF_CALLS)),
            usage_millis: AtomicU64::new(millis(OF_USAGE)),
            is_set: AtomicBool::new(false),
            records_since: OnceLock::new(),
        }
    }
}

impl Retention {
    /// Notes that this store records.
    pub(super) fn records(&self) {
        self.records_since.get_or_init(clock::monotonic);
    }

    /// Whether what is older is deleted.
    pub(super) fn is_in_force(&self) -> bool {
        let has_waited = |since: &Instant| clock::monotonic().duration_since(*since) >= TO_BE_SET;
        self.is_set.load(Ordering::Acquire) || self.records_since.get().is_some_and(has_waited)
    }

    /// How long an allowed request is kept.
    pub(super) fn of_calls(&self) -> Duration {
        Duration::from_millis(self.calls_millis.load(Ordering::Relaxed))
    }

    pub(super) fn set_of_calls(&self, kept_for: Duration) {
        self.calls_millis.store(millis(kept_for), Ordering::Relaxed);
        self.is_set.store(true, Ordering::Release);
    }

    /// How long the sums of a day are kept after it.
    pub(super) fn of_usage(&self) -> Duration {
        Duration::from_millis(self.usage_millis.load(Ordering::Relaxed))
    }

    pub(super) fn set_of_usage(&self, kept_for: Duration) {
        self.usage_millis.store(millis(kept_for), Ordering::Relaxed);
        self.is_set.store(true, Ordering::Release);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
