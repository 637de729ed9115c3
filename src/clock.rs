//! The only file that reads the time: the system's, or one that a test sets.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::limit::Timestamp;

/// Tells the time of decisions.
#[derive(Clone, Debug, Default)]
pub(crate) enum Clock {
    #[default]
    System,
    /// That of a server which decides.
    #[cfg(feature = "_engine")]
    #[cfg_attr(
        not(any(test, feature = "postgres", feature = "records", feature = "redis")),
        expect(dead_code, reason = "no store of this build has a server")
    )]
    Server(ServerClock),
    #[cfg(any(test, feature = "test-util"))]
    Manual(ManualClock),
}

impl Clock {
    /// What a test has set it to, if one sets it.
    #[cfg(feature = "_engine")]
    pub(crate) fn manual(&self) -> Option<Timestamp> {
        match self {
            Self::System | Self::Server(_) => None,
            #[cfg(any(test, feature = "test-util"))]
            Self::Manual(clock) => Some(clock.now()),
        }
    }

    /// Whether it is an estimate of a server's.
    #[cfg(feature = "_engine")]
    pub(crate) fn is_estimate(&self) -> bool {
        matches!(self, Self::Server(_))
    }

    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::System => system_now(),
            #[cfg(feature = "_engine")]
            Self::Server(clock) => clock.now(),
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

/// By how many milliseconds a test has the system's clock off.
#[cfg(any(test, feature = "test-util"))]
static SKEW: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(0);

/// Has the system's clock show another time by so many milliseconds, for the whole process: what a machine is whose clock is off.
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub fn skew_system_clock(millis: i64) {
    SKEW.store(millis, std::sync::atomic::Ordering::SeqCst);
}

fn system_now() -> Timestamp {
    let now = unix_millis();
    #[cfg(any(test, feature = "test-util"))]
    let now = now.saturating_add(SKEW.load(std::sync::atomic::Ordering::Relaxed));
    Timestamp::from_unix_millis(now)
}

fn unix_millis() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "this file reads the time")]
    let now = SystemTime::now();
    match now.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => {
            i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |millis| -millis)
        }
    }
}

#[cfg(feature = "_engine")]
pub(crate) use self::server::ServerClock;

#[cfg(feature = "_engine")]
mod server {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Instant;

    use crate::limit::Timestamp;

    /// An estimate of a server's clock that is never behind it: what was charged ahead is spent in its own window only, so it may
    /// end early and must not end late. Clones are the same clock.
    ///
    /// It goes on from the instant at which a call was *sent* whose answer told the time: that was later. A machine that sleeps
    /// stops its monotonic clock, and others set its system's: the one that is further ahead counts.
    #[derive(Clone, Debug)]
    pub(crate) struct ServerClock(Arc<Offsets>);

    /// The server's time without that of a clock of this machine, in milliseconds.
    #[derive(Debug)]
    struct Offsets {
        began: Instant,
        of_monotonic: AtomicI64,
        of_system: AtomicI64,
    }

    /// An offset that is not known.
    const UNHEARD: i64 = i64::MIN;

    impl ServerClock {
        /// The clock of a server that was not heard yet: until then the system's stands in.
        #[cfg_attr(
            not(any(test, feature = "postgres", feature = "records", feature = "redis")),
            expect(dead_code, reason = "no store of this build has a server")
        )]
        pub(crate) fn new() -> Self {
            Self(Arc::new(Offsets {
                began: super::monotonic(),
                of_monotonic: AtomicI64::new(UNHEARD),
                of_system: AtomicI64::new(UNHEARD),
            }))
        }

        /// Notes what an answer told, and when its question was sent.
        #[cfg_attr(
            not(any(test, feature = "postgres", feature = "records", feature = "redis")),
            expect(dead_code, reason = "no store of this build has a server")
        )]
        pub(crate) fn heard(&self, sent: Instant, at: Timestamp) {
            let at = at.unix_millis();
            let sent_at = self.millis_at(sent);
            let gone = self.millis_at(super::monotonic()) - sent_at;
            let system_sent_at = super::system_now().unix_millis().saturating_sub(gone);
            let offsets = &self.0;
            let of_system = at.saturating_sub(system_sent_at);
            offsets.of_system.store(of_system, Ordering::Relaxed);
            let of_monotonic = at.saturating_sub(sent_at);
            offsets.of_monotonic.store(of_monotonic, Ordering::Relaxed);
        }

        fn is_heard(&self) -> bool {
            self.0.of_monotonic.load(Ordering::Relaxed) != UNHEARD
        }

        pub(crate) fn now(&self) -> Timestamp {
            let system = super::system_now();
            if !self.is_heard() {
                return system;
            }
            let shown = |local: i64, offset: &AtomicI64| {
                local.saturating_add(offset.load(Ordering::Relaxed))
            };
            let monotonic = self.millis_at(super::monotonic());
            let later = shown(monotonic, &self.0.of_monotonic)
                .max(shown(system.unix_millis(), &self.0.of_system));
            // All of them are rounded down: the server's may be in the next millisecond.
            Timestamp::from_unix_millis(later.saturating_add(1))
        }

        fn millis_at(&self, instant: Instant) -> i64 {
            let since = instant.saturating_duration_since(self.0.began);
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        }
    }

    #[cfg(test)]
    mod tests {
        use std::time::Duration;

        use super::*;

        #[test]
        fn a_server_that_was_not_heard_shows_the_time_of_the_system() {
            let clock = ServerClock::new();
            assert!(!clock.is_heard());
            let before = crate::clock::Clock::System.now();
            assert!(clock.now() >= before);
        }

        #[test]
        fn it_goes_on_from_when_the_question_was_sent() {
            let clock = ServerClock::new();
            let hour = 3_600_000;
            let sent = clock.0.began;
            clock.heard(sent, Timestamp::from_unix_millis(hour));
            let asked_at = crate::clock::monotonic();
            let now = clock.now().unix_millis();
            let gone = i64::try_from(asked_at.duration_since(sent).as_millis()).unwrap();
            assert!(now > hour + gone, "{now} is not ahead of {hour} + {gone}");
            let answered = sent + Duration::from_millis(40);
            clock.heard(answered, Timestamp::from_unix_millis(2 * hour));
            assert!(
                clock.now().unix_millis() >= 2 * hour - 40,
                "it follows the last answer"
            );
        }
    }
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
