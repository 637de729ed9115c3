//! The answer to a charge.

use std::cmp::Reverse;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::few::Few;
use super::timestamp::seconds_ceil;
use super::{ChargedBy, Key, Policy, Timestamp, ToldWaits, Verdict};

/// What a limiter answers for a key: allowed or denied, what is left, and when there is more.
///
/// A decision is a value that says what was true at [`decided_at`](Self::decided_at); it charges and refunds nothing.
///
/// When several policies decide, each has a [`Verdict`], and the decision speaks for the one that matters most: of a
/// refused charge the violated one with the longest wait, of an admitted one that with the fewest units left.
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
    verdicts: Few<Verdict>,
    /// Which of them the decision speaks for.
    leading: usize,
    is_allowed: bool,
    made: Made,
    /// How a layer tells the waits of this refusal. Boxed, since few decisions have it.
    told_waits: Option<Box<ToldWaits>>,
}

/// By whom a decision was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    ByStore,
    /// At least in part by this process's memory.
    Locally,
    /// By nobody: what it says was not counted anywhere.
    Uncounted,
}

impl Decision {
    /// The decision that follows from what each policy says.
    pub(crate) fn new(verdicts: Few<Verdict>) -> Self {
        let is_allowed = verdicts.iter().all(Verdict::is_allowed);
        let leading = match verdicts.only() {
            Some(_) => 0,
            None => leading(&verdicts, is_allowed),
        };
        Self {
            verdicts,
            leading,
            is_allowed,
            made: Made::ByStore,
            told_waits: None,
        }
    }

    /// "Allowed", said without having counted anything.
    pub(crate) fn uncounted(parts: Few<(Policy, Key)>, cost: u32, decided_at: Timestamp) -> Self {
        let verdict = |(policy, key)| Verdict::uncounted(&policy, key, cost, decided_at);
        Self {
            made: Made::Uncounted,
            ..Self::new(parts.into_map(verdict))
        }
    }

    /// This decision, which was made in this process's memory while the store gave no answer.
    pub(crate) fn made_locally(mut self) -> Self {
        self.made = Made::Locally;
        self
    }

    /// Notes whose counters it was charged to, if it was admitted: those that were not `held` to a charge of before.
    pub(crate) fn set_charged_by(&mut self, charged_by: ChargedBy, held: &[bool]) {
        if self.is_denied() || self.made == Made::Uncounted {
            return;
        }
        let held = held.iter().copied().chain(std::iter::repeat(false));
        for (verdict, is_held) in self.verdicts.iter_mut().zip(held) {
            if !is_held && verdict.cost() > 0 {
                verdict.set_charged_by(charged_by);
            }
        }
    }

    /// This decision with what each policy says changed: allowed or denied it stays.
    pub(crate) fn map(self, change: impl FnMut(Verdict) -> Verdict) -> Self {
        let verdicts = self.verdicts.into_map(change);
        Self {
            leading: leading(&verdicts, self.is_allowed),
            verdicts,
            ..self
        }
    }

    /// This decision with what some of its policies say: allowed or denied it stays. `None` when that is nothing.
    pub(crate) fn of_some(&self, is_kept: impl FnMut(&&Verdict) -> bool) -> Option<Self> {
        let verdicts = Few::collect(self.verdicts.iter().filter(is_kept).cloned())?;
        Some(Self {
            leading: leading(&verdicts, self.is_allowed),
            verdicts,
            is_allowed: self.is_allowed,
            made: self.made,
            told_waits: self.told_waits.clone(),
        })
    }

