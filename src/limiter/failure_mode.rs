//! What a limiter answers when its store does not.

/// What a limiter answers when its store fails or misses its deadline.
///
/// A refusal is an answer and never triggers it. When a store begins to fail, and when it answers again, there is one
/// log event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureMode {
    /// Refuse: the layer answers 503, [`Limiter::check`](crate::Limiter::check) returns the error. The default.
    #[default]
    Closed,
    /// Let pass, uncounted: the inner service runs, and its response has no rate limit fields.
    Open,
}
