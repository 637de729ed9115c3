//! The trait behind every source of keys, and how one fails.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use http::request::Parts;

use crate::limit::Key;

/// Makes a key of a request's head.
///
/// Implement it for a source that is not in [`key`](crate::key), or use [`from_fn`](crate::key::from_fn).
///
/// It runs for each request before anything is charged, so it must not block. What a client sends must neither make it
/// panic nor decide which of several headers is believed.
///
/// # Examples
///
/// ```
/// use http::request::Parts;
/// use tollgate::{Key, RateLimitLayer};
/// use tollgate::key::{KeyError, KeyExtractor, KeySource};
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
/// let layer = RateLimitLayer::fixed(100, 60).key(KeySource::new(Tenant));
/// ```
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

    /// The key that stands in for a missing one of this source, with a value of its own kind.
    fn key_of(&self, value: &str) -> Key {
        Key::new("custom", value)
    }
}

/// Why a request has no key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    is_client: bool,
    message: Cow<'static, str>,
}

impl KeyError {
    /// The client sent something wrong, or did not send what it must: it gets a 400 with this message.
    #[must_use]
    pub fn client(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            is_client: true,
            message: message.into(),
        }
    }

    /// The server's set-up is incomplete: the client gets a 500 with this message, which says how to mend it, and the
    /// log gets it once.
    #[must_use]
    pub fn server(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            is_client: false,
            message: message.into(),
        }
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
        f.write_str(&self.message)
    }
}

impl Error for KeyError {}
