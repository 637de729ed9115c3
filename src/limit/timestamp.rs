//! An instant, as every decision and every stored row counts it.

use std::fmt;
use std::time::Duration;

/// An instant in UTC: whole milliseconds since 1970-01-01T00:00:00Z, without leap seconds.
///
/// All arithmetic saturates, so no instant and no duration can make it wrap.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::Timestamp;
///
/// let noon = Timestamp::from_unix_millis(1_800_000_000_000);
/// let later = noon.saturating_add(Duration::from_millis(1_500));
/// assert_eq!(later.saturating_duration_since(noon), Duration::from_millis(1_500));
/// assert_eq!(noon.saturating_duration_since(later), Duration::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The instant that lies `millis` milliseconds after the Unix epoch, or before it when negative.
    #[must_use]
    pub const fn from_unix_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn unix_millis(self) -> i64 {
        self.0
    }

    /// Seconds since the Unix epoch, rounded up: the first whole second that is not before this instant.
    #[must_use]
    pub const fn unix_seconds_ceil(self) -> i64 {
        let floor = self.0.div_euclid(1_000);
        if self.0.rem_euclid(1_000) == 0 {
            floor
        } else {
            floor + 1
        }
    }

    /// This instant moved forward; what is less than a millisecond is dropped.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// The time from `earlier` to this instant, or zero when `earlier` is later.
    #[must_use]
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.millis_since(earlier))
    }

    /// The milliseconds from `earlier` to this instant, or 0 when `earlier` is later.
    pub(crate) fn millis_since(self, earlier: Self) -> u64 {
        let millis = i128::from(self.0) - i128::from(earlier.0);
        u64::try_from(millis.max(0)).unwrap_or(u64::MAX)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({} ms)", self.0)
    }
}

/// A duration in whole milliseconds, at most `i64::MAX`.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// A duration in whole seconds, rounded up.
pub(crate) fn seconds_ceil(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_add(u64::from(duration.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let first = Timestamp::from_unix_millis(i64::MIN);
        let last = Timestamp::from_unix_millis(i64::MAX);
        assert_eq!(last.saturating_add(Duration::MAX), last);
        assert_eq!(
            last.saturating_duration_since(first),
            Duration::from_millis(u64::MAX)
        );
        assert_eq!(first.saturating_duration_since(last), Duration::ZERO);
        assert_eq!(last.unix_seconds_ceil(), i64::MAX / 1_000 + 1);
        assert_eq!(first.unix_seconds_ceil(), i64::MIN / 1_000);
    }

    #[test]
    fn seconds_round_up() {
        assert_eq!(seconds_ceil(Duration::from_millis(2_000)), 2);
        assert_eq!(seconds_ceil(Duration::from_millis(2_001)), 3);
        assert_eq!(seconds_ceil(Duration::from_nanos(1)), 1);
        assert_eq!(seconds_ceil(Duration::MAX), u64::MAX);
        assert_eq!(Timestamp::from_unix_millis(-1).unix_seconds_ceil(), 0);
        assert_eq!(Timestamp::from_unix_millis(1).unix_seconds_ceil(), 1);
    }
}
