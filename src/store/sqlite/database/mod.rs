//! The connection: how it is opened, and kept sound after an error.

mod checkpoints;
mod frames;
mod process_lock;
mod restarts;
mod result_code;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{ConnectOptions, Connection, Sqlite, SqliteConnection};
use tokio::time::sleep_until;
use tracing::Level;

use self::checkpoints::Checkpoints;
use self::process_lock::{ProcessLock, Turn};
use self::restarts::Restarts;
use self::result_code::{open_error, store_error};
use super::files::apart;
use super::tables::schema;
use super::watch::Watch;
use super::{Files, Location, OpenError, application, settings, version};
use crate::clock;
use crate::store::file_sizes::FileSizes;
use crate::store::{StoreError, TARGET};

/// How long an opening waits for others that hold the file: eight processes that start at once need a fraction of it.
const OPENING_PATIENCE: Duration = Duration::from_secs(5);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);
/// Changes nothing, and fails where nothing can be changed: such a file would fail at the first charge instead. To begin a
/// transaction is not enough, SQLite begins one to read then.
const PROBE: &str = "DELETE FROM rate_limit_schema WHERE id = 0";

/// One connection of its own, opened when it is needed.
pub(super) struct Database {
    location: Arc<Location>,
    file_sizes: Arc<FileSizes>,
    connection: Option<SqliteConnection>,
    /// Set while a call is under way: still set at the next one when a call failed or panicked, which may have left
    /// a transaction open, with the write lock held.
    is_unsound: bool,
    /// How often it was opened. A database in memory is a new one then.
    generation: u64,
    pub(super) watch: Watch,
    restarts: Restarts,
    /// Of a file of ours, while it is open.
    checkpoints: Option<Checkpoints>,
    process_lock: ProcessLock,
    /// While something is written, up to the end of its transaction.
    turn: Option<Turn>,
}

impl Database {
    pub(super) fn new(location: Location) -> Self {
        Self {
            location: Arc::new(location),
            file_sizes: Arc::default(),
            connection: None,
            is_unsound: false,
            generation: 0,
            watch: Watch::new(),
            restarts: Restarts::new(),
            checkpoints: None,
            process_lock: ProcessLock::new(),
            turn: None,
        }
    }

    /// How long its files were when they were last looked at.
    pub(super) fn file_sizes(&self) -> Arc<FileSizes> {
        Arc::clone(&self.file_sizes)
    }

    /// Whether it takes the process lock, to be switched.
    pub(super) fn process_lock(&self) -> Arc<AtomicBool> {
        self.process_lock.switch()
    }

    /// Opens the database and writes to it, and waits for others that do the same.
    pub(super) async fn open_patiently(&mut self) -> Result<(), StoreError> {
        let give_up_at = clock::monotonic() + OPENING_PATIENCE;
        loop {
            match self.open(true).await {
                Err(OpenError::Locked(_)) if clock::monotonic() < give_up_at => {
                    sleep_until((clock::monotonic() + BETWEEN_ATTEMPTS).into()).await;
                }
                result => return Ok(result?),
            }
        }
    }

    /// Runs a query that changes nothing to its end.
    pub(super) async fn read(
        &mut self,
        query: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let connection = self.sound_connection().await?;
        let result = query.fetch_all(connection).await;
        self.checked(result).await
    }

    /// Runs a query that may write to its end, and all statements in it: only then SQLite reports an error at commit, and
    /// checkpoints.
    pub(super) async fn fetch_all(
        &mut self,
        query: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let connection = self.writing_connection().await?;
        let result = query.fetch_all(connection).await;
        self.written(result).await
    }