    /// Tells the waits of a refusal in this way from now on, unless that was settled before.
    pub(crate) fn tell_waits(&mut self, told_waits: ToldWaits) {
        let is_exact = told_waits == ToldWaits::default();
        if self.is_denied() && self.told_waits.is_none() && !is_exact {
            self.told_waits = Some(Box::new(told_waits));
        }
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

    /// What each policy says, in the order of the policies.
    ///
    /// When the charge was admitted those are all of them. One that is known to be over is refused without asking the store: of
    /// such a refusal a policy with another key than that which refuses is missing, unless something is known of it.
    #[must_use]
    pub fn verdicts(&self) -> impl DoubleEndedIterator<Item = &Verdict> {
        self.verdicts.iter().filter(|verdict| verdict.is_known())
    }

    /// The same with those of which nothing is known: a refused charge has used nothing of them.
    pub(crate) fn all_verdicts(&self) -> impl ExactSizeIterator<Item = &Verdict> {
        self.verdicts.iter()
    }

    /// The policies that refused.
    pub fn violated(&self) -> impl Iterator<Item = &Policy> {
        let violated = self.verdicts().filter(|verdict| verdict.is_denied());
        violated.map(Verdict::policy)
    }

    /// What the policy says that matters most.
    pub(crate) fn leading(&self) -> &Verdict {
        self.verdicts.get_or_first(self.leading)
    }

    /// The policy that matters most: of a refused charge the violated one with the longest wait, of an admitted one that
    /// with the fewest units left. With a single policy it is that one.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        self.leading().policy()
    }

    /// The key of that [policy](Self::policy).
    #[must_use]
    pub fn key(&self) -> &Key {
        self.leading().key()
    }

    /// The units that were asked for.
    #[must_use]
    pub fn cost(&self) -> u32 {
        self.leading().cost()
    }

    /// Whether the charge was admitted: every policy had room for it.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// Whether the charge was refused. It used nothing then, of no policy.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        !self.is_allowed
    }

    /// Units in force under the [policy](Self::policy), this charge included when it was admitted.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.leading().used()
    }

    /// Units in force and those refused in the current window; see [`Verdict::attempts`].
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.leading().attempts()
    }

    /// Units that are left of the [policy](Self::policy), from 0 to its limit.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.leading().remaining()
    }

    /// The instant at which the decision was made, by the clock. An exact sliding window, or a token bucket, counts it as of
    /// the newest stored instant when another process has stored one that is slightly later, by up to a second.
    #[must_use]
    pub fn decided_at(&self) -> Timestamp {
        self.leading().decided_at()
    }

    /// The time from [`decided_at`](Self::decided_at) until the whole limit of the [policy](Self::policy) is available
    /// again; for windows with a beginning the time until their end.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.leading().reset_after()
    }

    /// The time after which the same charge passes, if nobody else uses the keys: the longest of all violated policies.
    ///
    /// `None` when it was allowed, and when no wait helps: a limit of 0, or a cost above a limit.
    ///
    /// Of a refusal by a layer that [caps](crate::RateLimitLayer::retry_after_max) waits, keeps
    /// [long ones](crate::RateLimitLayer::no_retry_after_above) to itself or adds [jitter](crate::RateLimitLayer::jitter),
    /// it is the wait that the client is told. [`Verdict::retry_after`] is exact in any case.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let exact = self.leading().retry_after().filter(|_| self.is_denied())?;
        match &self.told_waits {
            Some(told_waits) => told_waits.wait(exact),
            None => Some(exact),
        }
    }

    /// The effective window of a policy of this decision as clients are told it: of one that was violated never beyond
    /// the told wait, and `None` when its wait is not told.
    pub(crate) fn told_window(&self, verdict: &Verdict) -> Option<Duration> {
        let window = verdict.effective_window();
        match (&self.told_waits, verdict.retry_after()) {
            (Some(told_waits), Some(wait)) => told_waits.window(window, wait),
            _ => Some(window),
        }
    }

    /// Whether the store gave no answer and the decision was made without it: in this process's memory
    /// (`FailureMode::Local`), at least for one of the policies, or not at all (`FailureMode::Open`, see
    /// [`is_uncounted`](Self::is_uncounted)).
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.made != Made::ByStore
    }

    /// Whether the store gave no answer and `FailureMode::Open` let the charge pass without counting it. What was used is
    /// unknown then, and reported as 0.
    #[must_use]
    pub fn is_uncounted(&self) -> bool {
        self.made == Made::Uncounted
    }
}

