//! The partition key: whose quota a `RateLimit` member is about, without saying who that is.

use std::fmt;

use arrayvec::ArrayString;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::limit::Key;

/// Of the 32 bytes of a digest: enough that two keys never meet by chance, and base64 needs no padding.
const BYTES: usize = 12;
/// As base64.
const LENGTH: usize = BYTES / 3 * 4;

/// Makes partition keys: a keyed digest, since anybody could try all IPv4 addresses against a plain one.
#[derive(Clone)]
pub(crate) struct PartitionKey {
    digest: Hmac<Sha256>,
}

impl PartitionKey {
    /// `None` without a secret.
    pub(crate) fn new(secret: &[u8]) -> Option<Self> {
        if secret.is_empty() {
            return None;
        }
        let digest = Hmac::new_from_slice(secret).ok()?;
        Some(Self { digest })
    }

    /// The partition key of a key, as base64.
    pub(super) fn of(&self, key: &Key) -> ArrayString<LENGTH> {
        let digest = self.digest.clone().chain_update(key.as_str()).finalize();
        let mut text = [0; LENGTH];
        // It has room for just that.
        let _ = STANDARD.encode_slice(&digest.into_bytes()[..BYTES], &mut text);
        ArrayString::from_byte_string(&text).unwrap_or_default()
    }
}

impl fmt::Debug for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_key_is_the_start_of_an_hmac_of_the_stored_key() {
        let partition = PartitionKey::new(b"Jefe").unwrap();
        // printf 'user:42' | openssl dgst -sha256 -hmac Jefe -binary | head -c 12 | base64
        assert_eq!(&partition.of(&Key::new("user", 42)), "sF1fA28BZioa+1iB");
    }

    #[test]
    fn debug_hides_the_secret() {
        let partition = PartitionKey::new(b"Jefe").unwrap();
        assert_eq!(format!("{partition:?}"), "PartitionKey { .. }");
    }
}
