//! What a limiter answers when its store does not.

/// What a limiter answers when its store fails, misses its deadline, or was closed.
///
/// A refusal is an answer and never triggers it. When a store begins to fail, and when it answers again, there is one
/// log event.
///
/// After a few failures in a row a store in SQLite is not asked for a moment, and whoever charges it gets
/// [`StoreError::BreakerOpen`](crate::StoreError::BreakerOpen) at once, for which the mode decides too.
///
/// # Examples
///
/// ```
/// use tollgate::{FailureMode, RateLimitLayer};
///
/// // Rather a 503 than a login that is limited by this process alone.
/// let login = RateLimitLayer::sliding(5, 900).name("login").on_store_failure(FailureMode::Closed);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureMode {
    /// Go on limiting in this process's memory, with the same policies, until the store answers again. The default.
    ///
    /// The decisions are real ones with real numbers, and their responses have the rate limit fields;
    /// [`Decision::is_degraded`](crate::Decision::is_degraded) tells them apart. The memory begins empty, so while the
    /// store fails a key may use up to its limit once more, in each process. What is counted there is not written to the
    /// store afterwards.
    ///
    /// All limiters on a store share that memory as they share the store. It holds 262,144 keys, and makes room like a
    /// [`MemoryStore`](crate::MemoryStore); when none may go, a new key gets the store's error, as with
    /// [`Closed`](Self::Closed). A `MemoryStore` has no other memory to go to: its error stays one.
    #[default]
    Local,
    /// Let pass, uncounted: the inner service runs, and its response has no rate limit fields.
    Open,
    /// Refuse: the layer answers 503, [`Limiter::check`](crate::Limiter::check) returns the error.
    Closed,
}
