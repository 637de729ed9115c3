//! Where counters are kept.
//!
//! A store sees policies, keys and instants; it never sees HTTP, and a key is opaque text to it. `contract.rs` is what
//! every store must do, in words, and the suite that proves it. `engine/` collects charges into batches for stores
//! that do I/O; `memory/` answers at once.

mod call;
mod charge;
mod contract;
#[cfg(feature = "_engine")]
mod engine;
#[cfg(feature = "_engine")]
mod file_sizes;
mod handle;
mod health;
mod limits;
mod memory;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod merge;
#[cfg(feature = "metrics")]
mod meters;
#[cfg(test)]
#[cfg(any(feature = "postgres", feature = "redis"))]
#[cfg_attr(
    not(all(feature = "postgres", feature = "redis")),
    expect(dead_code, reason = "the tests of each store use a part of it")
)]
mod networks;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "records")]
mod records;
#[cfg(feature = "redis")]
mod redis;
mod reply;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store_clock;
mod store_error;
mod store_health;
#[cfg(any(test, feature = "test-util"))]
#[doc(hidden)]
pub mod suite;
#[cfg(feature = "sqlite")]
mod usage;

/// The target of all events with stable names, also of those that limiters and layers tell: one filter is for all.
pub(crate) const TARGET: &str = "tollgate";

pub(crate) use self::call::{Call, CallLog};
pub(crate) use self::charge::{Charge, GiveBack, Outcome, Part, Reset, Rule};
pub use self::contract::{Store, StoreHandle};
pub(crate) use self::handle::{Handle, StoreId};
pub(crate) use self::limits::{Limits, LimitsAsk, NewLimit, SetLimit, Which};
pub use self::memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use self::postgres::{PostgresOpenError, PostgresStore, PostgresStoreOptions};
#[cfg(feature = "records")]
pub use self::records::{ReadRecords, RecordChange, RecordStore, RecordWrite, Records};
#[cfg(feature = "redis")]
pub use self::redis::{RedisOpenError, RedisStore};
pub(crate) use self::reply::{Later, Reply, poll_later};
#[cfg(feature = "sqlite")]
pub use self::sqlite::{OpenError, SqliteStore, UsageQuery};
pub use self::store_error::StoreError;
pub use self::store_health::StoreHealth;
#[cfg(feature = "sqlite")]
pub use self::usage::Usage;
