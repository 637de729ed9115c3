//! What a layer's own answers look like.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};

use super::RateLimitLayer;
use crate::middleware::{Decisions, Rejection};
use crate::response::Problem;

impl RateLimitLayer {
    /// Sets type, title and detail of the problem document of a refused request.
    #[must_use]
    pub fn problem(self, problem: Problem) -> Self {
        self.with(|settings| settings.problem = problem)
    }

    /// Gives back the units of a request whose answer should not count, told by its status. By default every answer counts.
    ///
    /// The units are charged before the inner service runs, so no more requests run at once than the limit allows, whatever
    /// comes of them. When the answer is there they go back to the window that they were taken from, and its fields show it. An
    /// error of the inner service counts as a status of 500. What is dropped before it has an answer, since the client hangs up or
    /// a timeout outside ends it, gets nothing back. Our own answers are not asked about: a refusal has used nothing.
    ///
    /// A gRPC call that fails before it has sent a message tells its status in the header section: what counts is the HTTP status
    /// that means the same, 401 for `UNAUTHENTICATED` say. One that fails later counts as 200.
    ///
    /// Only the layer that has charged a counter gives it back: of nested layers on one counter set it on the outermost. An inner one
    /// warns once.
    ///
    /// Beside [`block_for`](Self::block_for): six log-ins at once, all with the right password, are five that run and one refusal,
    /// which blocks. The first refund of a unit that was out at that moment ends the block.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::StatusCode;
    /// use tollgate::RateLimitLayer;
    ///
    /// // Five wrong passwords in a quarter of an hour; who logs in is not counted, and neither is what fails in the server.
    /// let layer = RateLimitLayer::sliding(5, 900)
    ///     .name("login")
    ///     .refund_if(|status| status != StatusCode::UNAUTHORIZED);
    /// ```
    #[must_use]
    pub fn refund_if(self, refund_if: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.refund_if = Some(Arc::new(refund_if)))
    }

    /// Makes the answers to requests that the inner service does not get: refused ones, and those that fail for want of
    /// a key or of the store. `None` leaves the answer to the layer.
    ///
    /// The response is sent as it is, and gets the rate limit fields of a refusal; `Retry-After` and
    /// `Cache-Control: no-store` are added when it has none. To HEAD its body is not sent. A gRPC call gets it as it is, so
    /// it should be a gRPC status then.
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
    /// that refuses by a [`Limiter`](crate::Limiter) what the layer has let through.
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
        self.settings.reject(why.clone(), parts, before)
    }
}
