//! Counters in an embedded SQLite, through sqlx.
//!
//! `location.rs` says which file it is, `files.rs` and `watch.rs` whether it is still the same, `database/` opens the
//! connection and keeps it sound, and has another one checkpoint, `version.rs` says which SQLite will do, `backend.rs` is
//! what the engine calls, `tables/` has the tables and their statements. A batch goes one of two ways: `upsert.rs` is one
//! statement, `ledger/` reads, decides and writes back. `give_back.rs` takes back what was not used. `room.rs` is the
//! cap of a database in memory, `application.rs` what is different in a database of the application. `auditing.rs` and
//! `usage_query.rs` are what users see of allowed requests that are recorded.

mod application;
mod auditing;
mod backend;
mod database;
mod files;
mod give_back;
mod ledger;
mod location;
mod open_error;
mod retention;
mod room;
mod settings;
mod tables;
#[cfg(test)]
mod tests;
mod upsert;
mod usage_query;
mod version;
mod watch;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::SqlitePool;

use self::backend::Sqlite;
use self::database::Database;
use self::files::Files;
use self::location::Location;
pub use self::open_error::OpenError;
use self::retention::Retention;
use self::room::Room;
pub use self::usage_query::UsageQuery;
use super::engine::Engine;
use super::{Handle, Store, StoreError, StoreHandle, StoreHealth};
use crate::clock::Clock;
#[cfg(any(test, feature = "test-util"))]
use crate::clock::ManualClock;

/// Counters in SQLite: in a file that survives restarts and is shared by every process on the host, or in memory.
///
/// Clones are the same store, and all layers on it share its one queue and the one connection that writes; a second
/// one only moves the WAL of a file into the database. Two stores on one file,
/// in one process or in several, share its counters: never more than the limit passes.
///
/// A charge that was answered "allowed" survives the end of the process, however it ends. After a power failure the
/// last moments may be lost (`synchronous = NORMAL`). The file must lie on a disk of this host, not on a network share.
///
/// | | default |
/// | --- | --- |
/// | [`deadline`](Self::deadline) of a charge | 250 ms |
/// | wait for another process's write | 200 ms |
/// | queue | 8,192 charges |
/// | rows in memory | 262,144; a file has no cap |
/// | [`max_keys_in_memory`](Self::max_keys_in_memory), which are answered without the database | 65,536 |
/// | [`process_lock`](Self::process_lock) | off |
/// | [`audit_retention`](Self::audit_retention) | 30 days |
/// | [`usage_retention`](Self::usage_retention) | 400 days |
///
/// Expired rows are deleted by the store itself, with or without traffic, a thousand at a time, and 250 at
/// the least while charges come.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("limits.db");
/// use tollgate::{RateLimitLayer, SqliteStore};
///
/// let store = SqliteStore::open(path).await?;
/// let login = RateLimitLayer::sliding(5, 900).name("login").store(&store);
/// let api = RateLimitLayer::fixed(100, 60).name("api").store(&store);
///
/// // When the server has stopped:
/// store.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct SqliteStore {
    engine: Arc<Engine>,
    retention: Arc<Retention>,
    process_lock: Arc<AtomicBool>,
}

