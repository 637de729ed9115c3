//! One key for all requests.

use std::borrow::Cow;

use http::request::Parts;

use super::{KeyError, KeyExtractor, KeySource, Normalize};
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
    let mut bytes = Vec::new();
    value.with_bytes(&mut |value| bytes = value.to_vec());
    KeySource::new(Constant {
        key: Key::constant(&bytes),
        value: bytes,
    })
}

struct Constant {
    value: Vec<u8>,
    key: Key,
}

impl KeyExtractor for Constant {
    fn extract(&self, _: &Parts) -> Result<Option<Key>, KeyError> {
        Ok(Some(self.key.clone()))
    }

    fn describe(&self) -> Cow<'static, str> {
        Cow::Borrowed("constant")
    }

    fn key_of(&self, value: &[u8]) -> Key {
        Key::constant(value)
    }

    fn extract_normalized(
        &self,
        _: &Parts,
        normalize: Normalize<'_>,
    ) -> Result<Option<Key>, KeyError> {
        Ok(normalize.fixed_key(&self.key, &self.value, |value| Key::constant(value)))
    }
}
