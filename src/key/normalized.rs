//! A hook on values, before they are written.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;

use super::{KeyError, KeyExtractor, KeySource};
use crate::limit::key::StoredValue;
use crate::limit::{Key, Mistake};

const TOO_LONG: &str = "a value of more than 64 bytes is in a key as a hash only, and can't be normalized: let the \
                        closure return the value itself instead of a Key, or normalize it there";

/// What is done to each value before it is written.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "nobody can name it")]
pub struct Normalize<'a>(Option<&'a dyn Fn(&str) -> String>);

impl Normalize<'_> {
    /// Values stay as they are.
    pub(super) const NOT: Self = Self(None);

    /// The key that `key_of` makes of a value; `None` when the value is, or becomes, empty or blank.
    pub(super) fn key(self, value: &[u8], key_of: impl FnOnce(&[u8]) -> Key) -> Option<Key> {
        let value = self.value(value);
        let is_blank = value.trim_ascii().is_empty();
        (!is_blank).then(|| key_of(&value))
    }

    /// As [`key`](Self::key), for a value that never changes, of which a key is made already; it may be blank.
    pub(super) fn fixed_key(
        self,
        key: &Key,
        value: &[u8],
        key_of: impl FnOnce(&[u8]) -> Key,
    ) -> Option<Key> {
        match self.0 {
            None => Some(key.clone()),
            Some(_) => self.key(value, key_of),
        }
    }

    /// A key that is made already, with each value as it becomes; `None` when one becomes empty or blank.
    pub(super) fn whole_key(self, key: Key) -> Result<Option<Key>, KeyError> {
        if self.0.is_none() {
            return Ok(Some(key));
        }
        key.with_values(|value| match value {
            StoredValue::Whole(value) => {
                let value = self.value(&value).into_owned();
                Ok((!value.trim_ascii().is_empty()).then_some(value))
            }
            // Left as it is, it would be a second counter for whoever finds a longer spelling.
            StoredValue::Hash => {
                Err(KeyError::server(TOO_LONG).named(Mistake("normalized-too-late")))
            }
        })
    }

    /// What a value becomes.
    pub(super) fn value(self, value: &[u8]) -> Cow<'_, [u8]> {
        match self.0.map(|normalize| (normalize, str::from_utf8(value))) {
            Some((normalize, Ok(text))) => Cow::Owned(normalize(text).into_bytes()),
            // Replacing what is no UTF-8 would make one key of several.
            Some((_, Err(_))) | None => Cow::Borrowed(value),
        }
    }
}

/// A source whose values go through a function.
pub(super) struct Normalized {
    source: KeySource,
    normalize: Arc<dyn Fn(&str) -> String + Send + Sync>,
}

impl Normalized {
    pub(super) fn new(
        source: KeySource,
        normalize: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        Self {
            source,
            normalize: Arc::new(normalize),
        }
    }

    /// Does `then` with this function, and `last` after it.
    fn before<T>(&self, last: Normalize<'_>, then: impl FnOnce(Normalize<'_>) -> T) -> T {
        match last.0 {
            None => then(Normalize(Some(&*self.normalize))),
            Some(last) => then(Normalize(Some(&|value| last(&(self.normalize)(value))))),
        }
    }
}

impl KeyExtractor for Normalized {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        self.extract_normalized(parts, Normalize::NOT)
    }

    fn missing(&self) -> KeyError {
        self.source.missing()
    }

    fn describe(&self) -> Cow<'static, str> {
        Cow::Owned(format!("normalized {}", self.source.describe_as_one()))
    }

    fn key_of(&self, value: &[u8]) -> Key {
        self.normalized_key_of(value, Normalize::NOT)
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        self.source.address(parts)
    }

    fn has_address(&self) -> bool {
        self.source.has_address()
    }

    fn extract_normalized(
        &self,
        parts: &Parts,
        last: Normalize<'_>,
    ) -> Result<Option<Key>, KeyError> {
        self.before(last, |normalize| {
            self.source.extract_normalized(parts, normalize)
        })
    }

    fn normalized_key_of(&self, value: &[u8], last: Normalize<'_>) -> Key {
        self.before(last, |normalize| {
            self.source.normalized_key_of(value, normalize)
        })
    }

    fn stored(&self, key: &Key, last: Normalize<'_>) -> Key {
        self.before(last, |normalize| self.source.stored(key, normalize))
    }

    fn missing_in(&self, parts: &Parts, last: Normalize<'_>) -> KeyError {
        self.before(last, |normalize| self.source.missing_in(parts, normalize))
    }
}
