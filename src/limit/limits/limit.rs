//! What is set in place of a policy's own limit.

use std::fmt;
use std::time::Duration;

use crate::limit::Timestamp;

/// How much a key may use, set at run time in place of its policy's own limit: see
/// [`Limiter::set_limit`](crate::Limiter::set_limit).
///
/// A key that is [blocked](Self::BLOCKED) and one that is [exempt](Self::EXEMPT) are the two ends: a limit of 0, and none. What is
/// used is counted all the same.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::Limit;
///
/// assert_eq!(Limit::of(500).units(), Some(500));
/// assert_eq!(Limit::BLOCKED, Limit::of(0));
/// assert_eq!(Limit::EXEMPT.units(), None);
/// assert_eq!(Limit::BLOCKED.ends_after(Duration::from_hours(1)).to_string(), "blocked");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    units: Option<u32>,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    Never,
    At(Timestamp),
    After(Duration),
}

impl Limit {
    /// Nothing: a limit of 0. Every request is refused.
    pub const BLOCKED: Self = Self::of(0);

    /// Everything: no limit. No request is refused, and one that a [block](crate::Policy::block_for) holds back passes.
    pub const EXEMPT: Self = Self {
        units: None,
        end: End::Never,
    };

    /// So many units in each window, from 0 to `u32::MAX`.
    ///
    /// Of a token bucket it is the burst, and the rate is changed in proportion, rounded up to whole units in each of its periods:
    /// a bucket takes as long to fill as before.
    #[must_use]
    pub const fn of(units: u32) -> Self {
        Self {
            units: Some(units),
            end: End::Never,
        }
    }

    /// This limit until an instant, from which on it is as if it had not been set. Without an end it is in force until it is
    /// removed.
    #[must_use]
    pub const fn ends_at(self, end: Timestamp) -> Self {
        Self {
            end: End::At(end),
            ..self
        }
    }

    /// This limit for so long from when it is set, by the clock of the store; what is less than a millisecond is dropped.
    #[must_use]
    pub const fn ends_after(self, lasts: Duration) -> Self {
        Self {
            end: End::After(lasts),
            ..self
        }
    }

    /// The units; `None` when there is no limit.
    #[must_use]
    pub const fn units(&self) -> Option<u32> {
        self.units
    }

    /// Whether it refuses everything.
    #[must_use]
    pub const fn is_blocked(&self) -> bool {
        matches!(self.units, Some(0))
    }

    /// Whether it refuses nothing.
    #[must_use]
    pub const fn is_exempt(&self) -> bool {
        self.units.is_none()
    }

    /// So many units, or none when there is no limit, without an end.
    pub(crate) const fn of_stored(units: Option<u32>) -> Self {
        Self {
            units,
            end: End::Never,
        }
    }

    /// When it ends, when it is set now.
    pub(crate) fn end(&self, now: Timestamp) -> Option<Timestamp> {
        match self.end {
            End::Never => None,
            End::At(end) => Some(end),
            End::After(lasts) => Some(now.saturating_add(lasts)),
        }
    }
}

impl From<u32> for Limit {
    fn from(units: u32) -> Self {
        Self::of(units)
    }
}

impl fmt::Display for Limit {
    /// `blocked`, `exempt`, or the number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.units {
            Some(0) => f.write_str("blocked"),
            Some(units) => write!(f, "{units}"),
            None => f.write_str("exempt"),
        }
    }
}
