//! What the closures of sources may return.

use std::borrow::Cow;

use super::{KeyError, Normalize};
use crate::limit::{Key, KeyValue};

/// What a closure of [`extension`](super::extension) or [`from_fn`](super::from_fn) may return.
///
/// A [`Key`], or a bare value (text, bytes, a number, an address) whose kind is that of the source; either of them in an
/// `Option`, where `None` asks the next source, or in a `Result`. Text or bytes that are empty or blank are `None`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be made a key",
    note = "return text, bytes, a number, an address or a `Key`, each of them owned, or one of them in an `Option` or a \
            `Result<_, KeyError>`"
)]
pub trait IntoKey {
    /// The key; a bare value becomes `kind_of(value)`.
    #[doc(hidden)]
    fn into_key(
        self,
        kind_of: &dyn Fn(&[u8]) -> Key,
        normalize: Normalize<'_>,
    ) -> Result<Option<Key>, KeyError>;
}

impl IntoKey for Key {
    fn into_key(
        self,
        _: &dyn Fn(&[u8]) -> Key,
        normalize: Normalize<'_>,
    ) -> Result<Option<Key>, KeyError> {
        normalize.whole_key(self)
    }
}

impl<T: IntoKey> IntoKey for Option<T> {
    fn into_key(
        self,
        kind_of: &dyn Fn(&[u8]) -> Key,
        normalize: Normalize<'_>,
    ) -> Result<Option<Key>, KeyError> {
        self.map_or(Ok(None), |key| key.into_key(kind_of, normalize))
    }
}

impl<T: IntoKey> IntoKey for Result<T, KeyError> {
    fn into_key(
        self,
        kind_of: &dyn Fn(&[u8]) -> Key,
        normalize: Normalize<'_>,
    ) -> Result<Option<Key>, KeyError> {
        self?.into_key(kind_of, normalize)
    }
}

macro_rules! into_key_as_value {
    ($($type:ty),*) => { $(
        impl IntoKey for $type {
            fn into_key(
                self,
                kind_of: &dyn Fn(&[u8]) -> Key,
                normalize: Normalize<'_>,
            ) -> Result<Option<Key>, KeyError> {
                let mut key = None;
                self.with_bytes(&mut |bytes| key = normalize.key(bytes, kind_of));
                Ok(key)
            }
        }
    )* };
}

into_key_as_value!(
    &str,
    String,
    Cow<'_, str>,
    &[u8],
    Vec<u8>,
    bytes::Bytes,
    bool,
    char,
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    std::net::IpAddr,
    std::net::Ipv4Addr,
    std::net::Ipv6Addr
);
