//! One key for all requests.

use std::borrow::Cow;

use http::request::Parts;

use super::{KeyError, KeyExtractor, KeySource};
use crate::limit::{Key, KeyValue};

/// One counter for all requests: `constant:<value>`.
///
/// # Examples
///
/// ```
/// use tollgate::{RateLimitLayer, key};
///
/// // A thousand exports per hour, whoever asks for them.
/// let layer = RateLimitLayer::fixed(1_000, 3_600).name("exports").key(key::constant("all"));
/// ```
#[must_use]
pub fn constant(value: impl KeyValue) -> KeySource {
    KeySource::new(Constant(Key::constant(value)))
}

struct Constant(Key);

impl KeyExtractor for Constant {
    fn extract(&self, _: &Parts) -> Result<Option<Key>, KeyError> {
        Ok(Some(self.0.clone()))
    }

    fn describe(&self) -> Cow<'static, str> {
        Cow::Borrowed("constant")
    }

    fn key_of(&self, value: &str) -> Key {
        Key::constant(value)
    }
}
