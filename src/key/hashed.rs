//! Keyed hashes in place of values.

use std::borrow::Cow;
use std::net::IpAddr;

use hmac::{Hmac, Mac};
use http::request::Parts;
use sha2::Sha256;

use super::{KeyError, KeyExtractor, KeySource, Normalize};
use crate::limit::Key;

/// A source of whose values only a keyed hash is stored.
pub(super) struct Hashed {
    source: KeySource,
    /// HMAC-SHA256 that has taken in the secret.
    mac: Hmac<Sha256>,
}

impl Hashed {
    /// `None` when the secret is empty.
    pub(super) fn new(source: KeySource, secret: &[u8]) -> Option<Self> {
        let mac = (!secret.is_empty()).then(|| Hmac::new_from_slice(secret))?;
        // HMAC takes secrets of every length.
        mac.ok().map(|mac| Self { source, mac })
    }

    fn hashed(&self, key: &Key) -> Key {
        key.with_hashes(|part| {
            let mac = self.mac.clone().chain_update(part);
            mac.finalize().into_bytes()
        })
    }
}

impl KeyExtractor for Hashed {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        self.extract_normalized(parts, Normalize::NOT)
    }

    fn missing(&self) -> KeyError {
        self.source.missing()
    }

    fn describe(&self) -> Cow<'static, str> {
        Cow::Owned(format!("hashed {}", self.source.describe_as_one()))
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
        normalize: Normalize<'_>,
    ) -> Result<Option<Key>, KeyError> {
        let key = self.source.extract_normalized(parts, normalize)?;
        Ok(key.map(|key| self.hashed(&key)))
    }

    fn normalized_key_of(&self, value: &[u8], normalize: Normalize<'_>) -> Key {
        self.hashed(&self.source.normalized_key_of(value, normalize))
    }

    fn stored(&self, key: &Key, normalize: Normalize<'_>) -> Key {
        self.hashed(&self.source.stored(key, normalize))
    }

    fn missing_in(&self, parts: &Parts, normalize: Normalize<'_>) -> KeyError {
        self.source.missing_in(parts, normalize)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use crate::key::{constant, header};

    /// Stored counters hang on it. The hashes are those of `openssl dgst -sha256 -hmac sesame` of the part in clear.
    #[test]
    fn the_hashes_are_frozen() {
        let source = header("x-api-key").and(constant("all")).hashed("sesame");
        let mut request = Request::new(());
        request
            .headers_mut()
            .insert("x-api-key", HeaderValue::from_static("4f2a"));
        let (parts, ()) = request.into_parts();
        let key = source.extract(&parts).unwrap();
        assert_eq!(
            key.as_str(),
            "header/x-api-key:#c1e26f4cae6c699938a431e9ad1ebcf3|constant:#bca4b3596befc07aafedc807d1543e39"
        );
        assert_eq!(key.as_str().parse(), Ok(key));
    }
}
