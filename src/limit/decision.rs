//! The answer to a charge.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::fixed_window::{Span, Usage};
use super::timestamp::seconds_ceil;
use super::{Key, Policy, Timestamp};

/// What a policy answers for a key: allowed or denied, what is left, and when there is more.
///
/// A decision is a value that says what was true at [`decided_at`](Self::decided_at); it charges and refunds nothing.
///
/// # Examples
///
/// ```
/// # use tollgate::{Key, Limiter, MemoryStore, Policy, StoreError};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let limiter = Limiter::new(Policy::fixed(2, 60)).store(&MemoryStore::new());
/// let alice = Key::new("user", "alice");
///
/// let first = limiter.check(&alice).await?;
/// assert!(first.is_allowed());
/// assert_eq!(first.remaining(), 1);
/// assert_eq!(first.retry_after(), None);
///
/// let _second = limiter.check(&alice).await?;
/// let third = limiter.check(&alice).await?;
/// assert!(third.is_denied());
/// assert_eq!((third.used(), third.attempts()), (2, 3));
/// assert!(third.retry_after().is_some());
/// # Ok::<(), StoreError>(()) }).unwrap();
/// ```
#[must_use = "a charge may have been refused: ask `is_allowed`, or use `into_result`"]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    policy: Policy,
    key: Key,
    cost: u32,
    is_allowed: bool,
    used: u64,
    denied: u64,
    decided_at: Timestamp,
    reset_after: Duration,
    retry_after: Option<Duration>,
    is_degraded: bool,
}

impl Decision {
    /// The answer of a fixed window to a charge of `cost` that left the counter at `usage`.
    pub(crate) fn fixed_window(
        policy: &Policy,
        key: Key,
        cost: u32,
        decided_at: Timestamp,
        is_allowed: bool,
        usage: Usage,
    ) -> Self {
        let span = Span::of(decided_at, policy.window());
        let reset_after = span.end.saturating_duration_since(decided_at);
        let can_ever_fit = cost <= policy.limit();
        Self {
            policy: policy.clone(),
            key,
            cost,
            is_allowed,
            used: usage.used,
            denied: usage.denied,
            decided_at,
            reset_after,
            retry_after: (!is_allowed && can_ever_fit).then_some(reset_after),
            is_degraded: false,
        }
    }

    /// "Allowed", said without having asked the store.
    pub(crate) fn degraded(policy: &Policy, key: Key, cost: u32, decided_at: Timestamp) -> Self {
        let unknown = Usage::default();
        Self {
            is_degraded: true,
            ..Self::fixed_window(policy, key, cost, decided_at, true, unknown)
        }
    }

    /// This decision held to the limit of another policy on the same counter, without a charge of its own.
    pub(crate) fn held_to(&self, policy: &Policy) -> Self {
        let usage = Usage {
            used: self.used,
            denied: self.denied,
            ..Usage::default()
        };
        let fits = self.used <= u64::from(policy.limit());
        Self::fixed_window(
            policy,
            self.key.clone(),
            self.cost,
            self.decided_at,
            fits,
            usage,
        )
    }

    /// Nothing when it was allowed, and an error when it was refused: `limiter.check(&key).await?.into_result()?`.
    ///
    /// # Errors
    ///
    /// [`Denied`] when the charge was refused.
    pub fn into_result(self) -> Result<(), Denied> {
        if self.is_allowed {
            Ok(())
        } else {
            Err(Denied(Box::new(self)))
        }
    }

    /// The policy that decided.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The key that was charged.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The units that were asked for.
    #[must_use]
    pub fn cost(&self) -> u32 {
        self.cost
    }

    /// Whether the charge was admitted.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// Whether the charge was refused. It used nothing then.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        !self.is_allowed
    }

    /// Units admitted in the current window, this charge included.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Units asked for in the current window, refused ones included; at most 2^53 - 1 of those.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.used.saturating_add(self.denied)
    }

    /// Units that are left, from 0 to the limit.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        let left = u64::from(self.policy.limit()).saturating_sub(self.used);
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// The instant at which the decision was made.
    #[must_use]
    pub fn decided_at(&self) -> Timestamp {
        self.decided_at
    }

    /// The time from [`decided_at`](Self::decided_at) until the whole limit is available again.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.reset_after
    }

    /// The time after which the same charge passes, if nobody else uses the key.
    ///
    /// `None` when it was allowed, and when no wait helps: a limit of 0, or a cost above the limit.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether the store failed and `FailureMode::Open` let the charge pass uncounted. What was used is unknown then,
    /// and reported as 0.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.is_degraded
    }
}

/// A refused [`Decision`], as an error.
///
/// In an axum handler `?` makes a [`Rejection`](crate::Rejection) of it, which answers 429.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied(Box<Decision>);

impl Denied {
    /// The decision that refused.
    pub fn decision(&self) -> &Decision {
        &self.0
    }

    /// The decision that refused.
    pub fn into_decision(self) -> Decision {
        *self.0
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "over the rate limit {}", self.0.policy.as_name())?;
        match self.0.retry_after {
            Some(after) => write!(f, ": wait {} s", seconds_ceil(after).max(1)),
            None => f.write_str(": no wait helps"),
        }
    }
}

impl Error for Denied {}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(policy: &Policy, cost: u32, is_allowed: bool, used: u64, millis: i64) -> Decision {
        let usage = Usage {
            used,
            ..Usage::default()
        };
        let at = Timestamp::from_unix_millis(millis);
        Decision::fixed_window(policy, Key::new("user", 1), cost, at, is_allowed, usage)
    }

    #[test]
    fn the_wait_is_what_is_left_of_the_window() {
        let policy = Policy::fixed(1, 60);
        let refused = decide(&policy, 1, false, 1, 60_000 + 50_000);
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(10)));
        assert_eq!(refused.reset_after(), Duration::from_secs(10));
    }

    #[test]
    fn no_wait_is_promised_when_none_helps() {
        assert_eq!(
            decide(&Policy::fixed(0, 60), 1, false, 0, 0).retry_after(),
            None
        );
        assert_eq!(
            decide(&Policy::fixed(4, 60), 5, false, 0, 0).retry_after(),
            None
        );
    }

    #[test]
    fn a_refusal_is_an_error_that_tells_the_wait() {
        let policy = Policy::fixed(1, 60).name("login");
        assert!(decide(&policy, 1, true, 1, 0).into_result().is_ok());
        let denied = decide(&policy, 1, false, 1, 57_900)
            .into_result()
            .unwrap_err();
        assert_eq!(denied.to_string(), "over the rate limit login: wait 3 s");
        let never = decide(&policy, 2, false, 1, 0).into_result().unwrap_err();
        assert_eq!(
            never.to_string(),
            "over the rate limit login: no wait helps"
        );
    }

    #[test]
    fn a_charged_decision_can_be_held_to_a_lower_limit() {
        let decision = decide(&Policy::fixed(100, 60), 1, true, 3, 0);
        let held = |limit| decision.held_to(&Policy::fixed(limit, 60));
        assert!(held(3).is_allowed());
        assert_eq!((held(2).is_allowed(), held(2).remaining()), (false, 0));
        assert_eq!(held(2).retry_after(), Some(Duration::from_secs(60)));
    }

    #[test]
    fn remaining_stays_between_zero_and_the_limit() {
        let policy = Policy::fixed(5, 60);
        assert_eq!(
            decide(&policy, 1, false, 80, 0).remaining(),
            0,
            "a lowered limit"
        );
        assert_eq!(decide(&policy, 1, true, 0, 0).remaining(), 5);
    }
}
