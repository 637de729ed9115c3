//! A limit on trial.

use super::RateLimitLayer;

impl RateLimitLayer {
    /// Decides and counts with `true`, but refuses nobody: to see whom a new limit would hit. `false` by default.
    ///
    /// Whatever would be answered in place of the inner service is not: requests over the limit, without a key, with a
    /// mistake in the set-up and while the store fails all go on. Responses have no rate limit fields, since the limit is
    /// not in force. What was decided is in [`Decisions::shadows`](crate::Decisions::shadows), and is told by `tracing`:
    /// `tollgate.shadow_refused` at info for each request that the limit would have refused.
    ///
    /// A shadow counts apart, on the same store: it uses nothing of a limit in force with the same name, and nothing of
    /// that is used up when the shadow is taken away. So a limit that comes into force begins with counters of its own,
    /// and refuses nobody for what was counted before. [`limiter`](Self::limiter) looks at the shadow's.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::sliding(20, 60).name("api").shadow(true);
    /// ```
    #[must_use]
    pub fn shadow(self, is_shadow: bool) -> Self {
        let limiter = self.limiter().shadow(is_shadow);
        self.with(|settings| settings.set_limiter(limiter))
    }
}
