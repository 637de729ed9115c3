//! The answers that we make ourselves.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};

use crate::key::KeyError;
use crate::limit::{Decision, Denied};
use crate::response::fields::Fields;
use crate::response::{Document, PROBLEM_JSON, Problem, fields, grpc};
use crate::store::StoreError;

/// What the store needs to come back. A layer can't know; this is short enough to be worth a retry and long
/// enough not to add to the load.
const STORE_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Why a request is answered without the inner service.
///
/// The layer makes one for every such answer; see [`RateLimitLayer::rejection`](crate::RateLimitLayer::rejection). A
/// handler that uses a [`Limiter`](crate::Limiter) makes one of [`Denied`] or of a [`StoreError`], by `?` or `from`, and
/// answers like a layer with default settings; like one with others by
/// [`RateLimitLayer::answer`](crate::RateLimitLayer::answer).
///
/// | | status | in gRPC | `Retry-After` |
/// | --- | --- | --- | --- |
/// | [`Denied`](Self::Denied) | 429 | `RESOURCE_EXHAUSTED` | whole seconds, rounded up, at least 1; absent when no wait helps |
/// | [`KeyMissing`](Self::KeyMissing) | 400 | `INVALID_ARGUMENT` | |
/// | [`Setup`](Self::Setup) | 500 | `INTERNAL` | |
/// | [`Store`](Self::Store) | 503 | `UNAVAILABLE` | 5 |
///
/// # gRPC
///
/// A layer answers a request of the content type `application/grpc`, or `application/grpc+…`, as gRPC has it: HTTP 200,
/// the status above in `grpc-status`, the problem's `detail` in `grpc-message`, and no body. When there is a wait, it is
/// in `grpc-retry-pushback-ms` too, rounded up to the millisecond, at most 2^31 - 1, and in a `google.rpc.RetryInfo`. The
/// rate limit fields and `Retry-After` come as metadata. gRPC-Web (`application/grpc-web`) gets the answers of HTTP: put
/// the layer inside of what translates it.
///
/// # Examples
///
/// ```
/// use tollgate::{Key, Limiter, Policy, Problem, Rejection, StoreError};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let limiter = Limiter::new(Policy::fixed(0, 60));
/// let denied = limiter.check(&Key::new("user", 42)).await?.into_result().unwrap_err();
///
/// let response = Rejection::from(denied).to_response(&Problem::default());
/// assert_eq!(response.status(), 429);
/// assert_eq!(response.headers()["content-type"], "application/problem+json");
/// # Ok::<(), StoreError>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
#[expect(
    clippy::large_enum_variant,
    reason = "most are refusals, and a box would cost each of them an allocation"
)]
pub enum Rejection {
    /// Over the limit: a decision that refused.
    Denied(Decision),
    /// The client did not send what it is told by.
    KeyMissing(KeyError),
    /// The server's set-up lacks what the key is made of, or the policy that is to apply.
    Setup(KeyError),
    /// The store gave no answer, and the failure mode is `Closed`; or it is `Local`, the default, and the memory of this process
    /// has no room for the key either.
    Store(StoreError),
}

impl Rejection {
    /// The status of the answer.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Denied(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::KeyMissing(_) => StatusCode::BAD_REQUEST,
            Self::Setup(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The seconds of `Retry-After`, when there is one.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after().map(fields::wait_seconds)
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Denied(decision) => decision.retry_after(),
            Self::Store(_) => Some(STORE_RETRY_AFTER),
            Self::KeyMissing(_) | Self::Setup(_) => None,
        }
    }

    /// The decision, when it is one that refused.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        match self {
            Self::Denied(decision) => Some(decision),
            _ => None,
        }
    }

    /// The answer as a layer with default settings gives it over HTTP: the problem document, `Retry-After`,
    /// `Cache-Control: no-store`, and for a refusal `RateLimit` and `RateLimit-Policy`.
    #[must_use]
    pub fn to_response(&self, problem: &Problem) -> Response<Bytes> {
        let mut response = self.to_bare_response(problem);
        if let Self::Denied(decision) = self {
            Fields::default().write(response.headers_mut(), decision, None);
        }
        self.complete(&mut response);
        response
    }

    /// The problem document with its status and type alone.
    pub(super) fn to_bare_response(&self, problem: &Problem) -> Response<Bytes> {
        let body = self.document(problem).to_bytes();
        let mut response = Response::new(body);
        *response.status_mut() = self.status();
        response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
        response
    }

    /// The same as a gRPC status.
    pub(super) fn to_bare_grpc_response(&self, problem: &Problem) -> Response<Bytes> {
        grpc::trailers_only(&self.document(problem), self.retry_after())
    }

    fn document<'a>(&'a self, problem: &'a Problem) -> Document<'a> {
        let retry_after = self.retry_after_seconds();
        match self {
            Self::Denied(decision) => Document::denied(problem, decision),
            Self::KeyMissing(error) | Self::Setup(error) => {
                Document::of_status(self.status(), error.to_string(), retry_after)
            }
            Self::Store(_) => Document::of_status(
                self.status(),
                "The request could not be checked against its rate limit.",
                retry_after,
            ),
        }
    }

    /// Adds what every answer of ours has, also one that a user made, where it is missing.
    pub(super) fn complete(&self, response: &mut Response<Bytes>) {
        let headers = response.headers_mut();
        if let Some(after) = self.retry_after() {
            fields::write_retry_after(headers, after);
        }
        // A 429 must not be stored (RFC 6585, 4), and an outer layer's max-age would make the others storable.
        headers
            .entry(CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-store"));
    }
}

impl From<Denied> for Rejection {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied.into_decision())
    }
}

impl From<StoreError> for Rejection {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<KeyError> for Rejection {
    fn from(error: KeyError) -> Self {
        if error.is_client() {
            Self::KeyMissing(error)
        } else {
            Self::Setup(error)
        }
    }
}

/// Answers with the default [`Problem`].
#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Rejection {
    fn into_response(self) -> axum::response::Response {
        self.to_response(&Problem::default())
            .map(axum::body::Body::from)
    }
}
