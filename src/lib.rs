//! Durable, exact, fast rate limiting as a tower layer.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
pub mod key;
mod limit;
mod limiter;
mod middleware;
mod response;
mod store;

#[cfg(feature = "test-util")]
pub use self::clock::ManualClock;
pub use self::limit::{
    Algorithm, Decision, Key, KeyPart, KeyValue, ParseKeyError, Policy, PolicyError, Timestamp,
};
pub use self::limiter::{FailureMode, Limiter};
pub use self::middleware::{
    Decisions, RateLimit, RateLimitLayer, Rejection, ResponseBody, ResponseFuture,
};
pub use self::response::{Problem, ResetFormat};
pub use self::store::{MemoryStore, Store, StoreError};
#[cfg(feature = "sqlite")]
pub use self::store::{OpenError, SqliteStore};
