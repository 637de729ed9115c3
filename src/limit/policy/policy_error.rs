//! Why a policy can't be built.

use std::error::Error;
use std::fmt;

use crate::limit::Mistake;

/// Why a [`Policy`](crate::Policy), or a limiter of several, can't be built.
///
/// [`fmt::Debug`] says the same as [`fmt::Display`]: it is what `main` and `unwrap` print. Both end with the mistake's
/// [name](Self::name) in brackets.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// The window has no length.
    ZeroWindow,
    /// The window is longer than ten years.
    WindowTooLong,
    /// The window has a fraction of a millisecond.
    WindowFraction,
    /// The name, shortened to 80 characters, is no valid one.
    InvalidName(String),
    /// The burst of a token bucket would take longer than ten years to come back, or for ever since its rate is 0.
    BurstTooLarge,
    /// A burst was set on a policy that is no token bucket.
    BurstWithoutBucket,
    /// A block after 0 refusals, or one that lasts for 0, for more than ten years, or for a fraction of a millisecond.
    InvalidBlock,
    /// There is no policy in the list.
    NoPolicy,
    /// Two policies of one limiter have this name. Names are compared without regard to case.
    DuplicateName(String),
    /// A name, a burst or a block was set on a limiter of several policies, which can't tell for which of them it is.
    SeveralPolicies,
    /// Policies of one layer have keys of their own, and its store is a cluster of Redis.
    KeysApart,
}

impl PolicyError {
    /// The stable name of the mistake, under which the page `docs/errors.md` tells the cure.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Policy;
    ///
    /// let error = Policy::try_fixed(3, Duration::ZERO).unwrap_err();
    /// assert_eq!(error.name(), "zero-window");
    /// assert!(error.to_string().ends_with("[zero-window]"));
    /// ```
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.mistake().0
    }

    fn mistake(&self) -> Mistake {
        match self {
            Self::ZeroWindow => Mistake("zero-window"),
            Self::WindowTooLong => Mistake("window-too-long"),
            Self::WindowFraction => Mistake("window-fraction"),
            Self::InvalidName(_) => Mistake("invalid-name"),
            Self::BurstTooLarge => Mistake("burst-too-large"),
            Self::BurstWithoutBucket => Mistake("burst-without-bucket"),
            Self::InvalidBlock => Mistake("invalid-block"),
            Self::NoPolicy => Mistake("no-policy"),
            Self::DuplicateName(_) => Mistake("duplicate-name"),
            Self::SeveralPolicies => Mistake("several-policies"),
            Self::KeysApart => Mistake("keys-apart"),
        }
    }
}

impl fmt::Debug for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidName(name) => write!(
                f,
                "{name:?} can't name a policy: use 1 to 64 characters, a letter first, then letters, digits and _ . : / * -"
            ),
            Self::DuplicateName(name) => write!(
                f,
                "two policies of one rate limit are named {name} (case does not count): give each a name of its own with .name(\"…\")"
            ),
            Self::ZeroWindow => f.write_str(
                "a rate limit's window is 0: give at least 1 ms; the arguments are (limit, seconds), of a token bucket (rate, seconds)"
            ),
            Self::WindowTooLong => f.write_str(
                "a rate limit's window is longer than 10 years: the arguments are (limit, seconds), of a token bucket (rate, seconds)"
            ),
            Self::WindowFraction => f.write_str(
                "a rate limit's window has a fraction of a millisecond: give whole milliseconds"
            ),
            Self::BurstTooLarge => f.write_str(
                "a token bucket's burst takes longer than 10 years to come back, or never at a rate of 0: set a smaller burst, or a higher rate"
            ),
            Self::BurstWithoutBucket => f.write_str(
                "a burst was set on a policy that is no token bucket: begin with token_bucket(rate, seconds)"
            ),
            Self::InvalidBlock => f.write_str(
                "a block after 0 refusals, or one that lasts for 0, for more than 10 years or a fraction of a millisecond: give at least 1 refusal, and whole milliseconds"
            ),
            Self::NoPolicy => f.write_str("a rate limit without any policy: give at least one"),
            Self::SeveralPolicies => f.write_str(
                "a name, a burst or a block is for one policy, and this rate limit has several: set it on the policy instead"
            ),
            Self::KeysApart => f.write_str(
                "policies of one rate limit count by keys of their own, and the nodes of a Redis cluster can't decide about several keys together: put each into a layer of its own"
            ),
        }?;
        write!(f, " {}", self.mistake())
    }
}

impl Error for PolicyError {}
