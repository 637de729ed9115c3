//! The layer, which is its own builder.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tower_layer::Layer;

use super::settings::Settings;
use super::{Decisions, RateLimit, Rejection};
use crate::key::KeySource;
use crate::limit::{Policies, Policy, PolicyError};
use crate::limiter::{FailureMode, Limiter};
use crate::response::{Problem, ResetFormat};
use crate::store::Store;

/// Puts a rate limit in front of any `tower::Service<http::Request<_>>`.
///
/// For each request it takes a key, charges one policy or several for that key in the store, and either calls the inner service or
/// answers 429 with a problem document and `Retry-After`. Allowed responses get `RateLimit` and `RateLimit-Policy`.
///
/// | | default | |
/// | --- | --- | --- |
/// | [`store`](Self::store) | an in-memory SQLite that the process shares | counters of its own: two layers never meet there |
/// | [`name`](Self::name) | made of the numbers: `fixed-3-60s` | |
/// | [`key`](Self::key) | the peer's IP | IPv6 by /64 |
/// | [`on_store_failure`](Self::on_store_failure) | [`FailureMode::Closed`] | 503 |
/// | [`problem`](Self::problem) | the draft's `quota-exceeded` | |
/// | [`rejection`](Self::rejection) | none | |
/// | [`x_rate_limit`](Self::x_rate_limit) | off | |
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
    settings: Arc<Settings>,
}

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
    pub fn and(self, policy: Policy, key: KeySource) -> Self {
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
    pub fn try_and(mut self, policy: Policy, key: KeySource) -> Result<Self, PolicyError> {
        Arc::make_mut(&mut self.settings).add(policy, key)?;
        Ok(self)
    }

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
    #[must_use]
    pub fn store(self, store: &(impl Store + ?Sized)) -> Self {
        let limiter = self.limiter().store(store);
        self.with(|settings| settings.set_limiter(limiter))
    }

    /// Takes the key of a request from here. By default it is the peer's IP; see [`key`](crate::key). Policies that were added
    /// with [`and`](Self::and) keep their own.
    #[must_use]
    pub fn key(self, source: KeySource) -> Self {
        self.with(|settings| settings.set_key(source))
    }

    /// Sets what happens when the store fails or misses its deadline: by default [`FailureMode::Closed`], a 503.
    #[must_use]
    pub fn on_store_failure(self, failure_mode: FailureMode) -> Self {
        let limiter = self.limiter().on_store_failure(failure_mode);
        self.with(|settings| settings.set_limiter(limiter))
    }

    /// Sets type, title and detail of the problem document of a refused request.
    #[must_use]
    pub fn problem(self, problem: Problem) -> Self {
        self.with(|settings| settings.problem = problem)
    }

    /// Makes the answers to requests that the inner service does not get: refused ones, and those that fail for want of
    /// a key or of the store. `None` leaves the answer to the layer.
    ///
    /// The response is sent as it is, and gets the rate limit fields of a refusal; `Retry-After` and
    /// `Cache-Control: no-store` are added when it has none. To HEAD its body is not sent.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::Response;
    /// use tollgate::{RateLimitLayer, Rejection};
    ///
    /// let layer = RateLimitLayer::fixed(3, 60).rejection(|why, parts| match why {
    ///     Rejection::Denied(_) if parts.uri.path().starts_with("/plain") => {
    ///         Response::builder().status(why.status()).body("slow down\n").ok()
    ///     }
    ///     _ => None,
    /// });
    /// ```
    #[must_use]
    pub fn rejection<B: Into<Bytes>>(
        self,
        answer: impl Fn(&Rejection, &Parts) -> Option<Response<B>> + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| {
            settings.on_rejection = Some(Arc::new(move |why, parts| {
                answer(why, parts).map(|response| response.map(Into::into))
            }));
        })
    }

    /// The answer that this layer gives for such a rejection: with its problem, its own answers, its fields. For a handler
    /// that refuses by a [`Limiter`] what the layer has let through.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::Request;
    /// use tollgate::{Key, Limiter, MemoryStore, Policy, Problem, RateLimitLayer, Rejection, StoreError};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let layer = RateLimitLayer::fixed(100, 60).problem(Problem::new("/problems/slow-down", "Slow Down"));
    /// let exports = Limiter::new(Policy::fixed(0, 60).name("exports")).store(&MemoryStore::new());
    ///
    /// let (parts, _) = Request::new(()).into_parts();
    /// if let Err(denied) = exports.check_n(&Key::new("user", 42), 10).await?.into_result() {
    ///     let response = layer.answer(&Rejection::from(denied), &parts);
    ///     assert_eq!(response.headers()["ratelimit-policy"], "\"exports\";q=0;w=60");
    ///     assert!(response.body().starts_with(b"{\"type\":\"/problems/slow-down\""));
    /// }
    /// # Ok::<(), StoreError>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn answer(&self, why: &Rejection, parts: &Parts) -> Response<Bytes> {
        let before = parts.extensions.get::<Decisions>().cloned();
        self.settings.reject(why, parts, before)
    }

    /// Sends `X-RateLimit-Limit`, `-Remaining` and `-Reset` too, for clients that know nothing newer. Off by default.
    ///
    /// Where layers nest, they are those of the limit that has the fewest left.
    #[must_use]
    pub fn x_rate_limit(self, reset: ResetFormat) -> Self {
        self.with(|settings| settings.x_rate_limit = Some(reset))
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

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
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
