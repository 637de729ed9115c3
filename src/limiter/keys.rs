//! The keys of a charge.

use crate::limit::Key;

/// The keys that a [`Limiter`](crate::Limiter) charges: a `&Key` for all of its policies, or an array or a slice with one
/// for each of them, in their order.
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
pub trait Keys: sealed::Sealed {}

impl Keys for &Key {}
impl Keys for &[Key] {}
impl<const N: usize> Keys for &[Key; N] {}

pub(super) mod sealed {
    use crate::limit::Key;

    pub trait Sealed {
        /// The keys: one, or as many as there are policies.
        fn as_slice(&self) -> &[Key];
    }

    impl Sealed for &Key {
        fn as_slice(&self) -> &[Key] {
            std::slice::from_ref(self)
        }
    }

    impl Sealed for &[Key] {
        fn as_slice(&self) -> &[Key] {
            self
        }
    }

    impl<const N: usize> Sealed for &[Key; N] {
        fn as_slice(&self) -> &[Key] {
            *self
        }
    }
}