impl SqliteStore {
    /// Opens a database file, and creates it when it is not there, readable by its owner alone (mode 0600).
    ///
    /// The file is put into WAL mode: `-wal` and `-shm` files lie beside it while it is open.
    ///
    /// # Errors
    ///
    /// [`OpenError`] when the path is a folder, its folder is missing, the file can't be written or is no database,
    /// was made by a version of this crate that is too new, or stays locked by another process.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::opened(Location::from_path(path.as_ref())?).await
    }

    /// Opens the database of a URL: `sqlite://limits.db` beside the process, `sqlite:///var/lib/app/limits.db`, or
    /// `sqlite::memory:`.
    ///
    /// The file is created like [`open`](Self::open) does, unless the URL says `?mode=rw`.
    ///
    /// # Errors
    ///
    /// [`OpenError`] for what is no SQLite URL, for `?mode=ro`, and as in [`open`](Self::open).
    pub async fn connect(url: &str) -> Result<Self, OpenError> {
        Self::opened(Location::from_url(url)?).await
    }

    /// Counts in the application's own database: the one that its pool opens.
    ///
    /// The tables are beside the application's, and their names begin with `rate_limit_`. A connection of its own is opened
    /// from the pool's options, so that no place in the pool is used, and [`close`](Self::close) leaves the pool as it is.
    /// How the file is kept (journal mode, `synchronous`, size of pages, checkpoints, the mode of the file) is the
    /// application's: a database that is not in WAL mode is left so, and a warning in the log says what follows.
    ///
    /// SQLite has one writer at a time, so a transaction of the application keeps charges waiting. After 200 ms, or at the
    /// [`deadline`](Self::deadline), the limiter's failure mode decides.
    ///
    /// What the pool's `after_connect` does is not done on this connection.
    ///
    /// # Errors
    ///
    /// [`OpenError::PoolInMemory`] when the pool's database is in memory; [`OpenError::NotFound`] when there is no file and
    /// the options do not say `create_if_missing(true)`; [`OpenError::NotWritable`] when they say `read_only`;
    /// [`OpenError::NameTaken`] when the application has a table of a name that is needed; and as in
    /// [`open`](Self::open).
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("app.db");
    /// use sqlx::SqlitePool;
    /// use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
    /// use tollgate::{RateLimitLayer, SqliteStore};
    ///
    /// let options = SqliteConnectOptions::new()
    ///     .filename(path)
    ///     .create_if_missing(true)
    ///     .journal_mode(SqliteJournalMode::Wal);
    /// let pool = SqlitePool::connect_with(options).await?;
    ///
    /// let store = SqliteStore::from_pool(&pool).await?;
    /// let login = RateLimitLayer::sliding(5, 900).name("login").store(&store);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub async fn from_pool(pool: &SqlitePool) -> Result<Self, OpenError> {
        Self::opened(Location::from_pool(pool)).await
    }

    /// A database in memory, empty, and gone with the last handle on it. It opens on first use.
    ///
    /// It holds 262,144 rows at most; of an exact sliding window each event is one. When they are there, expired rows go
    /// first, then keys with a single used unit and something left, then others with something left, then those that have
    /// used all but were not refused yet. A key that was refused stays until its window is over, or, of an exact sliding
    /// window or a bucket, until it is admitted again: a new key gets [`StoreError::Full`] instead.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::in_memory_of(room::DEFAULT_MAX_ROWS)
    }

    pub(super) fn in_memory_of(max_rows: u64) -> Self {
        let room = Some(Room::new(max_rows));
        Self::on(Location::Memory, room)
    }

    async fn opened(location: Location) -> Result<Self, OpenError> {
        if matches!(location, Location::Memory) {
            return Ok(Self::in_memory());
        }
        let store = Self::on(location, None);
        let opened = store.engine.open().await;
        opened.map_err(OpenError::from_store)?;
        Ok(store)
    }

    /// A store that opens on first use.
    fn on(location: Location, room: Option<Room>) -> Self {
        let name = location.name();
        let retention = Arc::<Retention>::default();
        let database = Database::new(location);
        let process_lock = database.process_lock();
        let backend = Sqlite {
            database,
            room,
            retention: Arc::clone(&retention),
        };
        Self {
            engine: Arc::new(Engine::new(name, backend, Clock::System)),
            retention,
            process_lock,
        }
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
    /// A key that is charged again within a second, by fixed windows, calendar quotas and sliding counters, has units charged ahead of it, and one that
    /// was refused is refused from memory (see [`Policy::leases`](crate::Policy::leases)). So many of each are remembered, and
    /// forgotten when they were idle for a minute at the most. Beyond that those go first that were not used lately; the units
    /// that they have not spent go back to the database, and what they were refused is still counted. A key that is not remembered is
    /// decided by the database, which is slower and just as exact: no limit hangs on this number.
    ///
    /// A remembered key of up to 44 bytes takes 240 bytes, one that is refused 400 more: some 40 MB of 65,536 that are all refused. What is
    /// longer takes its own length beside that.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::SqliteStore;
    ///
    /// let store = SqliteStore::in_memory().max_keys_in_memory(1_000_000);
    /// ```
    #[must_use]
    pub fn max_keys_in_memory(self, max_keys: usize) -> Self {
        self.engine.set_max_keys(max_keys);
        self
    }

    /// Whether writes take turns with those of other processes by a lock of the operating system; `false` by default. It holds for
    /// all clones, and is meant for more than two busy processes on one file.
    ///
    /// A process that finds SQLite's own lock taken sleeps, for 1 ms at first and up to 100 ms, while others may pass it. With this
    /// lock it is woken when it is its turn. So the slowest charges are answered sooner, and those in the middle, which go ahead of
    /// others without it, later; at full load fewer are answered in all. Measure both.
    ///
    /// The lock is on a file beside the database, `limits.db-lock`, which is made with the mode of the database and stays. It
    /// ends with the process that holds it, however that ends. One that stands still with it is waited for once, for 50 ms: then charges go on with
    /// SQLite's own lock, which they always take. So a process without this lock, an older version say, may be on the same file,
    /// but those with it get slower beside it: turn it on in all or in none.
    /// In memory it does nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("limits.db");
    /// use tollgate::SqliteStore;
    ///
    /// let store = SqliteStore::open(path).await?.process_lock(true);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn process_lock(self, is_on: bool) -> Self {
        self.process_lock.store(is_on, Ordering::Relaxed);
        self
    }

    /// Sets the clock that every decision on this store is made by. Only the first call counts.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn clock(self, clock: &ManualClock) -> Self {
        self.engine.set_clock(Clock::Manual(clock.clone()));
        self
    }

    /// How the store is: whether it answers, since when and why it does not, how much waits, and how large its files are. The
    /// database is not asked.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("limits.db");
    /// use tollgate::SqliteStore;
    ///
    /// let store = SqliteStore::open(path).await?;
    /// let health = store.health();
    /// assert!(health.is_answering());
    /// assert_eq!(health.name(), "limits.db");
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        self.engine.report()
    }

    /// Writes what waits and closes the database, also while layers still hold the store.
    ///
    /// Later charges get [`StoreError::Closed`], for which each limiter's failure mode decides: by default they are counted in
    /// this process's memory. Closing a closed store does nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the database can't be closed cleanly.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.engine.close().await
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("name", &self.engine.name())
            .finish_non_exhaustive()
    }
}

impl Store for SqliteStore {
    fn handle(&self) -> StoreHandle {
        StoreHandle(Handle::Queued(Arc::clone(&self.engine)))
    }
}
