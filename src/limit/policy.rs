//! What is allowed: a limit, over a window, by an algorithm, under a name.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::timestamp::{millis, seconds_ceil};

/// Ten years of 366 days: long enough for any quota, short enough for every field and column.
const LONGEST_WINDOW: Duration = Duration::from_hours(10 * 366 * 24);
/// The structured-field parsers of clients must take 1,024; a name is read by people and stored in every row.
const LONGEST_NAME: usize = 64;

/// How a [`Policy`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// One counter for each aligned window: `t - t % window`, in UTC.
    ///
    /// Up to twice the limit may pass around a boundary: the end of one window and the start of the next.
    FixedWindow,
}

impl Algorithm {
    /// The word that stands in stored counters and in names. Stored data hangs on it.
    fn token(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FixedWindow => "fixed window",
        })
    }
}

/// A limit over a window, with a name.
///
/// A policy is a value: it counts nothing itself. A counter belongs to the policy's name, algorithm and window, and
/// to a key; the limit is not part of it, so a changed limit keeps what was used.
///
/// | | range |
/// | --- | --- |
/// | limit | 0 (refuses everything) to `u32::MAX` units |
/// | window | 1 ms to 10 years, whole milliseconds |
/// | name | 1 to 64 characters: a letter, then letters, digits, `_`, `.`, `:`, `/`, `*`, `-` |
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::Policy;
///
/// let login = Policy::fixed(5, 900).name("login");
/// assert_eq!(login.to_string(), "login: 5 per 900 s, fixed window");
///
/// // For numbers from configuration: an error instead of a panic.
/// assert!(Policy::try_fixed(5, Duration::ZERO).is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    name: Arc<str>,
    is_named: bool,
    algorithm: Algorithm,
    limit: u32,
    window: Duration,
}

impl Policy {
    /// Allows `limit` units in each aligned window of `seconds` seconds.
    ///
    /// # Panics
    ///
    /// When the window is 0 or longer than ten years. [`Policy::try_fixed`] returns an error instead.
    #[must_use]
    #[track_caller]
    pub fn fixed(limit: u32, seconds: u64) -> Self {
        match Self::try_fixed(limit, Duration::from_secs(seconds)) {
            Ok(policy) => policy,
            Err(error) => panic!("{error}"),
        }
    }

