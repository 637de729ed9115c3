//! What one policy of a decision says.

use std::num::NonZeroU64;
use std::time::Duration;

use super::algorithm::{Found, State, Taken};
use super::{InForce, Key, Limit, Policy, Timestamp};

/// What one policy of a [`Decision`](crate::Decision) says for its key: whether it had room, what is left, and when there
/// is more.
///
/// A charge is admitted when every policy has room for it. One that another policy refused has used nothing here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    policy: Policy,
    key: Key,
    cost: u32,
    decided_at: Timestamp,
    found: Found,
    charged_by: Option<ChargedBy>,
}

/// Whose counter a charge has taken its units from, told by a number that means something to the limiter alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChargedBy(pub(crate) NonZeroU64);

impl Verdict {
    /// What follows from the state that a charge, or a look, has left.
    pub(crate) fn new(
        policy: &Policy,
        key: Key,
        cost: u32,
        decided_at: Timestamp,
        found: &Found,
    ) -> Self {
        Self {
            policy: match found.in_force {
                None => policy.clone(),
                in_force => policy.with_limit(in_force),
            },
            key,
            cost,
            decided_at,
            found: *found,
            charged_by: None,
        }
    }

    /// "Allowed", said without having counted anything.
    pub(super) fn uncounted(policy: &Policy, key: Key, cost: u32, decided_at: Timestamp) -> Self {
        let state = State::unused(policy, decided_at);
        Self::new(policy, key, cost, decided_at, &Found::new(true, state))
    }

    /// This verdict, of a charge that was made, by the limit of another policy on the same counter: it takes no charge of
    /// its own.
    pub(crate) fn held_to(&self, policy: &Policy) -> Self {
        // What was set at run time is about both: it goes by the name.
        let policy = policy.with_limit(self.policy.in_force());
        let used = self.found.state.used(&policy, self.decided_at);
        Self {
            charged_by: None,
            found: Found {
                fits: policy.is_exempt() || used <= u64::from(policy.limit()),
                ..self.found
            },
            policy,
            ..self.clone()
        }
    }

    /// Notes that it has taken its units, and whose they are.
    pub(super) fn set_charged_by(&mut self, charged_by: ChargedBy) {
        self.charged_by = Some(charged_by);
    }

    /// Whose counter it has taken its units from, if it has taken any.
    pub(crate) fn charged_by(&self) -> Option<ChargedBy> {
        self.charged_by
    }

    /// What it follows from.
    pub(crate) fn found(&self) -> &Found {
        &self.found
    }

    /// Where the charge took its units from.
    pub(crate) fn taken(&self) -> Taken {
        self.found.state.taken(&self.policy, self.decided_at)
    }

    /// This verdict as if its charge had not been made, if it has made one.
    pub(crate) fn without_charge(mut self) -> Self {
        if self.charged_by.take().is_some() {
            self.found.state.give_back(&self.policy, self.cost);
        }
        self
    }

    /// This verdict as if its charge had been of so many units more, which are taken whether they fit or not.
    pub(crate) fn with_more(mut self, units: u32) -> Self {
        self.found.state.take(units);
        self.cost = self.cost.saturating_add(units);
        self
    }

    /// The policy, with the limit that the charge was held to: the policy's own, or one that was
    /// [set at run time](crate::Limiter::set_limit) for the key or for all.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The limit that the charge was held to, when it was [set at run time](crate::Limiter::set_limit); `None` when it was the
    /// policy's own.
    #[must_use]
    pub fn stored_limit(&self) -> Option<Limit> {
        self.policy.in_force().map(InForce::limit)
    }

    /// The key that this policy counts by.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The units that were asked for.
    #[must_use]
    pub fn cost(&self) -> u32 {
        self.cost
    }

    /// Whether this policy had room for the charge.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.found.fits
    }

    /// Whether this policy was violated.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        !self.found.fits
    }

    /// Units in force, this charge included when it was admitted; rounded up.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.found.state.used(&self.policy, self.decided_at)
    }

    /// Units in force and those that this policy refused in the current window; at most 2^53 - 1 of those.
    ///
    /// The exact sliding window and the token bucket do not record what they refuse: there it is [`used`](Self::used).
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.used().saturating_add(self.found.state.denied())
    }

    /// Units that are left, from 0 to the limit: 0 also when a limit was lowered below what is used; `u32::MAX` when the key is
    /// [exempt](crate::Limit::EXEMPT).
    #[must_use]
    pub fn remaining(&self) -> u32 {
        match self.found.blocked_until {
            Some(_) => 0,
            None => self.found.state.remaining(&self.policy, self.decided_at),
        }
    }

    /// The instant at which it was decided.
    #[must_use]
    pub fn decided_at(&self) -> Timestamp {
        self.decided_at
    }

    /// The time from [`decided_at`](Self::decided_at) until the whole limit is available again; for windows with a
    /// beginning the time until their end.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        let state = &self.found.state;
        let reset_after = state.reset_after(&self.policy, self.decided_at);
        reset_after.max(self.blocked_for().unwrap_or_default())
    }

    /// The time after which this policy has room for the same charge, if nobody else uses the key.
    ///
    /// `None` when it had room, and when no wait helps: a limit of 0, or a cost above the limit.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if self.is_allowed() {
            return None;
        }
        let (cost, state) = (self.cost.max(1), &self.found.state);
        let fits_after = state.fits_after(&self.policy, cost, self.decided_at)?;
        Some(fits_after.max(self.blocked_for().unwrap_or_default()))
    }

    /// The time from [`decided_at`](Self::decided_at) for which the key is blocked, if it is; see
    /// [`Policy::block_for`](crate::Policy::block_for).
    #[must_use]
    pub fn blocked_for(&self) -> Option<Duration> {
        let until = self.found.blocked_until?;
        Some(until.saturating_duration_since(self.decided_at))
    }

    /// Whether anything is known of it.
    pub(super) fn is_known(&self) -> bool {
        self.found.is_known
    }

    /// Whether no wait helps.
    pub(super) fn is_hopeless(&self) -> bool {
        self.is_denied() && self.retry_after().is_none()
    }

    /// The time in which no more than [`remaining`](Self::remaining) should be used. It never ends after a wait that is
    /// told.
    pub(crate) fn effective_window(&self) -> Duration {
        let window = self
            .found
            .state
            .effective_window(&self.policy, self.decided_at)
            .max(self.blocked_for().unwrap_or_default());
        match self.retry_after() {
            Some(retry_after) => window.min(retry_after),
            None => window,
        }
    }
}
