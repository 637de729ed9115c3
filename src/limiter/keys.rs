//! The keys of a charge.

use std::sync::Arc;

use crate::limit::Key;

/// The keys that a [`Limiter`](crate::Limiter) charges: a `&Key` for all of its policies, or an array, a slice or a `Vec`
/// with one for each of them, in their order.
///
/// # Examples
///
/// ```
/// use tollgate::{Key, Limiter, MemoryStore, Policy, StoreError};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let calls = Limiter::new([
///     Policy::sliding(20, 1).name("address"),
///     Policy::daily(10_000).name("account"),
/// ])
/// .store(&MemoryStore::new());
/// let (address, account) = (Key::ip("203.0.113.7".parse().unwrap()), Key::new("user", 42));
///
/// assert!(calls.check(&[address, account]).await?.is_allowed());
/// # Ok::<(), StoreError>(()) }).unwrap();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no key of a rate limit",
    note = "make one with `Key::new(kind, value)`, and give `&key`, or `&[key, …]` with one for each policy"
)]
pub trait Keys: sealed::Sealed {}

impl Keys for Key {}
impl Keys for [Key] {}
impl Keys for Vec<Key> {}
impl<const N: usize> Keys for [Key; N] {}
impl<K: Keys + ?Sized> Keys for &K {}
impl<K: Keys + ?Sized> Keys for Arc<K> {}

pub(super) mod sealed {
    use std::sync::Arc;

    use crate::limit::Key;

    pub trait Sealed {
        /// The keys: one, or as many as there are policies.
        fn as_slice(&self) -> &[Key];
    }

    impl Sealed for Key {
        fn as_slice(&self) -> &[Key] {
            std::slice::from_ref(self)
        }
    }

    impl Sealed for [Key] {
        fn as_slice(&self) -> &[Key] {
            self
        }
    }

    impl Sealed for Vec<Key> {
        fn as_slice(&self) -> &[Key] {
            self
        }
    }

    impl<const N: usize> Sealed for [Key; N] {
        fn as_slice(&self) -> &[Key] {
            self
        }
    }

    impl<K: Sealed + ?Sized> Sealed for &K {
        fn as_slice(&self) -> &[Key] {
            (**self).as_slice()
        }
    }

    impl<K: Sealed + ?Sized> Sealed for Arc<K> {
        fn as_slice(&self) -> &[Key] {
            (**self).as_slice()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_may_be_borrowed_and_shared_in_many_ways() {
        fn count(keys: impl Keys) -> usize {
            sealed::Sealed::as_slice(&keys).len()
        }
        let key = Key::new("user", 1);
        let (list, shared) = (vec![key.clone(), key.clone()], Arc::new(key.clone()));
        let borrowed = [&&key].map(count);
        assert_eq!((borrowed, count(&key), count(&shared)), ([1], 1, 1));
        assert_eq!([count(&list), count(&list[..]), count(&[key])], [2, 2, 1]);
    }
}