    /// Allows `limit` units in each aligned window of this length.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] when the window is zero, longer than ten years, or has a fraction of a millisecond.
    pub fn try_fixed(limit: u32, window: Duration) -> Result<Self, PolicyError> {
        if window.is_zero() {
            return Err(PolicyError::ZeroWindow);
        }
        if window > LONGEST_WINDOW {
            return Err(PolicyError::WindowTooLong);
        }
        if !window.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(PolicyError::WindowFraction);
        }
        let algorithm = Algorithm::FixedWindow;
        let name = format!("{}-{limit}-{}", algorithm.token(), WindowText(window));
        Ok(Self {
            name: name.into(),
            is_named: false,
            algorithm,
            limit,
            window,
        })
    }

    /// Names the policy. Without a name it is called after its numbers, like `fixed-5-60s`.
    ///
    /// The name is sent to clients in `RateLimit` and `RateLimit-Policy`, and stored with every counter.
    ///
    /// # Panics
    ///
    /// When the name is no valid one. [`Policy::try_name`] returns an error instead.
    #[must_use]
    #[track_caller]
    pub fn name(self, name: &str) -> Self {
        match self.try_name(name) {
            Ok(policy) => policy,
            Err(error) => panic!("{error}"),
        }
    }

    /// Names the policy.
    ///
    /// The alphabet is that of a token of RFC 9651 which also needs no care in JSON, logs and SQL.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] when the name is empty, longer than 64 characters, or has a character that is not allowed.
    pub fn try_name(mut self, name: &str) -> Result<Self, PolicyError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:/*-".contains(&byte);
        let starts_well = name.as_bytes().first().is_some_and(u8::is_ascii_alphabetic);
        if !starts_well || name.len() > LONGEST_NAME || !name.bytes().all(is_allowed) {
            return Err(PolicyError::InvalidName(name.chars().take(80).collect()));
        }
        self.name = name.into();
        self.is_named = true;
        Ok(self)
    }

    /// The name, as it is sent and stored.
    #[must_use]
    pub fn as_name(&self) -> &str {
        &self.name
    }

    /// Whether the name was given, rather than made of the numbers.
    pub(crate) fn is_named(&self) -> bool {
        self.is_named
    }

    /// How it counts.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The units that a window admits.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The length of the window, in whole milliseconds.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.window
    }

    /// The length of the window in whole seconds, rounded up: never 0.
    pub(crate) fn window_seconds(&self) -> u64 {
        seconds_ceil(self.window)
    }

    /// What a stored counter of this policy is filed under, like `login;fixed;900s`. Stored data hangs on it.
    pub(crate) fn counter_name(&self) -> String {
        format!(
            "{};{};{}",
            self.name,
            self.algorithm.token(),
            WindowText(self.window)
        )
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = millis(self.window);
        write!(f, "{}: {} per ", self.name, self.limit)?;
        if millis % 1_000 == 0 {
            write!(f, "{} s", millis / 1_000)?;
        } else {
            write!(f, "{millis} ms")?;
        }
        write!(f, ", {}", self.algorithm)
    }
}

/// Why a [`Policy`] can't be built.
///
/// [`fmt::Debug`] says the same as [`fmt::Display`]: it is what `main` and `unwrap` print.
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
}

impl fmt::Debug for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroWindow => f.write_str(
                "a rate limit's window is 0: give at least 1 ms; the arguments are (limit, seconds)",
            ),
            Self::WindowTooLong => f.write_str(
                "a rate limit's window is longer than 10 years: the arguments are (limit, seconds)",
            ),
            Self::WindowFraction => f.write_str(
                "a rate limit's window has a fraction of a millisecond: give whole milliseconds",
            ),
            Self::InvalidName(name) => write!(
                f,
                "{name:?} can't name a policy: use 1 to 64 characters, a letter first, then letters, digits and _ . : / * -"
            ),
        }
    }
}

impl Error for PolicyError {}

/// A window's length as names have it: `60s`, or `1500ms` when it is not whole seconds.
struct WindowText(Duration);

impl fmt::Display for WindowText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.subsec_millis() == 0 {
            write!(f, "{}s", self.0.as_secs())
        } else {
            write!(f, "{}ms", self.0.as_millis())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_without_a_name_is_called_after_its_numbers() {
        assert_eq!(Policy::fixed(5, 60).as_name(), "fixed-5-60s");
        let short = Policy::try_fixed(7, Duration::from_millis(1_500)).unwrap();
        assert_eq!(short.as_name(), "fixed-7-1500ms");
        assert_eq!(short.window_seconds(), 2);
    }

    #[test]
    fn a_counter_is_filed_under_name_algorithm_and_window_but_not_limit() {
        let five = Policy::fixed(5, 60).name("login");
        let fifty = Policy::fixed(50, 60).name("login");
        let hourly = Policy::fixed(5, 3_600).name("login");
        assert_eq!(five.counter_name(), "login;fixed;60s");
        assert_eq!(five.counter_name(), fifty.counter_name());
        assert_ne!(five.counter_name(), hourly.counter_name());
    }

    #[test]
    fn nonsense_is_refused_when_it_is_built() {
        let build = |window| Policy::try_fixed(1, window).map(|_| ());
        assert_eq!(build(Duration::ZERO), Err(PolicyError::ZeroWindow));
        assert_eq!(build(Duration::MAX), Err(PolicyError::WindowTooLong));
        assert_eq!(
            build(Duration::from_secs(u64::MAX)),
            Err(PolicyError::WindowTooLong)
        );
        assert_eq!(
            build(Duration::from_nanos(1)),
            Err(PolicyError::WindowFraction)
        );
        assert_eq!(build(LONGEST_WINDOW), Ok(()));
    }

    #[test]
    fn names_are_printable_tokens() {
        let name = |name: &str| Policy::fixed(1, 1).try_name(name).map(|_| ());
        for good in ["a", "login", "API:v2/search-*", &"n".repeat(64)] {
            assert_eq!(name(good), Ok(()), "{good}");
        }
        let bad = [
            "", " ", "1st", "a b", "a\"b", "a\\b", "a;b", "é", "a\u{7f}", "a\n",
        ];
        for bad in bad.into_iter().chain([&*"n".repeat(65)]) {
            assert!(name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    #[should_panic(expected = "window is 0")]
    fn the_short_constructor_panics_on_a_zero_window() {
        let _ = Policy::fixed(3, 0);
    }
}
