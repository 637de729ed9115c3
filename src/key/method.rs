//! The request's method.

use std::borrow::Cow;

use http::Method;
use http::request::Parts;

use super::{KeyError, KeyExtractor, KeySource};
use crate::limit::Key;

/// What methods outside RFC 9110 and RFC 5789 share: a method is any word that the client makes up. It is no method's
/// own name, since they are told apart by case.
const OTHER: &str = "other";

/// The request's method: `method:POST`. HEAD counts as GET.
///
/// GET, POST, PUT, PATCH, DELETE, OPTIONS, TRACE and CONNECT are told apart. All other methods share `method:other`, since
/// a client may make up as many as it likes.
///
/// # Examples
///
/// ```
/// use tollgate::{RateLimitLayer, key};
///
/// // Reading uses nothing of what writing may.
/// let layer = RateLimitLayer::fixed(100, 60).key(key::peer_ip().and(key::method()));
/// ```
#[must_use]
pub fn method() -> KeySource {
    KeySource::new(RequestMethod)
}

struct RequestMethod;

impl KeyExtractor for RequestMethod {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        Ok(Some(Key::new("method", name(&parts.method))))
    }

    fn describe(&self) -> Cow<'static, str> {
        Cow::Borrowed("method")
    }

    fn key_of(&self, value: &[u8]) -> Key {
        match Method::from_bytes(value) {
            Ok(method) => Key::new("method", name(&method)),
            Err(_) => Key::new("method", value),
        }
    }
}

fn name(method: &Method) -> &str {
    match *method {
        Method::HEAD => Method::GET.as_str(),
        Method::GET
        | Method::POST
        | Method::PUT
        | Method::PATCH
        | Method::DELETE
        | Method::OPTIONS
        | Method::TRACE
        | Method::CONNECT => method.as_str(),
        _ => OTHER,
    }
}
