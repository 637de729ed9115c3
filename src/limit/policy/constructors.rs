//! The constructors of a policy.

use std::time::Duration;

use super::policy::expect;
use super::{Policy, PolicyError};
use crate::limit::Algorithm;

/// The constructors, one pair for each algorithm.
impl Policy {
    /// Allows `limit` units in each aligned window of `seconds` seconds.
    ///
    /// Up to twice the limit may pass around a boundary: the end of one window and the start of the next.
    ///
    /// # Panics
    ///
    /// When the window is 0 or longer than ten years. [`Policy::try_fixed`] returns an error instead.
    #[must_use]
    #[track_caller]
    pub fn fixed(limit: u32, seconds: u64) -> Self {
        expect(Self::try_fixed(limit, Duration::from_secs(seconds)))
    }

    /// Allows `limit` units in each aligned window of this length.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] when the window is zero, longer than ten years, or has a fraction of a millisecond.
    pub fn try_fixed(limit: u32, window: Duration) -> Result<Self, PolicyError> {
        Self::of(Algorithm::FixedWindow, limit, window)
    }

    /// Never allows more than `limit` units in any window of `seconds` seconds, whatever its position.
    ///
    /// What was admitted stops counting exactly a window later; what was refused is not recorded. A decision costs the
    /// same whatever the limit. A key takes a row for each millisecond in which something was admitted, so at most
    /// `limit` of them and a few that have expired.
    ///
    /// # Panics
    ///
    /// When the window is 0 or longer than ten years. [`Policy::try_sliding`] returns an error instead.
    #[must_use]
    #[track_caller]
    pub fn sliding(limit: u32, seconds: u64) -> Self {
        expect(Self::try_sliding(limit, Duration::from_secs(seconds)))
    }

    /// Never allows more than `limit` units in any window of this length; see [`Policy::sliding`].
    ///
    /// # Errors
    ///
    /// [`PolicyError`] when the window is zero, longer than ten years, or has a fraction of a millisecond.
    pub fn try_sliding(limit: u32, window: Duration) -> Result<Self, PolicyError> {
        Self::of(Algorithm::SlidingWindow, limit, window)
    }

    /// Allows about `limit` units in any window of `seconds` seconds, by two counters for each key.
    ///
    /// The units of the aligned window before count by the part of it that the sliding window still covers, as if they
    /// had come evenly. They rarely have, so somewhat more or less than the limit may pass in a window; never more than
    /// the limit in an aligned one.
    ///
    /// # Panics
    ///
    /// When the window is 0 or longer than ten years. [`Policy::try_sliding_counter`] returns an error instead.
    #[must_use]
    #[track_caller]
    pub fn sliding_counter(limit: u32, seconds: u64) -> Self {
        expect(Self::try_sliding_counter(
            limit,
            Duration::from_secs(seconds),
        ))
    }

    /// Allows about `limit` units in any window of this length; see [`Policy::sliding_counter`].
    ///
    /// # Errors
    ///
    /// [`PolicyError`] when the window is zero, longer than ten years, or has a fraction of a millisecond.
    pub fn try_sliding_counter(limit: u32, window: Duration) -> Result<Self, PolicyError> {
        Self::of(Algorithm::SlidingCounter, limit, window)
    }

    /// Allows `rate` units in `seconds` seconds, spread evenly, and as many at once as the bucket holds: `rate`, unless
    /// [`burst`](Self::burst) says otherwise.
    ///
    /// The bucket is full at first and fills at the rate. This is the generic cell rate algorithm, in exact fractions.
    ///
    /// # Panics
    ///
    /// When `seconds` is 0 or more than ten years. [`Policy::try_token_bucket`] returns an error instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Policy;
    ///
    /// let api = Policy::token_bucket(10, 1).burst(50).name("api");
    /// assert_eq!(api.to_string(), "api: 10 per 1 s with bursts of 50, token bucket");
    /// // 50 units at once, which take 5 seconds to come back.
    /// assert_eq!((api.limit(), api.window().as_secs()), (50, 5));
    /// ```
    #[must_use]
    #[track_caller]
    pub fn token_bucket(rate: u32, seconds: u64) -> Self {
        expect(Self::try_token_bucket(rate, Duration::from_secs(seconds)))
    }

    /// Allows `rate` units in each `period`, spread evenly; see [`Policy::token_bucket`].
    ///
    /// # Errors
    ///
    /// [`PolicyError`] when the period is zero, longer than ten years, or has a fraction of a millisecond.
    pub fn try_token_bucket(rate: u32, period: Duration) -> Result<Self, PolicyError> {
        Self::of(Algorithm::TokenBucket, rate, period)
    }

    /// Allows `limit` units in each hour of the UTC calendar.
    #[must_use]
    pub fn hourly(limit: u32) -> Self {
        Self::calendar(Algorithm::CalendarHour, limit)
    }

    /// Allows `limit` units in each day of the UTC calendar, from midnight to midnight.
    #[must_use]
    pub fn daily(limit: u32) -> Self {
        Self::calendar(Algorithm::CalendarDay, limit)
    }

    /// Allows `limit` units in each month of the UTC calendar. Its [`window`](Self::window) is told as 31 days.
    #[must_use]
    pub fn monthly(limit: u32) -> Self {
        Self::calendar(Algorithm::CalendarMonth, limit)
    }
}
