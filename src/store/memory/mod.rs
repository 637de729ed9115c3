//! A bounded store in this process's memory: the reference for every other one.

mod memory_store;
mod rows;
mod set_limits;

pub(super) use self::memory_store::Memory;
pub use self::memory_store::MemoryStore;
