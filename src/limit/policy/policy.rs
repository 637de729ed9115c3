//! What is allowed: a limit, over a window, by an algorithm, under a name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::PolicyError;
use crate::limit::algorithm::block::Blocking;
use crate::limit::algorithm::{LONGEST_WAY, Span};
use crate::limit::timestamp::{millis, seconds_ceil};
use crate::limit::{Algorithm, InForce, Timestamp};

/// Ten years of 366 days: long enough for any quota, short enough for every field and column.
pub(super) const LONGEST_WINDOW: Duration = Duration::from_hours(10 * 366 * 24);
/// The structured-field parsers of clients must take 1,024; a name is read by people and stored in every row.
const LONGEST_NAME: usize = 64;

/// A limit over a window, with a name.
///
/// A policy is a value: it counts nothing itself. A counter belongs to the policy's name, algorithm and window (of a token
/// bucket the period of its rate), and to a key; the limit is not part of it, so a changed limit keeps what was used.
///
/// | constructor | [`Algorithm`] | allows |
/// | --- | --- | --- |
/// | [`fixed`](Self::fixed) | fixed window | `limit` units in each aligned window |
/// | [`sliding`](Self::sliding) | sliding window, exact | never more than `limit` in any window |
/// | [`sliding_counter`](Self::sliding_counter) | sliding counter | about `limit` in any window, in constant space |
/// | [`token_bucket`](Self::token_bucket) | token bucket (GCRA) | a steady rate, with bursts |
/// | [`hourly`](Self::hourly), [`daily`](Self::daily), [`monthly`](Self::monthly) | calendar quota | `limit` units in each hour, day or month of the UTC calendar |
///
/// | | range |
/// | --- | --- |
/// | limit, rate, burst | 0 (refuses everything) to `u32::MAX` units |
/// | window | 1 ms to 10 years, whole milliseconds |
/// | name | 1 to 64 characters: a letter, then letters, digits, `_`, `.`, `:`, `/`, `*`, `-` |
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::Policy;
///
/// let login = Policy::sliding(5, 900).name("login");
/// assert_eq!(login.to_string(), "login: 5 per 900 s, sliding window");
///
/// // For numbers from configuration: an error instead of a panic.
/// assert!(Policy::try_sliding(5, Duration::ZERO).is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// What it was built with. Every decision has a policy, so its clones share this.
    pub(super) built: Arc<Built>,
    /// The limit that was set at run time for the key that this is about, if one was.
    pub(super) in_force: Option<InForce>,
}

/// What a policy was built with. It begins cache lines of its own: decisions of all threads change the count of its clones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[repr(align(128))]
pub(super) struct Built {
    name: Arc<str>,
    is_named: bool,
    algorithm: Algorithm,
    /// What may be used at once: of a token bucket the burst.
    pub(super) limit: u32,
    /// What comes back in each period: of a token bucket the rate, otherwise the limit.
    pub(super) rate: u32,
    /// The window, of a token bucket that of its rate.
    period: Duration,
    is_leased: bool,
    pub(super) blocking: Option<Blocking>,
}

