//! A bounded store in this process's memory: the reference for every other one.

mod kept;
#[cfg(feature = "records")]
mod lent;
mod memory_store;
mod rows;
mod set_limits;

#[cfg(feature = "records")]
pub(super) use self::kept::{Kept, Place};
pub(super) use self::memory_store::Memory;
pub use self::memory_store::MemoryStore;
#[cfg(feature = "records")]
pub(super) use self::rows::Rows;
