//! A chain of sources.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;

use super::{KeyError, KeyExtractor};
use crate::limit::Key;

/// Where keys come from: one source, or several of which the first that has a key is believed.
///
/// # Examples
///
/// ```
/// use tollgate::key;
///
/// let by_client = key::header("x-client-key").or_value("anonymous");
/// let by_client_or_address = key::header("x-client-key").or(key::peer_ip());
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
    pub fn or(mut self, next: KeySource) -> Self {
        self.chain.extend(next.chain);
        self
    }

    /// Uses this value when the source has no key for a request. It is of the source's own kind, so that after
    /// `header("x-client-key").or_value("anonymous")` a client which sends `anonymous` shares the counter of those that
    /// send nothing.
    #[must_use]
    pub fn or_value(self, value: impl Into<String>) -> Self {
        let value = value.into();
        match self.chain.last() {
            Some(last) => {
                let fallback = Fallback {
                    key: last.key_of(&value),
                };
                self.or(Self::new(fallback))
            }
            None => self,
        }
    }

    /// The key of a request.
    ///
    /// # Errors
    ///
    /// The first [`KeyError`] of a source, or the one that says what the last of them misses.
    pub fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        for extractor in &self.chain {
            if let Some(key) = extractor.extract(parts)? {
                return Ok(key);
            }
        }
        Err(self.chain.last().map_or_else(
            || KeyError::server("a key source without any source"),
            |last| last.missing(),
        ))
    }

    /// What the sources are, for log lines.
    pub(crate) fn describe(&self) -> String {
        let names: Vec<_> = self.chain.iter().map(|source| source.describe()).collect();
        names.join(" or ")
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeySource").field(&self.describe()).finish()
    }
}

/// The value of `or_value`.
struct Fallback {
    key: Key,
}

impl KeyExtractor for Fallback {
    fn extract(&self, _: &Parts) -> Result<Option<Key>, KeyError> {
        Ok(Some(self.key.clone()))
    }

    fn describe(&self) -> Cow<'static, str> {
        Cow::Borrowed("a fixed value")
    }
}