    /// Runs a query that may write to its end, and says how many rows it changed.
    pub(super) async fn execute(
        &mut self,
        query: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<u64, StoreError> {
        let connection = self.writing_connection().await?;
        let result = query.execute(connection).await;
        Ok(self.written(result).await?.rows_affected())
    }

    /// Runs a query that begins a transaction and leaves it open: with the next call that is not `within` or `end` it is
    /// rolled back, also when what comes in between panics.
    pub(super) async fn begin(
        &mut self,
        query: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let connection = self.writing_connection().await?;
        let result = query.fetch_all(connection).await;
        if result.is_err() {
            self.make_sound().await;
        }
        result.map_err(store_error)
    }

    /// Runs a query in the transaction that `begin` has left open.
    pub(super) async fn within(
        &mut self,
        query: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let connection = self.connection.as_mut().ok_or(StoreError::Closed)?;
        let result = query.fetch_all(connection).await;
        if result.is_err() {
            self.make_sound().await;
        }
        result.map_err(store_error)
    }

    /// Runs a query that commits the transaction which `begin` has left open.
    pub(super) async fn end(
        &mut self,
        query: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let connection = self.connection.as_mut().ok_or(StoreError::Closed)?;
        let result = query.fetch_all(connection).await;
        self.written(result).await
    }

    /// Ends the transaction that `begin` has left open, without a trace of it.
    pub(super) async fn roll_back(&mut self) {
        self.make_sound().await;
    }

    /// The same as `sound_connection`, when it is this process's turn to write.
    async fn writing_connection(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        self.sound_connection().await?;
        self.turn = self.process_lock.turn(&self.location).await;
        self.connection.as_mut().ok_or(StoreError::Closed)
    }

    async fn sound_connection(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        if self.is_unsound {
            self.make_sound().await;
        }
        if self.connection.is_none() {
            // The error may come to a log, which is not told of folders.
            self.open(false).await.map_err(OpenError::without_folder)?;
        }
        self.is_unsound = true;
        self.connection.as_mut().ok_or(StoreError::Closed)
    }

    async fn written<T>(&mut self, result: Result<T, sqlx::Error>) -> Result<T, StoreError> {
        self.turn = None;
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.wrote();
        }
        self.checked(result).await
    }

    async fn checked<T>(&mut self, result: Result<T, sqlx::Error>) -> Result<T, StoreError> {
        if result.is_err() {
            self.make_sound().await;
        }
        self.is_unsound = false;
        result.map_err(store_error)
    }

    /// Closes a database whose file is not in its place any more: SQLite would go on with it, and others with what is there. The
    /// next call opens that.
    pub(super) async fn notice_loss(&mut self) {
        let Some(look) = self.watch.next_look(self.connection.is_some()) else {
            return;
        };
        let (location, sizes) = (Arc::clone(&self.location), self.file_sizes());
        let look = move || {
            location.measure(&sizes);
            look.finds_them_at(&location)
        };
        if apart(look).await {
            return;
        }
        self.watch.lost(&self.location);
        // Of a folder that was moved, it would be a lock that nobody else has.
        self.turn = None;
        self.process_lock.forget_file();
        self.end_checkpoints().await;
        if let Some(connection) = self.connection.take() {
            // Nothing of it is needed any more.
            let _ = connection.close().await;
        }
        self.is_unsound = false;
    }

    /// How often the database was opened.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// The writer's connection is closed last, which takes all that is in the WAL into the database, and deletes the WAL.
    pub(super) async fn close(&mut self) -> Result<(), StoreError> {
        self.end_checkpoints().await;
        match self.connection.take() {
            Some(connection) => connection.close().await.map_err(store_error),
            None => Ok(()),
        }
    }

    async fn end_checkpoints(&mut self) {
        if let Some(checkpoints) = self.checkpoints.take() {
            checkpoints.end().await;
        }
    }

    #[cfg(test)]
    pub(super) fn connection_mut(&mut self) -> &mut SqliteConnection {
        self.connection.as_mut().expect("the database is open")
    }

    /// How many checkpoints another connection has made; `None` when there is none.
    #[cfg(test)]
    pub(super) fn checkpoints_made(&self) -> Option<usize> {
        self.checkpoints.as_ref().map(Checkpoints::made)
    }

    /// Whether it writes without the process lock, while a thread waits for it.
    #[cfg(test)]
    pub(super) fn has_passed_by(&self) -> bool {
        self.process_lock.is_passed_by()
    }

