//! Sources as they are put together: chains, several parts, hashes, a hook on values.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;

use super::both::Both;
use super::hashed::Hashed;
use super::normalized::Normalized;
use super::{KeyError, KeyExtractor, Normalize};
use crate::limit::{Key, KeyValue, Mistake};

/// Where keys come from: one source, or several of which the first that has a key is believed.
///
/// # Examples
///
/// ```
/// use tollgate::key;
///
/// let by_client = key::header("x-client-key").or_value("anonymous");
/// let by_client_or_address = key::header("x-client-key").or(key::peer_ip());
/// let by_address_and_method = key::peer_ip().and(key::method());
/// ```
#[derive(Clone)]
pub struct KeySource {
    chain: Vec<Arc<dyn KeyExtractor>>,
}

impl KeySource {
    /// A source of your own.
    #[must_use]
    pub fn new(extractor: impl KeyExtractor) -> Self {
        Self {
            chain: vec![Arc::new(extractor)],
        }
    }

    /// Asks `next` when this source has no key for a request. An error of this source is not passed over.
    #[must_use]
    pub fn or(mut self, next: impl KeyExtractor) -> Self {
        self.chain.extend(next.into_source().chain);
        self
    }

    /// Uses this value when the source has no key for a request. It is of the source's own kind, so that after
    /// `header("x-client-key").or_value("anonymous")` a client which sends `anonymous` shares the counter of those that
    /// send nothing.
    #[must_use]
    pub fn or_value(self, value: impl Into<String>) -> Self {
        match self.chain.last().map(Arc::clone) {
            Some(of) => {
                let value = value.into();
                let key = of.key_of(value.as_bytes());
                self.or(Fallback { value, of, key })
            }
            None => self,
        }
    }

    /// Puts the key of `next` behind that of this source: `user:42|method:POST`, one counter for each user and method.
    ///
    /// When either has no key for a request, there is none, and the error is that of the part that is missing.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::Request;
    /// use tollgate::key;
    ///
    /// let source = key::header("x-user-id").or_value("nobody").and(key::method());
    /// let (parts, ()) = Request::post("/").header("x-user-id", "42").body(())?.into_parts();
    /// assert_eq!(source.extract(&parts)?.as_str(), "header/x-user-id:42|method:POST");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn and(self, next: impl KeyExtractor) -> Self {
        Self::new(Both {
            first: self,
            second: next.into_source(),
        })
    }

    /// Stores a keyed hash of each value instead of the value: `header/x-api-key:#f7d1…`, half of an HMAC-SHA256 in 32
    /// hexadecimal digits. Whoever has the database and not the secret can't try out which values are in it.
    ///
    /// What was put together before is hashed, what comes after is not: `header("x-api-key").hashed(secret).and(method())`
    /// leaves the method readable.
    ///
    /// The secret should be 32 random bytes. All processes that share counters need the same; with another one all
    /// counters of this source begin anew, and the old rows go when they expire.
    ///
    /// # Panics
    ///
    /// When the secret is empty.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{RateLimitLayer, key};
    ///
    /// # let secret = [7; 32];
    /// let by_api_key = key::header("x-api-key").hashed(secret);
    /// assert!(by_api_key.key_for("4f2a").as_str().starts_with("header/x-api-key:#"));
    ///
    /// let layer = RateLimitLayer::fixed(100, 60).key(by_api_key);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn hashed(self, secret: impl AsRef<[u8]>) -> Self {
        match Hashed::new(self, secret.as_ref()) {
            Some(hashed) => Self::new(hashed),
            None => panic!(
                "the secret of hashed keys is empty: give 32 random bytes, and keep them for as long as the counters {}",
                Mistake("empty-secret")
            ),
        }
    }

    /// Gives each value to `normalize` before it is written or hashed, and takes what comes back: so that `Alice@Example.com`
    /// and `alice@example.com` are one counter.
    ///
    /// It gets the whole value, also of those over 64 bytes that are stored as a hash. A value that becomes empty or blank is
    /// as if missing. Bytes that are no UTF-8 stay as they are. It runs for each request and must not block.
    ///
    /// Of a [`Key`] that a closure has made it gets the value of each part; one over 64 bytes is hashed by then, and the
    /// answer is a 500 that says so: return the value itself, or normalize it in the closure.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::Request;
    /// use tollgate::key;
    ///
    /// let by_email = key::header("x-email").normalized(|email| email.trim().to_lowercase());
    /// let (parts, ()) = Request::get("/").header("x-email", "Alice@Example.com").body(())?.into_parts();
    /// assert_eq!(by_email.extract(&parts)?.as_str(), "header/x-email:alice@example.com");
    /// assert_eq!(by_email.key_for("ALICE@example.com"), by_email.extract(&parts)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn normalized(self, normalize: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self::new(Normalized::new(self, normalize))
    }

    /// The key that this source makes of a value, grouped, normalized and hashed like that of a request: to look at its
    /// counter, or to reset it.
    ///
    /// Of a chain it is the key of the first source. Of several parts it is that of the first, with which all keys of
    /// that value begin; see [`Limiter::reset_under`](crate::Limiter::reset_under).
    ///
    /// A source whose closure returns a [`Key`] of its own has that kind, which is not known here: give that key to
    /// [`stored_key`](Self::stored_key).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use tollgate::{Limiter, MemoryStore, Policy, StoreError, key};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let source = key::peer_ip();
    /// let logins = Limiter::new(Policy::sliding(5, 900).name("login")).store(&MemoryStore::new());
    ///
    /// let address: IpAddr = "2001:db8:1:2:3:4:5:6".parse().unwrap();
    /// let key = source.key_for(address);
    /// assert_eq!(key.as_str(), "ip:2001:db8:1:2::/64");
    /// logins.reset(&key).await?;
    /// # Ok::<(), StoreError>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn key_for(&self, value: impl KeyValue) -> Key {
        let mut key = None;
        value.with_bytes(&mut |value| key = Some(self.key_of(value)));
        key.unwrap_or_else(|| self.key_of(b""))
    }

    /// The key that is stored for one which this source's closure makes: normalized and hashed like that of a request.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, key};
    ///
    /// #[derive(Clone)]
    /// struct Account {
    ///     api_key: String,
    /// }
    ///
    /// let key_of = |api_key: &str| Key::new("account", api_key);
    /// let source = key::extension(move |account: &Account| key_of(&account.api_key)).hashed("sesame");
    ///
    /// // The counter of that customer:
    /// let stored = source.stored_key(&key_of("4f2a"));
    /// assert!(stored.as_str().starts_with("account:#"));
    /// ```
    #[must_use]
    pub fn stored_key(&self, key: &Key) -> Key {
        self.stored(key, Normalize::NOT)
    }

    /// The key of a request.
    ///
    /// # Errors
    ///
    /// The first [`KeyError`] of a source, or the one that says what the last of them misses.
    pub fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        match self.extract_normalized(parts, Normalize::NOT)? {
            Some(key) => Ok(key),
            None => Err(self.missing_in(parts, Normalize::NOT)),
        }
    }

    /// The client's address, not grouped, when the key of a request is made of one: by [`peer_ip`](super::peer_ip) or
    /// [`client_ip`](super::client_ip). Of a chain it is that of the source which gives the key.
    #[must_use]
    pub fn address(&self, parts: &Parts) -> Option<IpAddr> {
        for extractor in &self.chain {
            if let Some(address) = extractor.address(parts) {
                return Some(address);
            }
            // A key without an address, or an error: what follows in the chain is not asked.
            if !matches!(extractor.extract(parts), Ok(None)) {
                return None;
            }
        }
        None
    }

    /// What the source is, as one of several parts.
    pub(super) fn describe_as_part(&self) -> Cow<'static, str> {
        let name = self.describe();
        if self.chain.len() > 1 {
            Cow::Owned(format!("({name})"))
        } else {
            name
        }
    }

    /// What the source is, as something that more is said about.
    pub(super) fn describe_as_one(&self) -> Cow<'static, str> {
        let name = self.describe();
        if name.contains(" or ") || name.contains(" and ") {
            Cow::Owned(format!("({name})"))
        } else {
            name
        }
    }

    /// Whether the key of a request may be made of an address.
    #[must_use]
    pub fn has_address(&self) -> bool {
        self.chain.iter().any(|extractor| extractor.has_address())
    }
}

