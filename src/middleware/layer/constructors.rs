//! How a layer is made: of one policy, or of several.

use std::sync::Arc;

use super::RateLimitLayer;
use crate::key::KeyExtractor;
use crate::limit::{Policies, Policy, PolicyError};
use crate::middleware::settings::Settings;

impl RateLimitLayer {
    /// Allows `limit` requests in each aligned window of `seconds` seconds, for each key.
    ///
    /// Up to twice the limit may pass around a boundary: the end of one window and the start of the next.
    ///
    /// # Panics
    ///
    /// When the window is 0 or longer than ten years. For numbers from configuration use
    /// [`Policy::try_fixed`] and [`new`](Self::new).
    #[must_use]
    #[track_caller]
    pub fn fixed(limit: u32, seconds: u64) -> Self {
        Self::new(Policy::fixed(limit, seconds))
    }

    /// Never allows more than `limit` requests in any window of `seconds` seconds, for each key; see [`Policy::sliding`].
    ///
    /// # Panics
    ///
    /// When the window is 0 or longer than ten years; see [`Policy::try_sliding`].
    #[must_use]
    #[track_caller]
    pub fn sliding(limit: u32, seconds: u64) -> Self {
        Self::new(Policy::sliding(limit, seconds))
    }

    /// Allows about `limit` requests in any window of `seconds` seconds, for each key, in constant space; see
    /// [`Policy::sliding_counter`].
    ///
    /// # Panics
    ///
    /// When the window is 0 or longer than ten years; see [`Policy::try_sliding_counter`].
    #[must_use]
    #[track_caller]
    pub fn sliding_counter(limit: u32, seconds: u64) -> Self {
        Self::new(Policy::sliding_counter(limit, seconds))
    }

    /// Allows `rate` requests in `seconds` seconds, spread evenly, and [`burst`](Self::burst) at once; see
    /// [`Policy::token_bucket`].
    ///
    /// # Panics
    ///
    /// When `seconds` is 0 or more than ten years; see [`Policy::try_token_bucket`].
    #[must_use]
    #[track_caller]
    pub fn token_bucket(rate: u32, seconds: u64) -> Self {
        Self::new(Policy::token_bucket(rate, seconds))
    }

    /// Allows `limit` requests in each hour of the UTC calendar, for each key.
    #[must_use]
    pub fn hourly(limit: u32) -> Self {
        Self::new(Policy::hourly(limit))
    }

    /// Allows `limit` requests in each day of the UTC calendar, for each key.
    #[must_use]
    pub fn daily(limit: u32) -> Self {
        Self::new(Policy::daily(limit))
    }

    /// Allows `limit` requests in each month of the UTC calendar, for each key.
    #[must_use]
    pub fn monthly(limit: u32) -> Self {
        Self::new(Policy::monthly(limit))
    }

    /// Applies one policy, or several at once: a request that one of them refuses uses nothing of the others.
    ///
    /// All count by the layer's [`key`](Self::key). The fields list every policy, `Retry-After` is the longest wait of
    /// those that refused, and `limit` and `window_seconds` of the problem document are those of the policy with it.
    ///
    /// # Panics
    ///
    /// When there is no policy, or two have the same name. [`try_new`](Self::try_new) returns an error instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Policy, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new([
    ///     Policy::sliding(20, 1).name("burst"),
    ///     Policy::daily(10_000).name("daily"),
    /// ]);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn new(policies: impl Into<Policies>) -> Self {
        match Self::try_new(policies) {
            Ok(layer) => layer,
            Err(error) => panic!("{error}"),
        }
    }

    /// Applies one policy, or several at once; see [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// [`PolicyError`] when there is no policy, or two have the same name, without regard to case.
    pub fn try_new(policies: impl Into<Policies>) -> Result<Self, PolicyError> {
        Ok(Self {
            settings: Arc::new(Settings::new(policies.into())?),
        })
    }

    /// Applies one more policy, which counts by a key of its own: by address *and* by account, in one decision.
    ///
    /// # Panics
    ///
    /// When a policy of that name is there already. [`try_and`](Self::try_and) returns an error instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Policy, RateLimitLayer, key};
    ///
    /// # #[derive(Clone)] struct UserId(u64);
    /// let layer = RateLimitLayer::new(Policy::sliding(20, 1).name("address")).and(
    ///     Policy::daily(10_000).name("account"),
    ///     key::extension(|user: &UserId| Key::new("user", user.0)),
    /// );
    /// ```
    #[must_use]
    #[track_caller]
    pub fn and(self, policy: Policy, key: impl KeyExtractor) -> Self {
        match self.try_and(policy, key) {
            Ok(layer) => layer,
            Err(error) => panic!("{error}"),
        }
    }

    /// Applies one more policy, which counts by a key of its own; see [`and`](Self::and).
    ///
    /// # Errors
    ///
    /// [`PolicyError`] when a policy of that name is there already.
    pub fn try_and(mut self, policy: Policy, key: impl KeyExtractor) -> Result<Self, PolicyError> {
        Arc::make_mut(&mut self.settings).add(policy, key.into_source())?;
        Ok(self)
    }
}
