//! Durable, exact, fast rate limiting as a [tower](https://docs.rs/tower) layer.
//!
//! [`RateLimitLayer`] goes in front of any `tower::Service<http::Request<_>>`: an axum route or router, a hyper service,
//! any tower stack. It takes a key from the request, charges a [`Policy`] for that key, and answers `429` with a problem
//! document and `Retry-After` before the inner service runs. The counts are kept in SQLite: on a file they survive
//! restarts and are shared by every process on the host, and never one request over the limit passes. Several hosts share a
//! Postgres or a Redis.
//!
//! # Examples
//!
//! ```
//! use std::net::SocketAddr;
//! use axum::{Router, routing::get};
//! use tollgate::{RateLimitLayer, SqliteStore};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("limits.db");
//! let store = SqliteStore::open(path).await?;
//! let app = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::fixed(3, 60).name("hello").store(&store))
//!     .into_make_service_with_connect_info::<SocketAddr>();
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! # Where to look
//!
//! | for | see |
//! | --- | --- |
//! | what is allowed: windows, buckets, quotas | [`Policy`] |
//! | the layer, its settings and their defaults | [`RateLimitLayer`] |
//! | who is limited: addresses, headers, users | [`key`] |
//! | limits without HTTP, looking and resetting | [`Limiter`] |
//! | other limits for some keys, at run time | [`Limiter::set_limit`] |
//! | the database: files, processes, durability | [`SqliteStore`] |
//! | the same for several hosts | `PostgresStore`, `RedisStore`, with the features `postgres` and `redis` |
//! | what was let through, and what was used | [`RateLimitLayer::audit`], [`UsageQuery`] |
//! | an HTTP API for operators | `Admin`, with the feature `admin` |
//! | a store that gives no answer | [`FailureMode`], [`StoreHealth`] |
//! | the answers that the layer makes | [`Rejection`], [`Problem`] |
//! | what was decided, for handlers and logs | [`Decisions`], [`Decision`] |
//!
//! # Features
//!
//! | | default | |
//! | --- | --- | --- |
//! | `sqlite` | yes | [`SqliteStore`]; without it a layer without a store counts in a [`MemoryStore`] |
//! | `postgres` | no | `PostgresStore`, for services on several machines |
//! | `redis` | no | `RedisStore`, for services on several machines |
//! | `records` | no | `RecordStore`, for a database of one's own that can do what `Records` asks |
//! | `axum` | yes | reads axum's `ConnectInfo` and `MatchedPath`, and lets a handler return a [`Rejection`] |
//! | `tonic` | no | reads the peer's address from tonic's `TcpConnectInfo` |
//! | `metrics` | no | tells counters, gauges and histograms through the facade [`metrics`](https://docs.rs/metrics), and `describe_metrics` what they are |
//! | `admin` | no | `Admin`, an HTTP API for operators: who is refused, resets, usage, health |
//! | `test-util` | no | `ManualClock`, a clock that tests set, and `store_suite!` and `records_suite!`, which prove a store and a database |
#![cfg_attr(docsrs, feature(doc_cfg))]
// Here and not in Cargo.toml, since the examples do print.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod limit;

mod clock;
pub mod key;
mod response;

mod store;

mod limiter;

mod middleware;

#[cfg(feature = "admin")]
mod admin;

#[cfg(feature = "admin")]
pub use self::admin::{Admin, AdminError, AdminKey, AdminKeyError};
#[cfg(feature = "test-util")]
pub use self::clock::{ManualClock, skew_system_clock};
pub use self::limit::{
    Algorithm, Day, DayError, Days, Decision, Denied, Key, KeyPart, KeyValue, Limit, ParseKeyError,
    Policies, Policy, PolicyError, StoredLimit, Timestamp, Verdict,
};
#[cfg(feature = "metrics")]
pub use self::limiter::describe_metrics;
pub use self::limiter::{FailureMode, Keys, Limiter};
pub use self::middleware::{
    Decisions, RateLimit, RateLimitLayer, Rejection, ResponseBody, ResponseFuture,
};
pub use self::response::{Dialect, Problem, ResetFormat};
#[cfg(any(test, feature = "test-util"))]
#[doc(hidden)]
pub use self::store::suite as __suite;
pub use self::store::{MemoryStore, Store, StoreError, StoreHandle, StoreHealth};
#[cfg(feature = "sqlite")]
pub use self::store::{OpenError, SqliteStore, Usage, UsageQuery};
#[cfg(feature = "postgres")]
pub use self::store::{PostgresOpenError, PostgresStore, PostgresStoreOptions};
#[cfg(feature = "records")]
pub use self::store::{ReadRecords, RecordChange, RecordStore, RecordWrite, Records};
#[cfg(feature = "redis")]
pub use self::store::{RedisOpenError, RedisStore};

/// The guide pages' code must compile.
#[cfg(all(doctest, feature = "sqlite", feature = "axum"))]
mod pages {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/getting-started.md")]
    mod getting_started {}
    #[doc = include_str!("../docs/algorithms.md")]
    mod algorithms {}
    #[doc = include_str!("../docs/keys.md")]
    mod keys {}
    #[doc = include_str!("../docs/layers.md")]
    mod layers {}
    #[doc = include_str!("../docs/proxies.md")]
    mod proxies {}
    #[doc = include_str!("../docs/sqlite.md")]
    mod sqlite {}
    #[cfg(feature = "postgres")]
    #[doc = include_str!("../docs/postgres.md")]
    mod postgres {}
    #[cfg(feature = "redis")]
    #[doc = include_str!("../docs/redis.md")]
    mod redis {}
    #[cfg(feature = "records")]
    #[doc = include_str!("../docs/own-store.md")]
    mod own_store {}
    #[doc = include_str!("../docs/failures.md")]
    mod failures {}
    #[doc = include_str!("../docs/audit.md")]
    mod audit {}
    #[doc = include_str!("../docs/limits.md")]
    mod limits {}
    #[doc = include_str!("../docs/production.md")]
    mod production {}
    #[doc = include_str!("../docs/tracing.md")]
    mod tracing {}
    #[cfg(feature = "metrics")]
    #[doc = include_str!("../docs/metrics.md")]
    mod metrics {}
    #[cfg(feature = "test-util")]
    #[doc = include_str!("../docs/testing.md")]
    mod testing {}
    #[cfg(feature = "admin")]
    #[doc = include_str!("../docs/admin.md")]
    mod admin {}
    #[doc = include_str!("../docs/migrating.md")]
    mod migrating {}
    #[doc = include_str!("../docs/errors.md")]
    mod errors {}
}