/// The verdict that a decision speaks for.
fn leading(verdicts: &Few<Verdict>, is_allowed: bool) -> usize {
    let places = verdicts.iter().enumerate();
    let leading = if is_allowed {
        // Of equals the one that takes longest to give more.
        let rank = |verdict: &Verdict| (verdict.remaining(), Reverse(verdict.effective_window()));
        places.min_by_key(|(_, verdict)| rank(verdict))
    } else {
        // Of equals the first.
        let rank = |verdict: &Verdict| (verdict.is_hopeless(), verdict.retry_after());
        let violated = places.filter(|(_, verdict)| verdict.is_denied());
        violated.rev().max_by_key(|(_, verdict)| rank(verdict))
    };
    leading.map_or(0, |(place, _)| place)
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
        write!(f, "over the rate limit {}", self.0.policy().as_name())?;
        match self.0.retry_after() {
            Some(after) => write!(f, ": wait {} s", seconds_ceil(after).max(1)),
            None if self.0.leading().is_hopeless() => f.write_str(": no wait helps"),
            // The wait is not to be told.
            None => Ok(()),
        }
    }
}

impl Error for Denied {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::algorithm::fixed_window::Usage;
    use crate::limit::algorithm::{Found, State};

    fn found(fits: bool, used: u64) -> Found {
        let usage = Usage {
            used,
            ..Usage::default()
        };
        Found::new(fits, State::Window(usage))
    }

    fn verdict(policy: &Policy, cost: u32, fits: bool, used: u64, millis: i64) -> Verdict {
        let at = Timestamp::from_unix_millis(millis);
        Verdict::new(policy, Key::new("user", 1), cost, at, &found(fits, used))
    }

    fn decide(policy: &Policy, cost: u32, is_allowed: bool, used: u64, millis: i64) -> Decision {
        Decision::new(Few::one(verdict(policy, cost, is_allowed, used, millis)))
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
    fn how_waits_are_told_is_settled_once_and_for_refusals_alone() {
        let policy = Policy::fixed(1, 60).name("login");
        let silent = ToldWaits {
            silent_above: Some(Duration::ZERO),
            ..ToldWaits::default()
        };
        let longer = ToldWaits {
            jitter: Duration::from_secs(5),
            ..ToldWaits::default()
        };
        let mut refused = decide(&policy, 1, false, 1, 0);
        refused.tell_waits(silent);
        refused.tell_waits(longer);
        assert_eq!(refused.retry_after(), None);
        let denied = refused.into_result().unwrap_err();
        assert_eq!(denied.to_string(), "over the rate limit login");
        let mut allowed = decide(&policy, 1, true, 1, 0);
        allowed.tell_waits(longer);
        assert_eq!(allowed.retry_after(), None);
        let window = allowed.told_window(allowed.leading());
        assert_eq!(window, Some(Duration::from_secs(60)));
    }

    #[test]
    fn a_charged_decision_can_be_held_to_a_lower_limit() {
        let verdict = verdict(&Policy::fixed(100, 60), 1, true, 3, 0);
        let held = |limit| verdict.held_to(&Policy::fixed(limit, 60));
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

    #[test]
    fn a_refusal_speaks_for_the_longest_wait_and_an_allowance_for_the_fewest_units() {
        let [short, long, open] = [("short", 60), ("long", 3_600), ("open", 60)]
            .map(|(name, seconds)| Policy::fixed(5, seconds).name(name));
        let of = |verdicts: Vec<Verdict>| Decision::new(Few::collect(verdicts).unwrap());
        let refused = of(vec![
            verdict(&open, 1, true, 1, 0),
            verdict(&short, 1, false, 5, 0),
            verdict(&long, 1, false, 5, 0),
        ]);
        assert!(refused.is_denied());
        assert_eq!(refused.policy().as_name(), "long");
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(3_600)));
        let violated: Vec<_> = refused.violated().map(Policy::as_name).collect();
        assert_eq!(violated, ["short", "long"]);
        let hopeless = of(vec![
            verdict(&long, 1, false, 5, 0),
            verdict(&Policy::fixed(0, 60), 1, false, 0, 0),
        ]);
        assert_eq!(
            hopeless.retry_after(),
            None,
            "no wait helps against one of them"
        );
        let allowed = of(vec![
            verdict(&open, 1, true, 2, 0),
            verdict(&short, 1, true, 4, 0),
            verdict(&long, 1, true, 4, 0),
        ]);
        assert!(allowed.is_allowed());
        assert_eq!(
            (allowed.policy().as_name(), allowed.remaining()),
            ("long", 1)
        );
    }
}
