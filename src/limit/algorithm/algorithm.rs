//! The name of each algorithm.

use std::fmt;

/// How a [`Policy`](crate::Policy) counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// One counter for each aligned window: `t - t % window`, in UTC.
    ///
    /// Up to twice the limit may pass around a boundary: the end of one window and the start of the next.
    FixedWindow,
    /// Every admitted unit is remembered for a window: never more than the limit in any window.
    SlidingWindow,
    /// Two counters of aligned windows, of which the earlier counts by the part that is still covered.
    SlidingCounter,
    /// A bucket that fills at a steady rate (the generic cell rate algorithm).
    TokenBucket,
    /// One counter for each hour of the UTC calendar.
    CalendarHour,
    /// One counter for each day of the UTC calendar.
    CalendarDay,
    /// One counter for each month of the UTC calendar.
    CalendarMonth,
}

impl Algorithm {
    /// The word that stands in stored counters. Stored data hangs on it.
    pub(crate) fn token(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed",
            Self::SlidingWindow => "sliding",
            Self::SlidingCounter => "counter",
            Self::TokenBucket => "bucket",
            Self::CalendarHour => "hour",
            Self::CalendarDay => "day",
            Self::CalendarMonth => "month",
        }
    }

    /// The word that stands in the names of policies which were given none: that of the constructor.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed",
            Self::SlidingWindow => "sliding",
            Self::SlidingCounter => "sliding-counter",
            Self::TokenBucket => "token-bucket",
            Self::CalendarHour => "hourly",
            Self::CalendarDay => "daily",
            Self::CalendarMonth => "monthly",
        }
    }

    pub(crate) fn is_calendar(self) -> bool {
        matches!(
            self,
            Self::CalendarHour | Self::CalendarDay | Self::CalendarMonth
        )
    }

    /// Whether each window has one counter, which alone decides.
    #[cfg(any(feature = "_engine", feature = "admin"))]
    pub(crate) fn is_one_window(self) -> bool {
        self == Self::FixedWindow || self.is_calendar()
    }

    /// Whether a unit that is taken in a window fits as long as that lasts: it may be spent later.
    #[cfg(any(feature = "_engine", feature = "admin"))]
    pub(crate) fn keeps_units(self) -> bool {
        self.is_one_window() || self == Self::SlidingCounter
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FixedWindow => "fixed window",
            Self::SlidingWindow => "sliding window",
            Self::SlidingCounter => "sliding counter",
            Self::TokenBucket => "token bucket",
            Self::CalendarHour => "calendar hour",
            Self::CalendarDay => "calendar day",
            Self::CalendarMonth => "calendar month",
        })
    }
}
