//! The route that axum has matched.

use std::borrow::Cow;

use axum::extract::{MatchedPath, OriginalUri};
use http::request::Parts;

use super::{KeyError, KeyExtractor, KeySource, Normalize};
use crate::limit::key::Kind;
use crate::limit::{Key, Mistake};

/// What requests share that no route has matched. Routes begin with `/`.
const UNMATCHED: &str = "unmatched";

/// The pattern of the route that axum has matched: `route:/user/{id}`.
///
/// A respelled path buys nothing: all paths of a route share its key, and all paths that no route matches share
/// `route:unmatched`, also what a `nest_service` is given, of whose routes axum knows nothing.
///
/// The layer must stand inside the router: on it (`Router::layer`, `Router::route_layer`), on a nested router, or on a
/// route (`MethodRouter::layer`). Around the router nothing is matched yet, and the answer is a 500 that says so.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate::{RateLimitLayer, key};
///
/// let app: Router = Router::new()
///     .route("/user/{id}", get(|| async { "somebody" }))
///     .layer(RateLimitLayer::fixed(100, 60).key(key::peer_ip().and(key::matched_route())));
/// ```
#[must_use]
pub fn matched_route() -> KeySource {
    KeySource::new(MatchedRoute(Kind::new("route")))
}

struct MatchedRoute(Kind);

impl KeyExtractor for MatchedRoute {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        self.extract_normalized(parts, Normalize::NOT)
    }

    fn missing(&self) -> KeyError {
        KeyError::server(
            "no router has seen the request yet: put the rate limit layer inside the router, with Router::layer, \
             route_layer or MethodRouter::layer, not around it",
        )
        .named(Mistake("no-matched-route"))
    }

    fn describe(&self) -> Cow<'static, str> {
        Cow::Borrowed("matched route")
    }

    fn key_of(&self, value: &[u8]) -> Key {
        self.0.key(value)
    }

    fn extract_normalized(
        &self,
        parts: &Parts,
        normalize: Normalize<'_>,
    ) -> Result<Option<Key>, KeyError> {
        let route = match parts.extensions.get::<MatchedPath>() {
            Some(path) => path.as_str(),
            // Every router leaves it behind, before it looks for a route.
            None if parts.extensions.get::<OriginalUri>().is_some() => UNMATCHED,
            None => return Ok(None),
        };
        Ok(normalize.key(route.as_bytes(), |route| self.0.key(route)))
    }
}
