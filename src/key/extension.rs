//! What another layer put into the request's extensions.

use std::any::type_name;
use std::borrow::Cow;
use std::marker::PhantomData;

use http::request::Parts;

use super::{IntoKey, KeyError, KeyExtractor, KeySource, Normalize};
use crate::limit::{Key, Mistake};

/// What an authentication layer put into the request's extensions: a value of type `T`, of which the closure makes an
/// owned key.
///
/// A bare value becomes `extension/<T>:<value>`, where `<T>` is the type's own name without its path: a renamed type
/// starts with fresh counters. To be independent of that, and to share counters with other layers, return a [`Key`]:
/// `Key::new("user", user.0)`.
///
/// When there is no `T`, or the closure returns `None`, the next source is asked; without one the answer is a 500 that
/// says what to add, since the authentication layer is missing or stands inside the rate limit.
///
/// # Examples
///
/// ```
/// use tollgate::{Key, RateLimitLayer, key};
///
/// #[derive(Clone)]
/// struct UserId(u64);
///
/// let layer = RateLimitLayer::fixed(100, 60)
///     .key(key::extension(|user: &UserId| Key::new("user", user.0)));
/// ```
#[must_use]
pub fn extension<T: Send + Sync + 'static>(key_of: impl ExtensionKey<T>) -> KeySource {
    KeySource::new(Extension {
        key_of,
        of: PhantomData,
    })
}

/// What [`extension`] takes: a closure from `&T` to anything that [`IntoKey`] names. There is nothing to implement.
pub trait ExtensionKey<T>:
    Fn(&T) -> <Self as ExtensionKey<T>>::Output + Send + Sync + 'static
{
    /// What the closure returns.
    type Output: IntoKey;
}

impl<T, F, K> ExtensionKey<T> for F
where
    F: Fn(&T) -> K + Send + Sync + 'static,
    K: IntoKey,
{
    type Output = K;
}

struct Extension<T, F> {
    key_of: F,
    of: PhantomData<fn(T)>,
}

impl<T: Send + Sync + 'static, F: ExtensionKey<T>> KeyExtractor for Extension<T, F> {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        self.extract_normalized(parts, Normalize::NOT)
    }

    fn missing(&self) -> KeyError {
        KeyError::server(format!(
            "the request's extensions have no key from a {}: put the layer that sets it outside the rate limit layer, \
             or add .or(…) for requests without one",
            short_name::<T>()
        ))
        .named(Mistake("no-extension"))
    }

    fn describe(&self) -> Cow<'static, str> {
        Cow::Owned(format!("extension {}", short_name::<T>()))
    }

    fn key_of(&self, value: &[u8]) -> Key {
        key_of_kind::<T>(value)
    }

    fn extract_normalized(
        &self,
        parts: &Parts,
        normalize: Normalize<'_>,
    ) -> Result<Option<Key>, KeyError> {
        match parts.extensions.get::<T>() {
            Some(value) => (self.key_of)(value).into_key(&key_of_kind::<T>, normalize),
            None => Ok(None),
        }
    }
}

fn key_of_kind<T>(value: &[u8]) -> Key {
    Key::qualified("extension", short_name::<T>(), value)
}

/// The type's name without its path and its parameters.
fn short_name<T>() -> &'static str {
    let name = type_name::<T>();
    let name = name.split('<').next().unwrap_or(name);
    name.rsplit("::").next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_called_by_its_own_name() {
        struct UserId;
        assert_eq!(short_name::<UserId>(), "UserId");
        assert_eq!(short_name::<Option<UserId>>(), "Option");
        assert_eq!(short_name::<u64>(), "u64");
    }
}