impl Policy {
    /// A policy of an algorithm with windows of a length, or with such a period.
    pub(super) fn of(
        algorithm: Algorithm,
        limit: u32,
        period: Duration,
    ) -> Result<Self, PolicyError> {
        if period.is_zero() {
            return Err(PolicyError::ZeroWindow);
        }
        if period > LONGEST_WINDOW {
            return Err(PolicyError::WindowTooLong);
        }
        if !period.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(PolicyError::WindowFraction);
        }
        Ok(Self::checked(algorithm, limit, period))
    }

    /// A policy of an algorithm with windows of the calendar.
    pub(super) fn calendar(algorithm: Algorithm, limit: u32) -> Self {
        let period = Duration::from_hours(match algorithm {
            Algorithm::CalendarHour => 1,
            Algorithm::CalendarDay => 24,
            _ => 31 * 24,
        });
        Self::checked(algorithm, limit, period)
    }

    fn checked(algorithm: Algorithm, limit: u32, period: Duration) -> Self {
        Self {
            built: Arc::new(Built {
                name: default_name(algorithm, limit, period),
                is_named: false,
                algorithm,
                limit,
                rate: limit,
                period,
                is_leased: true,
                blocking: None,
            }),
            in_force: None,
        }
    }

    /// Sets how many units a token bucket holds: what may be used at once after a rest.
    ///
    /// # Panics
    ///
    /// When the policy is no token bucket, or its burst would take longer than ten years to come back.
    /// [`Policy::try_burst`] returns an error instead.
    #[must_use]
    #[track_caller]
    pub fn burst(self, burst: u32) -> Self {
        expect(self.try_burst(burst))
    }

    /// Sets how many units a token bucket holds; see [`Policy::burst`].
    ///
    /// # Errors
    ///
    /// [`PolicyError`] when the policy is no token bucket, or its burst would take longer than ten years to come back.
    pub fn try_burst(mut self, burst: u32) -> Result<Self, PolicyError> {
        if self.built.algorithm != Algorithm::TokenBucket {
            return Err(PolicyError::BurstWithoutBucket);
        }
        let is_too_slow = self.refill_millis(burst) > LONGEST_WINDOW.as_millis();
        if burst > 0 && (self.built.rate == 0 || is_too_slow) {
            return Err(PolicyError::BurstTooLarge);
        }
        let built = Arc::make_mut(&mut self.built);
        built.limit = burst;
        if !built.is_named {
            let name = default_name(built.algorithm, built.rate, built.period);
            built.name = if burst == built.rate {
                name
            } else {
                format!("{name}-burst-{burst}").into()
            };
        }
        Ok(self)
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
        expect(self.try_name(name))
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
        let built = Arc::make_mut(&mut self.built);
        built.name = name.into();
        built.is_named = true;
        Ok(self)
    }

    /// Whether requests may be answered from memory: `true` unless set otherwise.
    ///
    /// **Units are charged ahead** for fixed windows, calendar quotas and sliding counters that do not block, on a store that does
    /// I/O; of several policies when that is true of all of them. A process whose requests for a key follow each other closely takes more than one unit at a time, at most three
    /// sixteenths of what is left. Never more than the limit passes. What is not spent goes back after 2.5 to 3.5 seconds, and when
    /// the store is closed; until then another process counts it as used, and after an end without that, a `kill -9` say, it is lost
    /// until the window ends.
    ///
    /// **A refused key stays refused** until its wait is over, under every algorithm, without the store being asked. What frees units
    /// ends that: in this process at once, in another one within 250 ms.
    ///
    /// With `false` each request reaches the store, and every process sees at once what all others have done.
    #[must_use]
    pub fn leases(mut self, is_leased: bool) -> Self {
        Arc::make_mut(&mut self.built).is_leased = is_leased;
        self
    }

    pub(crate) fn blocking(&self) -> Option<Blocking> {
        self.built.blocking
    }

    #[cfg(any(feature = "_engine", feature = "admin"))]
    pub(crate) fn is_leased(&self) -> bool {
        self.built.is_leased
    }

    /// The name, as it is sent and stored.
    #[must_use]
    pub fn as_name(&self) -> &str {
        &self.built.name
    }

    /// The name, shared.
    #[cfg(feature = "metrics")]
    pub(crate) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.built.name)
    }

    /// Whether the name was given, rather than made of the numbers.
    pub(crate) fn is_named(&self) -> bool {
        self.built.is_named
    }

    /// How it counts.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.built.algorithm
    }

    /// The time in which the limit comes back, in whole milliseconds: the length of the window; of a month 31 days; of a
    /// token bucket the time that an empty one takes to fill.
    #[must_use]
    pub fn window(&self) -> Duration {
        if self.built.algorithm != Algorithm::TokenBucket || self.built.rate == self.built.limit {
            return self.built.period;
        }
        // A limit that is set at run time leaves it.
        let millis = self.refill_millis(self.built.limit);
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
            .max(Duration::from_millis(1))
    }

    fn refill_millis(&self, burst: u32) -> u128 {
        (self.built.period.as_millis() * u128::from(burst))
            .div_ceil(u128::from(self.built.rate.max(1)))
    }

    /// What the rate is about; without a rate of its own the window.
    pub(crate) fn period(&self) -> Duration {
        self.built.period
    }

    /// [`window`](Self::window) in whole seconds, rounded up: never 0.
    pub(crate) fn window_seconds(&self) -> u64 {
        seconds_ceil(self.window())
    }

    /// The window that holds an instant, for algorithms whose windows have a beginning.
    pub(crate) fn span(&self, at: Timestamp) -> Span {
        match self.built.algorithm {
            Algorithm::CalendarMonth => Span::month(at),
            // Without leap seconds, hours and days of the calendar are aligned windows.
            _ => Span::aligned(at, self.built.period),
        }
    }

    /// From when on nobody needs the row of a window.
    pub(crate) fn expires_at(&self, span: Span) -> Timestamp {
        span.expires_at(match self.built.algorithm {
            // It counts in the window after its own.
            Algorithm::SlidingCounter => self.built.period.saturating_add(LONGEST_WAY),
            _ => self.built.period,
        })
    }

    /// What a stored counter of this policy is filed under, like `login;fixed;900s`. Stored data hangs on it.
    pub(crate) fn counter_name(&self) -> String {
        let (name, token) = (&self.built.name, self.built.algorithm.token());
        if self.built.algorithm.is_calendar() {
            return format!("{name};calendar;{token}");
        }
        format!("{name};{token};{}", WindowText(self.built.period))
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, algorithm, rate) = (&self.built.name, self.built.algorithm, self.rate());
        write!(f, "{name}: {rate} per ")?;
        if algorithm.is_calendar() {
            write!(f, "{algorithm}, UTC")?;
        } else {
            write!(f, "{}", Spoken(self.built.period))?;
            if rate != self.limit() {
                write!(f, " with bursts of {}", self.limit())?;
            }
            write!(f, ", {algorithm}")?;
        }
        match self.built.blocking {
            None => Ok(()),
            Some(Blocking { after: 1, lasts }) => write!(f, ", blocks for {}", Spoken(lasts)),
            Some(Blocking { after, lasts }) => {
                write!(f, ", blocks for {} after {after} refusals", Spoken(lasts))
            }
        }
    }
}

/// A duration as log lines have it: `60 s`, or `1500 ms` when it is not whole seconds.
struct Spoken(Duration);

impl fmt::Display for Spoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = millis(self.0);
        if millis % 1_000 == 0 {
            write!(f, "{} s", millis / 1_000)
        } else {
            write!(f, "{millis} ms")
        }
    }
}

/// The policy, or a panic at the caller of the caller.
#[track_caller]
pub(super) fn expect(policy: Result<Policy, PolicyError>) -> Policy {
    match policy {
        Ok(policy) => policy,
        Err(error) => panic!("{error}"),
    }
}

fn default_name(algorithm: Algorithm, limit: u32, period: Duration) -> Arc<str> {
    let word = algorithm.word();
    let name = if algorithm.is_calendar() {
        format!("{word}-{limit}")
    } else {
        format!("{word}-{limit}-{}", WindowText(period))
    };
    name.into()
}

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
