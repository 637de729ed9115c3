//! The trait behind every source of keys, and how one fails.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::net::IpAddr;

use http::request::Parts;

use super::{KeySource, Normalize};
use crate::limit::{Key, Mistake};

/// Makes a key of a request's head.
///
/// A [`KeySource`] is one. Implement it for a source that is not in [`key`](crate::key), or use
/// [`from_fn`](crate::key::from_fn).
///
/// It runs for each request before anything is charged, so it must not block. What a client sends must neither make it
/// panic nor decide which of several headers is believed.
///
/// # Examples
///
/// ```
/// use http::request::Parts;
/// use tollgate::{Key, RateLimitLayer};
/// use tollgate::key::{KeyError, KeyExtractor};
///
/// struct Tenant;
///
/// impl KeyExtractor for Tenant {
///     fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
///         let host = parts.uri.host().and_then(|host| host.strip_suffix(".example.com"));
///         Ok(host.map(|tenant| Key::new("tenant", tenant)))
///     }
/// }
///
/// let layer = RateLimitLayer::fixed(100, 60).key(Tenant);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no source of keys",
    label = "not a source of keys",
    note = "take one of `tollgate::key`, like `key::header(…)` or `key::peer_ip()`",
    note = "a closure is made one by `key::from_fn(|parts| …)`, one of an extension by `key::extension(|user: &User| …)`"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// The request's key; `Ok(None)` when this source has none, so that the next one is asked.
    ///
    /// # Errors
    ///
    /// [`KeyError`] when no other source may be asked instead.
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError>;

    /// The error when this source, and all after it, found nothing.
    fn missing(&self) -> KeyError {
        KeyError::client("the request lacks what its rate limit is keyed on")
    }

    /// What the source is, for the log line that tells a policy's settings: `header x-api-key`.
    fn describe(&self) -> Cow<'static, str> {
        Cow::Borrowed("custom")
    }

    /// The key that this source makes of a value, with a value of its own kind.
    fn key_of(&self, value: &[u8]) -> Key {
        Key::new("custom", value)
    }

    /// The client's address, not grouped, for a source that makes its key of one; `None` when this source has no key for
    /// the request.
    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        let _ = parts;
        None
    }

    /// Whether [`address`](Self::address) may ever know one.
    fn has_address(&self) -> bool {
        false
    }

    /// As `extract`, with each value as `normalize` gives it. A source overrides it whose values may be over 64 bytes:
    /// of those a key has only a hash.
    #[doc(hidden)]
    fn extract_normalized(
        &self,
        parts: &Parts,
        normalize: Normalize<'_>,
    ) -> Result<Option<Key>, KeyError> {
        match self.extract(parts)? {
            Some(key) => normalize.whole_key(key),
            None => Ok(None),
        }
    }

    /// As `key_of`, with the value as `normalize` gives it.
    #[doc(hidden)]
    fn normalized_key_of(&self, value: &[u8], normalize: Normalize<'_>) -> Key {
        self.key_of(&normalize.value(value))
    }

    /// What becomes of a key that this source's closure makes: the one that is stored.
    #[doc(hidden)]
    fn stored(&self, key: &Key, normalize: Normalize<'_>) -> Key {
        match normalize.whole_key(key.clone()) {
            Ok(Some(stored)) => stored,
            _ => key.clone(),
        }
    }

    /// As `missing`, for a source of which more than one thing may be missing.
    #[doc(hidden)]
    fn missing_in(&self, parts: &Parts, normalize: Normalize<'_>) -> KeyError {
        let _ = (parts, normalize);
        self.missing()
    }

    /// The source as a chain holds it.
    #[doc(hidden)]
    fn into_source(self) -> KeySource
    where
        Self: Sized,
    {
        KeySource::new(self)
    }
}

/// Why a request has no key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    is_client: bool,
    message: Cow<'static, str>,
    mistake: Option<Mistake>,
}

impl KeyError {
    /// The client sent something wrong, or did not send what it must: it gets a 400 with this message.
    #[must_use]
    pub fn client(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            is_client: true,
            message: message.into(),
            mistake: None,
        }
    }

    /// The server's set-up is incomplete: the client gets a 500 with this message, which says how to mend it, and the
    /// log gets it once. It must not hold what the client has sent.
    #[must_use]
    pub fn server(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            is_client: false,
            message: message.into(),
            mistake: None,
        }
    }

    /// This error, as a mistake that has a name.
    pub(crate) fn named(mut self, mistake: Mistake) -> Self {
        self.mistake = Some(mistake);
        self
    }

    /// The stable name of the mistake, under which the page `docs/errors.md` tells the cure, when it is one of the
    /// server's set-up that this crate has found: `no-peer-address`. The message ends with it, in brackets.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        self.mistake.map(|mistake| mistake.0)
    }

    /// Whether the client can mend it.
    #[must_use]
    pub fn is_client(&self) -> bool {
        self.is_client
    }

    /// Whether the server's set-up must be mended.
    #[must_use]
    pub fn is_server(&self) -> bool {
        !self.is_client
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.mistake {
            Some(mistake) => write!(f, " {mistake}"),
            None => Ok(()),
        }
    }
}

impl Error for KeyError {}
