//! The keys of two sources in one.

use std::borrow::Cow;
use std::net::IpAddr;

use http::request::Parts;

use super::{KeyError, KeyExtractor, KeySource, Normalize};
use crate::limit::Key;

/// Two sources whose keys become the parts of one.
pub(super) struct Both {
    pub(super) first: KeySource,
    pub(super) second: KeySource,
}

impl KeyExtractor for Both {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        self.extract_normalized(parts, Normalize::NOT)
    }

    fn missing(&self) -> KeyError {
        self.first.missing()
    }

    fn describe(&self) -> Cow<'static, str> {
        let (first, second) = (
            self.first.describe_as_part(),
            self.second.describe_as_part(),
        );
        Cow::Owned(format!("{first} and {second}"))
    }

    fn key_of(&self, value: &[u8]) -> Key {
        self.normalized_key_of(value, Normalize::NOT)
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        let address = self.first.address(parts);
        let address = address.or_else(|| self.second.address(parts))?;
        let key = KeyExtractor::extract(self, parts);
        key.ok().flatten().map(|_| address)
    }

    fn has_address(&self) -> bool {
        self.first.has_address() || self.second.has_address()
    }

    fn extract_normalized(
        &self,
        parts: &Parts,
        normalize: Normalize<'_>,
    ) -> Result<Option<Key>, KeyError> {
        let Some(first) = self.first.extract_normalized(parts, normalize)? else {
            return Ok(None);
        };
        let second = self.second.extract_normalized(parts, normalize)?;
        Ok(second.map(|second| first.join(&second)))
    }

    fn normalized_key_of(&self, value: &[u8], normalize: Normalize<'_>) -> Key {
        self.first.normalized_key_of(value, normalize)
    }

    fn missing_in(&self, parts: &Parts, normalize: Normalize<'_>) -> KeyError {
        let missing = match self.first.extract_normalized(parts, normalize) {
            Ok(None) => &self.first,
            _ => &self.second,
        };
        missing.missing_in(parts, normalize)
    }
}