    /// Has the other connection fail whenever it is opened.
    #[cfg(test)]
    pub(super) async fn break_checkpoints(&mut self, elsewhere: Location) {
        self.end_checkpoints().await;
        self.checkpoints = Some(Checkpoints::begin(Arc::new(elsewhere), None, 0));
    }

    /// Leaves the database as a call that panicked does.
    #[cfg(test)]
    pub(super) fn mark_unsound(&mut self) {
        self.is_unsound = true;
    }

    /// Ends a transaction that may be open. A connection of which that is not certain is dropped, which ends it too.
    async fn make_sound(&mut self) {
        if let Some(connection) = &mut self.connection {
            let is_ended = match sqlx::query("ROLLBACK").execute(connection).await {
                Ok(_) => true,
                Err(error) => error
                    .as_database_error()
                    .is_some_and(|error| error.message().contains("no transaction is active")),
            };
            if !is_ended {
                self.connection = None;
            }
        }
        self.turn = None;
        self.is_unsound = false;
    }

    async fn open(&mut self, with_probe: bool) -> Result<(), OpenError> {
        self.notice_loss().await;
        self.end_checkpoints().await;
        let (location, before) = (Arc::clone(&self.location), self.watch.files());
        let prepare = move || {
            location.prepare(before.as_ref())?;
            // Before it is opened: should it be replaced meanwhile, that is noticed later.
            Ok::<_, OpenError>(Files::at(&location))
        };
        let files = apart(prepare).await?;
        let (connection, beside) = self.connect(with_probe).await?;
        let (location, sizes) = (Arc::clone(&self.location), self.file_sizes());
        let look = move || {
            location.measure(&sizes);
            // The file of an application may have been made just now.
            let files = files.or_else(|| Files::at(&location));
            files.map(|files| files.with_wal_at(&location))
        };
        let files = apart(look).await;
        self.connection = Some(connection);
        self.checkpoints = beside.map(|long| {
            let location = Arc::clone(&self.location);
            Checkpoints::begin(location, files, long)
        });
        self.watch.opened(files);
        self.generation += 1;
        if self.generation > 1 && matches!(*self.location, Location::Memory) {
            tracing::event!(
                name: "tollgate.memory_lost",
                target: TARGET,
                Level::WARN,
                "the rate limits in memory were lost with their connection, and begin anew"
            );
        }
        Ok(())
    }

    /// Opens it, and says of how many pages a WAL is long, when another connection is to checkpoint.
    async fn connect(
        &mut self,
        with_probe: bool,
    ) -> Result<(SqliteConnection, Option<i64>), OpenError> {
        let is_first = self.generation == 0;
        let mut connection = settings::of(&self.location, is_first)
            .connect()
            .await
            .map_err(|error| open_error(&self.location, error))?;
        let version = version::check(&mut connection)
            .await
            .map_err(|error| open_error(&self.location, error))??;
        let mut beside = None;
        if let Location::Application { path, .. } = Arc::make_mut(&mut self.location) {
            *path = application::file_of(&mut connection).await?;
        } else {
            let is_file = matches!(*self.location, Location::File { .. });
            let are_beside = is_file && !version.has_wal_reset_fault();
            let wal_bytes = settings::wal_bytes(are_beside);
            let pages = settings::set_wal(&mut connection, wal_bytes)
                .await
                .map_err(|error| open_error(&self.location, error))?;
            self.restarts.set_usual(wal_bytes);
            beside = are_beside.then_some(pages);
        }
        schema::ensure(&mut connection)
            .await
            .map_err(|error| open_error(&self.location, error))??;
        if with_probe {
            sqlx::query(PROBE)
                .fetch_all(&mut connection)
                .await
                .map_err(|error| open_error(&self.location, error))?;
        }
        if is_first && self.location.is_applications() {
            application::warn_without_wal(&mut connection, &self.location.name())
                .await
                .map_err(|error| open_error(&self.location, error))?;
        }
        Ok((connection, beside))
    }
}