impl KeyExtractor for KeySource {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        self.extract_normalized(parts, Normalize::NOT)
    }

    fn missing(&self) -> KeyError {
        self.chain
            .last()
            .map_or_else(no_source, |last| last.missing())
    }

    fn describe(&self) -> Cow<'static, str> {
        let names: Vec<_> = self.chain.iter().map(|source| source.describe()).collect();
        Cow::Owned(names.join(" or "))
    }

    fn key_of(&self, value: &[u8]) -> Key {
        self.normalized_key_of(value, Normalize::NOT)
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        self.address(parts)
    }

    fn has_address(&self) -> bool {
        self.has_address()
    }

    fn extract_normalized(
        &self,
        parts: &Parts,
        normalize: Normalize<'_>,
    ) -> Result<Option<Key>, KeyError> {
        for extractor in &self.chain {
            if let Some(key) = extractor.extract_normalized(parts, normalize)? {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    fn normalized_key_of(&self, value: &[u8], normalize: Normalize<'_>) -> Key {
        match self.chain.first() {
            Some(first) => first.normalized_key_of(value, normalize),
            None => Key::new("custom", value),
        }
    }

    fn stored(&self, key: &Key, normalize: Normalize<'_>) -> Key {
        match self.chain.first() {
            Some(first) => first.stored(key, normalize),
            None => key.clone(),
        }
    }

    fn missing_in(&self, parts: &Parts, normalize: Normalize<'_>) -> KeyError {
        let last = self.chain.last();
        last.map_or_else(no_source, |last| last.missing_in(parts, normalize))
    }

    fn into_source(self) -> KeySource {
        self
    }
}

fn no_source() -> KeyError {
    KeyError::server("a key source without any source")
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeySource").field(&self.describe()).finish()
    }
}

/// The value of `or_value`.
struct Fallback {
    value: String,
    /// The source that stands before it.
    of: Arc<dyn KeyExtractor>,
    key: Key,
}

impl KeyExtractor for Fallback {
    fn extract(&self, _: &Parts) -> Result<Option<Key>, KeyError> {
        Ok(Some(self.key.clone()))
    }

    fn describe(&self) -> Cow<'static, str> {
        Cow::Borrowed("a fixed value")
    }

    fn key_of(&self, value: &[u8]) -> Key {
        self.of.key_of(value)
    }

    fn normalized_key_of(&self, value: &[u8], normalize: Normalize<'_>) -> Key {
        self.of.normalized_key_of(value, normalize)
    }

    fn extract_normalized(
        &self,
        _: &Parts,
        normalize: Normalize<'_>,
    ) -> Result<Option<Key>, KeyError> {
        let value = self.value.as_bytes();
        Ok(normalize.fixed_key(&self.key, value, |_| {
            self.of.normalized_key_of(value, normalize)
        }))
    }
}
