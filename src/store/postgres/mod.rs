//! Counters in a Postgres that several hosts share, through sqlx.
//!
//! `location.rs` says which server and schema it is, `database/` opens the connection and keeps it sound, `statements.rs` has the
//! tables and functions of `sql/` and what is asked, `backend.rs` is what the engine calls. The server decides, each batch in one
//! call, one of two ways: `windows.rs` is one statement, `ledger/` a function that locks, reads, decides and writes.

mod backend;
mod database;
mod give_back;
mod ledger;
mod limits;
mod location;
mod open_error;
mod options;
mod resetting;
mod rows;
mod spans;
mod sql_state;
mod statements;
mod sweeping;
#[cfg(test)]
mod tests;
mod windows;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;

use self::backend::Postgres;
use self::database::{Database, TestTime};
use self::location::Location;
pub use self::open_error::PostgresOpenError;
pub use self::options::PostgresStoreOptions;
use super::engine::Engine;
use super::{Handle, Store, StoreError, StoreHandle, StoreHealth};
#[cfg(any(test, feature = "test-util"))]
use crate::clock::ManualClock;
use crate::clock::{Clock, ServerClock};

/// Counters in a Postgres, which all nodes of a service share: never more than the limit passes, however many there are.
///
/// Clones are the same store, and all layers on it share its one queue and its one connection. It is a connection of its own, beside
/// the pools of the application: a flood of requests never takes a place in those.
///
/// **The server's clock decides.** Nodes whose own clocks differ agree about windows and waits. What a node decides from memory it
/// decides by an estimate of the server's clock, which is never behind it.
///
/// A charge that was answered "allowed" is committed, as surely as the server's `synchronous_commit` says; on a replica that takes over
/// it is as far as that has received it. See [`PostgresStoreOptions::unlogged`] for counters that are faster and do not outlive a crash.
///
/// While the server gives no answer, each limiter's failure mode decides. A call that hangs is given up after 5 seconds with its
/// connection, and the next one connects again.
///
/// | | default |
/// | --- | --- |
/// | [`deadline`](Self::deadline) of a charge | 250 ms |
/// | queue | 8,192 charges |
/// | connections | 1 |
/// | [`max_keys_in_memory`](Self::max_keys_in_memory), which are answered without the database | 65,536 |
///
/// Expired rows are deleted by the nodes themselves, with or without traffic, in pages of 250 to 1,000 rows, and by one node at a time.
///
/// # What it needs
///
/// Postgres 13 or later, a database in UTF-8, and a user who may create tables and functions in the schema, or for whom the owner of
/// them has made them once. TLS is that of the application's own sqlx: one of its TLS features, like `tls-rustls-ring`, and
/// `?sslmode=verify-full` in the URL. Behind pgbouncer in transaction mode it takes pgbouncer 1.21 with `max_prepared_statements`, since statements
/// are prepared, and `ignore_startup_parameters = options,extra_float_digits`; then this user should have a `statement_timeout` of 4
/// seconds, and a `default_transaction_isolation` of `read committed`, on the server itself.
///
/// # Examples
///
/// ```no_run
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use tollgate::{PostgresStore, RateLimitLayer};
///
/// let store = PostgresStore::connect("postgres://app:secret@db.internal/app").await?;
/// let login = RateLimitLayer::sliding(5, 900).name("login").store(&store);
/// let api = RateLimitLayer::fixed(100, 60).name("api").store(&store);
///
/// // When the server has stopped:
/// store.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct PostgresStore {
    engine: Arc<Engine>,
    #[cfg_attr(
        not(any(test, feature = "test-util")),
        expect(dead_code, reason = "only a test sets the time")
    )]
    time: Arc<TestTime>,
}

