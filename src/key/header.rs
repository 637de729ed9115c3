//! The value of a header.

use std::borrow::Cow;

use http::HeaderName;
use http::request::Parts;

use super::{KeyError, KeyExtractor, KeySource, Normalize};
use crate::limit::key::Kind;
use crate::limit::{Key, Mistake};

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
    let name = valid_name(name);
    KeySource::new(Header {
        kind: Kind::of_header(name.as_str()),
        name,
    })
}

/// Panics when it can't name a header.
#[track_caller]
pub(super) fn valid_name(name: &str) -> HeaderName {
    let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
        panic!(
            "{name:?} can't be a header's name: use letters, digits and -, as in x-api-key {}",
            Mistake("invalid-header-name")
        );
    };
    name
}

struct Header {
    name: HeaderName,
    kind: Kind,
}

impl KeyExtractor for Header {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        self.extract_normalized(parts, Normalize::NOT)
    }

    fn missing(&self) -> KeyError {
        KeyError::client(format!(
            "the header {} is missing or empty: send it",
            self.name
        ))
    }

    fn describe(&self) -> Cow<'static, str> {
        Cow::Owned(format!("header {}", self.name))
    }

    fn key_of(&self, value: &[u8]) -> Key {
        self.kind.key(value)
    }

    fn extract_normalized(
        &self,
        parts: &Parts,
        normalize: Normalize<'_>,
    ) -> Result<Option<Key>, KeyError> {
        let mut values = parts.headers.get_all(&self.name).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            let message = format!(
                "the header {} was sent more than once: send it once",
                self.name
            );
            return Err(KeyError::client(message));
        }
        Ok(normalize.key(value.as_bytes(), |value| self.kind.key(value)))
    }
}
