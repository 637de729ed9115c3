//! The layer, which is its own builder.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use crate::key::KeyExtractor;
use crate::limit::{Policy, PolicyError};
use crate::limiter::{FailureMode, Limiter};
use crate::middleware::RateLimit;
use crate::middleware::settings::Settings;
use crate::store::Store;

/// Puts a rate limit in front of any `tower::Service<http::Request<_>>`.
///
/// For each request it takes a key, charges one policy or several for that key in the store, and either calls the inner service or
/// answers 429 with a problem document and `Retry-After`, or a gRPC call with a [status](crate::Rejection#grpc). Allowed
/// responses get `RateLimit` and `RateLimit-Policy`.
///
/// | | default | |
/// | --- | --- | --- |
/// | [`store`](Self::store) | an in-memory SQLite that the process shares | counters of its own: two layers never meet there |
/// | [`name`](Self::name) | made of the numbers: `fixed-3-60s` | |
/// | [`burst`](Self::burst) | the rate | of token buckets |
/// | [`key`](Self::key) | the peer's IP | IPv6 by /64 |
/// | [`block_for`](Self::block_for) | off | a refused key is blocked for a while |
/// | [`on_store_failure`](Self::on_store_failure) | [`FailureMode::Local`] | this process goes on limiting by itself |
/// | [`problem`](Self::problem) | the draft's `quota-exceeded` | |
/// | [`rejection`](Self::rejection) | none | |
/// | [`x_rate_limit`](Self::x_rate_limit) | off | |
/// | [`cost`](Self::cost) | 1 | units of a request |
/// | [`refund_if`](Self::refund_if) | never | answers whose units go back |
/// | [`audit`](Self::audit) | off | |
/// | [`skip`](Self::skip), [`skip_preflights`](Self::skip_preflights) | nothing | uncounted, without fields |
/// | [`exempt_networks`](Self::exempt_networks) | none | uncounted, without fields |
/// | [`policy_for`](Self::policy_for) | the layer's own policies | see [`one_of`](Self::one_of) too |
/// | [`shadow`](Self::shadow) | `false` | |
/// | [`retry_after_max`](Self::retry_after_max), [`no_retry_after_above`](Self::no_retry_after_above) | none | |
/// | [`jitter`](Self::jitter) | none | |
/// | [`dialect`](Self::dialect) | [`Dialect::Draft08`](crate::Dialect::Draft08) | |
/// | [`partition_key`](Self::partition_key) | off | |
/// | [`fields_on_redirects`](Self::fields_on_redirects) | `true` | |
/// | [`enabled`](Self::enabled) | `true` | |
///
/// A layer of several policies charges all of them or none: see [`new`](Self::new) and [`and`](Self::and).
///
/// Clones share their counters. Nested layers count one after the other, the outer one first: a request that an inner
/// one refuses has used a unit of the outer one. The same counter met twice in one request is charged once.
///
/// Where it stands decides what counts. In axum, `Router::layer` also charges requests that match no route,
/// `Router::route_layer` and `MethodRouter::layer` those with the wrong method, and `MethodRouter::route_layer` neither.
/// Put CORS and tracing outside, so that a refusal has their headers and is seen.
///
/// # Examples
///
/// ```
/// use std::net::SocketAddr;
/// use axum::{Router, routing::{get, post}};
/// use tollgate::RateLimitLayer;
///
/// let app = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .route("/login", post(|| async { "welcome" }).layer(RateLimitLayer::sliding(5, 900).name("login")))
///     .layer(RateLimitLayer::fixed(100, 60).name("all"));
///
/// // The peer's address must be made known:
/// let service = app.into_make_service_with_connect_info::<SocketAddr>();
/// ```
#[derive(Clone)]
pub struct RateLimitLayer {
    pub(super) settings: Arc<Settings>,
}

impl RateLimitLayer {
    /// Names the policy, when it is the only one: clients see the name in the fields, and counters are filed under it.
    ///
    /// # Panics
    ///
    /// When the name is not 1 to 64 characters of letters, digits, `_`, `.`, `:`, `/`, `*`, `-`, a letter first; and when
    /// the layer has several policies: name those instead.
    #[must_use]
    #[track_caller]
    pub fn name(self, name: &str) -> Self {
        self.with_only_policy(|policy| policy.try_name(name))
    }

    /// Sets how many requests a token bucket lets pass at once after a rest; see [`Policy::burst`].
    ///
    /// # Panics
    ///
    /// When the layer's only policy is no token bucket, the burst would take longer than ten years to come back, or the
    /// layer has several policies.
    #[must_use]
    #[track_caller]
    pub fn burst(self, burst: u32) -> Self {
        self.with_only_policy(|policy| policy.try_burst(burst))
    }