impl PostgresStore {
    /// Connects to the server of a URL: `postgres://user:password@host:5432/database`. Tables and functions whose names begin with
    /// `rate_limit_` are made where they are missing, by one node at a time.
    ///
    /// # Errors
    ///
    /// [`PostgresOpenError`] for what is no Postgres URL; when the server is not reached, or does not let the user in; when the tables
    /// can't be made, or were made by a version of this crate that is too new; and when the server is too old, only reads, or its
    /// database is not in UTF-8.
    pub async fn connect(url: &str) -> Result<Self, PostgresOpenError> {
        PostgresStoreOptions::new().connect(url).await
    }

    /// Counts in the application's own database: the one that its pool connects to.
    ///
    /// A connection of its own is opened with the pool's options, so that no place in the pool is used, and
    /// [`close`](Self::close) leaves the pool as it is. What the pool's `after_connect` does is not done on this connection.
    ///
    /// # Errors
    ///
    /// As in [`connect`](Self::connect).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use sqlx::PgPool;
    /// use tollgate::{PostgresStore, RateLimitLayer};
    ///
    /// let pool = PgPool::connect("postgres://app:secret@db.internal/app").await?;
    /// let store = PostgresStore::from_pool(&pool).await?;
    /// let login = RateLimitLayer::sliding(5, 900).name("login").store(&store);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub async fn from_pool(pool: &PgPool) -> Result<Self, PostgresOpenError> {
        PostgresStoreOptions::new().from_pool(pool).await
    }

    async fn opened(location: Location) -> Result<Self, PostgresOpenError> {
        let name = location.name();
        let clock = ServerClock::new();
        let time = Arc::<TestTime>::default();
        let database = Database::new(location, clock.clone(), Arc::clone(&time));
        let backend = Postgres { database };
        let engine = Arc::new(Engine::new(name, backend, Clock::Server(clock)));
        let opened = engine.open().await;
        opened.map_err(PostgresOpenError::from_store)?;
        Ok(Self { engine, time })
    }

    /// Sets how long a charge or a look may wait for its answer, from 1 ms to 10 s; 250 ms by default. What is outside
    /// counts as the nearer end. It holds for all clones.
    ///
    /// After it the limiter's failure mode decides. The time is real time, also when a test has paused tokio's.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.engine.set_deadline(deadline);
        self
    }

    /// Sets how many keys are answered from memory at most, from 16; 65,536 by default. It holds for all clones.
    ///
    /// A key that is charged again within a second, by fixed windows, calendar quotas and sliding counters, has units charged ahead
    /// of it, and one that was refused is refused from memory (see [`Policy::leases`](crate::Policy::leases)). So many of each are
    /// remembered. A key that is not remembered is decided by the database, which is slower and just as exact: no limit hangs on
    /// this number.
    #[must_use]
    pub fn max_keys_in_memory(self, max_keys: usize) -> Self {
        self.engine.set_max_keys(max_keys);
        self
    }

    /// Sets the clock that every decision on this store is made by, in place of the server's. Only the first call counts.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn clock(self, clock: &ManualClock) -> Self {
        self.time.give();
        self.engine.set_clock(Clock::Manual(clock.clone()));
        self
    }

    /// Moves the server's clock by milliseconds, as this node sees it. For tests of what a step of it does.
    #[cfg(any(test, feature = "test-util"))]
    #[doc(hidden)]
    pub fn move_server_clock(&self, millis: i64) {
        self.time.move_by(millis);
    }

    /// How the store is: whether it answers, since when and why it does not, and how much waits. The database is not asked.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        self.engine.report()
    }

    /// Charges what waits, gives back what was charged ahead, and closes the connection, also while layers still hold the store.
    ///
    /// Later charges get [`StoreError::Closed`], for which each limiter's failure mode decides. Closing a closed store does
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the store's thread has panicked.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.engine.close().await
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("name", &self.engine.name())
            .finish_non_exhaustive()
    }
}

impl Store for PostgresStore {
    fn handle(&self) -> StoreHandle {
        StoreHandle(Handle::Queued(Arc::clone(&self.engine)))
    }
}
