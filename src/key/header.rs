//! The value of a header.

use std::borrow::Cow;

use http::HeaderName;
use http::request::Parts;

use super::{KeyError, KeyExtractor, KeySource};
use crate::limit::Key;

/// The value of a header, whatever bytes it has: `header/<name>:<value>`.
///
/// Missing, empty or blank, it is no key: the answer is 400, unless [`KeySource::or`] or [`KeySource::or_value`] says
/// otherwise. Sent twice it is a 400 in any case, since it is not known which of the two others believe.
///
/// A client can send any value: use a header that a gateway sets or that an authentication layer has verified. An
/// unverified one buys a fresh counter for each made-up value.
///
/// # Panics
///
/// When the name is no valid header name.
///
/// # Examples
///
/// ```
/// use tollgate::{RateLimitLayer, key};
///
/// let layer = RateLimitLayer::fixed(100, 60).key(key::header("x-client-key"));
/// ```
#[must_use]
#[track_caller]
pub fn header(name: &str) -> KeySource {
    let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
        panic!("{name:?} can't be a header's name: use letters, digits and -, as in x-api-key");
    };
    KeySource::new(Header(name))
}

struct Header(HeaderName);

impl KeyExtractor for Header {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        let mut values = parts.headers.get_all(&self.0).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            let message = format!(
                "the header {} was sent more than once: send it once",
                self.0
            );
            return Err(KeyError::client(message));
        }
        let value = value.as_bytes();
        if value.trim_ascii().is_empty() {
            return Ok(None);
        }
        Ok(Some(Key::header(self.0.as_str(), value)))
    }

    fn missing(&self) -> KeyError {
        KeyError::client(format!(
            "the header {} is missing or empty: send it",
            self.0
        ))
    }

    fn describe(&self) -> Cow<'static, str> {
        Cow::Owned(format!("header {}", self.0))
    }

    fn key_of(&self, value: &str) -> Key {
        Key::header(self.0.as_str(), value)
    }
}