    /// Blocks a key that was refused: for so long all its requests are refused, whatever is left; see
    /// [`Policy::block_for`].
    ///
    /// # Panics
    ///
    /// When the duration is 0, longer than ten years, or has a fraction of a millisecond; and when the layer has several
    /// policies: set it on those instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::RateLimitLayer;
    ///
    /// // Who tries a sixth password within a quarter of an hour waits for an hour.
    /// let layer = RateLimitLayer::sliding(5, 900).name("login").block_for(Duration::from_hours(1));
    /// ```
    #[must_use]
    #[track_caller]
    pub fn block_for(self, lasts: Duration) -> Self {
        self.block_after(1, lasts)
    }

    /// Blocks a key that was refused so many times in a row; see [`Policy::block_after`].
    ///
    /// # Panics
    ///
    /// As [`block_for`](Self::block_for), and when the number is 0.
    #[must_use]
    #[track_caller]
    pub fn block_after(self, refusals: u32, lasts: Duration) -> Self {
        self.with_only_policy(|policy| policy.try_block_after(refusals, lasts))
    }

    #[track_caller]
    fn with_only_policy(self, change: impl FnOnce(Policy) -> Result<Policy, PolicyError>) -> Self {
        // Checked here, so that a panic tells the caller's line.
        match self.settings.limiter.with_only_policy(change) {
            Ok(limiter) => self.with(|settings| settings.set_limiter(limiter)),
            Err(error) => panic!("{error}"),
        }
    }

    /// Counts in this store. Without it an in-memory SQLite counts, and forgets with the process.
    ///
    /// On a given store a counter belongs to the policy's name, algorithm and window, and to the key: layers that agree
    /// in those share it, in all processes on the store. The name that is made of the numbers has the limit in it: give
    /// the policy a [name](Self::name) to keep what was used when the limit changes.
    ///
    /// # Panics
    ///
    /// When policies have keys of their own ([`and`](Self::and)), and the store is a cluster of Redis.
    #[must_use]
    #[track_caller]
    pub fn store(self, store: &(impl Store + ?Sized)) -> Self {
        let limiter = self.limiter().store(store);
        let layer = self.with(|settings| settings.set_limiter(limiter));
        match layer.settings.check_keys() {
            Ok(()) => layer,
            Err(error) => panic!("{error}"),
        }
    }

    /// Takes the key of a request from here. By default it is the peer's IP; see [`key`](crate::key). Policies that were added
    /// with [`and`](Self::and) keep their own.
    ///
    /// # Panics
    ///
    /// When networks are exempt and no source has an address; see [`exempt_networks`](Self::exempt_networks).
    #[must_use]
    #[track_caller]
    pub fn key(self, source: impl KeyExtractor) -> Self {
        let layer = self.with(|settings| settings.set_key(source.into_source()));
        match layer.settings.check_addresses() {
            Ok(()) => layer,
            Err(error) => panic!("{error}"),
        }
    }

    /// Decides by this clock, which a test sets; see [`Limiter::clock`]. Without a [store](Self::store) the layer counts in a
    /// [`MemoryStore`](crate::MemoryStore) of its own then, and clones of it share that.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "test-util")] {
    /// use tollgate::{ManualClock, RateLimitLayer, Timestamp};
    ///
    /// let clock = ManualClock::new(Timestamp::from_unix_millis(0));
    /// let layer = RateLimitLayer::fixed(3, 60).clock(&clock);
    /// # }
    /// ```
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn clock(self, clock: &crate::clock::ManualClock) -> Self {
        let limiter = self.limiter().clock(clock);
        self.with(|settings| settings.set_limiter(limiter))
    }

    /// Sets what happens when the store fails or misses its deadline: by default [`FailureMode::Local`], which goes on limiting
    /// in this process's memory until the store answers again.
    #[must_use]
    pub fn on_store_failure(self, failure_mode: FailureMode) -> Self {
        let limiter = self.limiter().on_store_failure(failure_mode);
        self.with(|settings| settings.set_limiter(limiter))
    }

    /// Switches the limit off, with `false`: every request goes on to the inner service, uncounted and without fields.
    #[must_use]
    pub fn enabled(self, is_enabled: bool) -> Self {
        self.with(|settings| settings.is_enabled = is_enabled)
    }

    /// The limiter behind the layer: it shares the layer's counters, to look at them and to reset them.
    #[must_use]
    pub fn limiter(&self) -> Limiter {
        self.settings.limiter.clone()
    }

    /// What each of its policies is keyed by, in words and in their order.
    #[cfg(feature = "admin")]
    pub(crate) fn keyed_by(&self) -> impl Iterator<Item = String> {
        let places = 0..self.settings.limiter.policies().len();
        places.map(|place| self.settings.keyed_by(place))
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.settings))
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}
