//! The secret that operators send.

use std::error::Error;
use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::limit::Mistake;

/// What nobody guesses: 16 random bytes have 128 bits, and hexadecimal digits of 8 still 64.
const SHORTEST: usize = 16;
/// Longer ones would have every wrong attempt hash as much.
const LONGEST: usize = 1_024;

/// A secret that lets whoever sends it use the [`Admin`](crate::Admin) API, or several of them while one takes the place of another.
///
/// It is sent in `X-Admin-Key`, or as the bearer token in `Authorization`. What is sent is compared in constant time, by hashes, so
/// that neither the key nor its length can be measured. [`fmt::Debug`] shows nothing of it.
///
/// # Examples
///
/// ```
/// use tollgate::{AdminKey, AdminKeyError};
///
/// fn admin_key() -> Result<AdminKey, AdminKeyError> {
///     // Without the variable it is the empty secret, and that is an error: nothing is served then.
///     AdminKey::new(std::env::var("ADMIN_KEY").unwrap_or_default())
/// }
/// assert!(admin_key().is_err());
/// assert!(AdminKey::new("6c1f0a7be2d94f5bb2c17ef0d3a1e8a4").is_ok());
/// ```
#[derive(Clone)]
pub struct AdminKey {
    digests: Vec<[u8; 32]>,
}

impl AdminKey {
    /// A key of 16 to 1,024 visible ASCII characters: `openssl rand -hex 32` makes one.
    ///
    /// # Errors
    ///
    /// [`AdminKeyError`] when it is shorter or longer, or has a character that a header's value can't be trusted to keep: a space, a
    /// line break at its end, an umlaut.
    pub fn new(secret: impl AsRef<[u8]>) -> Result<Self, AdminKeyError> {
        Self {
            digests: Vec::new(),
        }
        .or(secret)
    }

    /// Lets in who sends this one too: the new key while some still have the old one.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::AdminKey;
    ///
    /// let key = AdminKey::new("the-key-of-this-year-4f2a91")?.or("the-key-of-last-year-b81c07")?;
    /// # Ok::<(), tollgate::AdminKeyError>(())
    /// ```
    pub fn or(mut self, secret: impl AsRef<[u8]>) -> Result<Self, AdminKeyError> {
        let secret = secret.as_ref();
        if secret.len() < SHORTEST {
            return Err(AdminKeyError::TooShort);
        }
        if secret.len() > LONGEST || !secret.iter().all(u8::is_ascii_graphic) {
            return Err(AdminKeyError::NotSendable);
        }
        self.digests.push(Sha256::digest(secret).into());
        Ok(self)
    }

    /// Whether this is one of the keys.
    pub(super) fn admits(&self, sent: &[u8]) -> bool {
        // That no key is as long is known to everybody.
        if sent.len() > LONGEST {
            return false;
        }
        let sent: [u8; 32] = Sha256::digest(sent).into();
        let mut is_known = subtle::Choice::from(0);
        for digest in &self.digests {
            is_known |= digest.ct_eq(&sent);
        }
        is_known.into()
    }
}

impl fmt::Debug for AdminKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminKey").finish_non_exhaustive()
    }
}

/// A secret is no [`AdminKey`].
///
/// [`fmt::Debug`] says the same as [`fmt::Display`]: it is what `main` and `unwrap` print.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdminKeyError {
    /// It is empty, or has fewer than 16 characters.
    TooShort,
    /// It has more than 1,024 characters, or some that are not visible ASCII.
    NotSendable,
}

impl AdminKeyError {
    /// The stable name of the mistake, under which the page `docs/errors.md` tells the cure.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.mistake().0
    }

    fn mistake(self) -> Mistake {
        match self {
            Self::TooShort => Mistake("short-admin-key"),
            Self::NotSendable => Mistake("admin-key-characters"),
        }
    }
}

impl fmt::Debug for AdminKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for AdminKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort => {
                "the admin key is empty or has fewer than 16 characters, so that it could be guessed: make one with `openssl rand -hex 32`"
            }
            Self::NotSendable => {
                "the admin key has more than 1024 characters, or a space, a line break or another one that is not visible ASCII: make one with `openssl rand -hex 32`"
            }
        })?;
        write!(f, " {}", self.mistake())
    }
}

impl Error for AdminKeyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_key_is_admitted() {
        let key = AdminKey::new("0123456789abcdef").unwrap();
        assert!(key.admits(b"0123456789abcdef"));
        let long = vec![b'0'; 1 << 20];
        let wrong: [&[u8]; 6] = [
            b"",
            b"0123456789abcde",
            b"0123456789abcdef0",
            b"0123456789ABCDEF",
            b"\xff\xfe",
            &long,
        ];
        for sent in wrong {
            assert!(!key.admits(sent));
        }
    }

    #[test]
    fn each_of_several_keys_is_admitted() {
        let key = AdminKey::new("the-key-of-this-year").unwrap();
        let key = key.or("the-key-of-last-year").unwrap();
        assert!(key.admits(b"the-key-of-this-year") && key.admits(b"the-key-of-last-year"));
        assert!(!key.admits(b"the-key-of-next-year"));
    }

    #[test]
    fn a_secret_that_could_be_guessed_or_not_be_sent_is_none() {
        for secret in ["", " ", "0123456789abcde"] {
            assert_eq!(AdminKey::new(secret).unwrap_err(), AdminKeyError::TooShort);
        }
        let long = "x".repeat(1_025);
        for secret in [
            "0123456789abcdef\n",
            "0123456789 abcdef",
            "0123456789abcdéf",
            &long,
        ] {
            assert_eq!(
                AdminKey::new(secret).unwrap_err(),
                AdminKeyError::NotSendable
            );
        }
    }

    #[test]
    fn debug_shows_nothing() {
        let key = AdminKey::new("0123456789abcdef").unwrap();
        assert_eq!(format!("{key:?}"), "AdminKey { .. }");
    }
}
