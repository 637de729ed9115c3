//! A function of the request's head.

use http::request::Parts;

use super::{IntoKey, KeyError, KeyExtractor, KeySource, Normalize};
use crate::limit::Key;

/// A function of the request's head. A bare value becomes `custom:<value>`; return a [`Key`] to name its kind.
///
/// `None` asks the next source; without one the answer is 400. Return a `Result` to say what is missing:
/// [`KeyError::client`] is a 400 with your message, [`KeyError::server`] a 500. It runs for each request, and must not
/// block.
///
/// # Examples
///
/// ```
/// use tollgate::{Key, RateLimitLayer, key};
///
/// let layer = RateLimitLayer::fixed(100, 60).key(key::from_fn(|parts| {
///     let tenant = parts.uri.host()?.strip_suffix(".example.com")?;
///     Some(Key::new("tenant", tenant).and("method", parts.method.as_str()))
/// }));
/// ```
#[must_use]
pub fn from_fn<K: IntoKey>(key_of: impl Fn(&Parts) -> K + Send + Sync + 'static) -> KeySource {
    KeySource::new(FromFn(key_of))
}

struct FromFn<F>(F);

impl<K: IntoKey, F: Fn(&Parts) -> K + Send + Sync + 'static> KeyExtractor for FromFn<F> {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        self.extract_normalized(parts, Normalize::NOT)
    }

    fn extract_normalized(
        &self,
        parts: &Parts,
        normalize: Normalize<'_>,
    ) -> Result<Option<Key>, KeyError> {
        (self.0)(parts).into_key(&|value| Key::new("custom", value), normalize)
    }
}
