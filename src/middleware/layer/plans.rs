//! Which policy applies to a request.

use std::sync::Arc;

use http::request::Parts;

use super::RateLimitLayer;
use crate::limit::{Mistake, Policies, Policy, PolicyError};
use crate::middleware::requests::Choice;

impl RateLimitLayer {
    /// Applies to each request the one of these policies that has the name which `name` returns: the limit of a plan.
    ///
    /// A name that none of them has is a mistake in the set-up: the request gets a 500 that says which names there are,
    /// and the log says so once. Policies that are added with [`and`](Self::and) apply to every request beside the chosen
    /// one. The fields show what applied.
    ///
    /// [`limiter`](Self::limiter) has all of the policies: it looks at each of them and resets each, and a charge to it
    /// is to all of them.
    ///
    /// Each policy has counters of its own, so that who changes plans starts anew. To keep what was used, give one policy
    /// with another limit by [`policy_for`](Self::policy_for): the limit is no part of a counter, the name is.
    ///
    /// # Panics
    ///
    /// When there is no policy, or two have the same name. [`try_one_of`](Self::try_one_of) returns an error instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Policy, RateLimitLayer};
    ///
    /// #[derive(Clone)]
    /// struct Account {
    ///     plan: String,
    /// }
    ///
    /// let plans = [
    ///     Policy::daily(1_000).name("free"),
    ///     Policy::daily(100_000).name("pro"),
    /// ];
    /// let layer = RateLimitLayer::one_of(plans, |parts| match parts.extensions.get::<Account>() {
    ///     Some(account) => &account.plan,
    ///     None => "free",
    /// });
    /// ```
    #[must_use]
    #[track_caller]
    pub fn one_of(
        policies: impl Into<Policies>,
        name: impl Fn(&Parts) -> &str + Send + Sync + 'static,
    ) -> Self {
        match Self::try_one_of(policies, name) {
            Ok(layer) => layer,
            Err(error) => panic!("{error}"),
        }
    }

    /// Applies one of these policies to each request; see [`one_of`](Self::one_of).
    ///
    /// # Errors
    ///
    /// [`PolicyError`] when there is no policy, or two have the same name, without regard to case.
    pub fn try_one_of(
        policies: impl Into<Policies>,
        name: impl Fn(&Parts) -> &str + Send + Sync + 'static,
    ) -> Result<Self, PolicyError> {
        let choice = Choice::OneOf(Arc::new(name));
        let layer = Self::try_new(policies)?;
        Ok(layer.with_requests(|requests| requests.choice = Some(choice)))
    }

    /// Applies to a request the policy that this returns, in place of the layer's only one: a limit from a row of a
    /// database, say, which a layer outside has put into the extensions. `None` is the layer's own. Policies that are added with
    /// [`and`](Self::and) apply beside it.
    ///
    /// Name it: counters belong to the name, the algorithm and the window, and not to the limit, so that under one name
    /// a new limit goes on from what was used. Without a name it is called after its numbers, and each limit counts apart.
    ///
    /// [`limiter`](Self::limiter) knows the layer's own policy alone. Others are looked at and reset by a
    /// [`Limiter`](crate::Limiter) of the same policy on the same [store](Self::store); or, when they have the name,
    /// algorithm and window of the layer's own, by that one. A policy with the name of one that was added with `and` is a
    /// mistake in the set-up: the request gets a 500, and the log says so once.
    ///
    /// # Panics
    ///
    /// When the layer has several policies beside those that were added with `and`, or was made by
    /// [`one_of`](Self::one_of).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Policy, RateLimitLayer};
    ///
    /// #[derive(Clone)]
    /// struct Account {
    ///     requests_per_minute: u32,
    /// }
    ///
    /// let layer = RateLimitLayer::fixed(60, 60).name("api").policy_for(|parts| {
    ///     let account = parts.extensions.get::<Account>()?;
    ///     Some(Policy::fixed(account.requests_per_minute, 60).name("api"))
    /// });
    /// ```
    #[must_use]
    #[track_caller]
    pub fn policy_for(
        self,
        policy: impl Fn(&Parts) -> Option<Policy> + Send + Sync + 'static,
    ) -> Self {
        assert!(
            self.settings.has_only_policy(),
            "policy_for is for a rate limit of one policy, and this one has several: begin with one, and add those that \
             always apply with .and(…) {}",
            Mistake("several-policies")
        );
        self.with_requests(|requests| requests.choice = Some(Choice::Computed(Arc::new(policy))))
    }
}
