//! How a layer tells the waits of its refusals.

use std::time::Duration;

use super::RateLimitLayer;

/// The longest jitter: as long as the longest window, so that a wait in seconds stays a number of 15 digits.
const MAX_JITTER: Duration = Duration::from_hours(10 * 366 * 24);

impl RateLimitLayer {
    /// Tells a longer wait as this one: `Retry-After` of a daily quota may be `3600`. By default each wait is told exactly.
    ///
    /// Everything that a refusal says of its wait agrees: the header, `retry_after` of the body, `t` of `RateLimit`, the
    /// pushback of gRPC, and the decision that [`rejection`](Self::rejection) sees. A client that comes back after a
    /// capped wait may be refused again. The 503 of a failed store is not capped.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::daily(1_000).retry_after_max(Duration::from_hours(1));
    /// ```
    #[must_use]
    pub fn retry_after_max(self, max: Duration) -> Self {
        self.with(|settings| settings.told_waits.max = Some(max))
    }

    /// Tells no wait at all when it is longer than this: neither `Retry-After`, nor `retry_after`, nor `t`, nor
    /// `X-RateLimit-Reset`, nor a pushback. By default every wait is told.
    ///
    /// It asks the exact wait, before [`retry_after_max`](Self::retry_after_max) and [`jitter`](Self::jitter) change it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Policy, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new([
    ///     Policy::sliding(20, 1).name("burst"),
    ///     Policy::monthly(10_000).name("plan"),
    /// ])
    /// .no_retry_after_above(Duration::from_mins(10));
    /// ```
    #[must_use]
    pub fn no_retry_after_above(self, most: Duration) -> Self {
        self.with(|settings| settings.told_waits.silent_above = Some(most))
    }

    /// Makes the wait of each refusal longer by a random time from 0 to `max`, so that the clients of one window don't come
    /// back at once. Off by default; more than ten years count as ten years.
    ///
    /// It is drawn once for a refusal: all that is said of the wait agrees. It is added to what
    /// [`retry_after_max`](Self::retry_after_max) leaves of the wait, and never shortens it. `Retry-After` has whole
    /// seconds: a jitter of less than a second shows itself in the pushback of gRPC, and elsewhere now and then.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::fixed(100, 60).jitter(Duration::from_secs(10));
    /// ```
    #[must_use]
    pub fn jitter(self, max: Duration) -> Self {
        self.with(|settings| settings.jitter = max.min(MAX_JITTER))
    }
}
