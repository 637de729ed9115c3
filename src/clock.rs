//! The only file that reads the time: the system's, or one that a test sets.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::limit::Timestamp;

/// Tells the time of decisions.
#[derive(Clone, Debug, Default)]
pub(crate) enum Clock {
    #[default]
    System,
    #[cfg(any(test, feature = "test-util"))]
    Manual(ManualClock),
}

impl Clock {
    /// Whether a test sets it.
    #[cfg(feature = "sqlite")]
    pub(crate) fn is_manual(&self) -> bool {
        !matches!(self, Self::System)
    }

    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::System => system_now(),
            #[cfg(any(test, feature = "test-util"))]
            Self::Manual(clock) => clock.now(),
        }
    }
}

/// Real time that never steps back, for deadlines and for the pace of background work. A set clock does not move it.
pub(crate) fn monotonic() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "this file reads the time")]
    Instant::now()
}

fn system_now() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "this file reads the time")]
    let now = SystemTime::now();
    let millis = match now.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => {
            i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |millis| -millis)
        }
    };
    Timestamp::from_unix_millis(millis)
}

#[cfg(any(test, feature = "test-util"))]
pub use self::manual::ManualClock;

#[cfg(any(test, feature = "test-util"))]
mod manual {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Duration;

    use crate::limit::Timestamp;
    use crate::limit::timestamp::millis;

    /// A clock for tests: it stands still until it is set. Clones are the same clock.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "test-util")] {
    /// use std::time::Duration;
    /// use tollgate::{ManualClock, Timestamp};
    ///
    /// let clock = ManualClock::new(Timestamp::from_unix_millis(0));
    /// clock.advance(Duration::from_secs(60));
    /// assert_eq!(clock.now(), Timestamp::from_unix_millis(60_000));
    /// # }
    /// ```
    #[derive(Clone, Debug)]
    pub struct ManualClock(Arc<AtomicI64>);

    impl ManualClock {
        /// A clock that shows `now`.
        #[must_use]
        pub fn new(now: Timestamp) -> Self {
            Self(Arc::new(AtomicI64::new(now.unix_millis())))
        }

        /// What the clock shows.
        #[must_use]
        pub fn now(&self) -> Timestamp {
            Timestamp::from_unix_millis(self.0.load(Ordering::SeqCst))
        }

        /// Sets the clock, forward or back.
        pub fn set(&self, now: Timestamp) {
            self.0.store(now.unix_millis(), Ordering::SeqCst);
        }

        /// Moves the clock forward, by whole milliseconds.
        pub fn advance(&self, by: Duration) {
            let step = millis(by);
            self.0
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| {
                    Some(now.saturating_add(step))
                })
                .ok();
        }
    }
}
