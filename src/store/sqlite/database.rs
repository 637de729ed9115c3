//! The connection: how it is opened, and kept sound after an error.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{ConnectOptions, Connection, Row, Sqlite, SqliteConnection};
use tokio::time::sleep_until;
use tracing::Level;

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
/// SQLite begins a WAL anew only at a moment without readers. When there was none until here, the writer makes one: it
/// waits for those that read, while new ones read the database itself.
const LONG_WAL_BYTES: u64 = 5 << 20;
/// Each of the two tries waits so long for readers, while nobody on the file can write; after a failure longer, but never
/// as long as others wait for their write. The first try leaves readers on the newest state, which the second one needs:
/// that goes through at once when they are short.
const RESTARTS: [&str; 2] = [
    "PRAGMA busy_timeout = 20; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA wal_checkpoint(TRUNCATE)",
    "PRAGMA busy_timeout = 40; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA wal_checkpoint(TRUNCATE)",
];
/// Changes nothing, and fails where nothing can be changed: such a file would fail at the first charge instead. To begin a
/// transaction is not enough, SQLite begins one to read then.
const PROBE: &str = "DELETE FROM rate_limit_schema WHERE id = 0";
/// What it was: `settings::BUSY_TIMEOUT`.
const AFTER_RESTART: &str = "PRAGMA busy_timeout = 200";
/// After a restart that failed, since a reader does not end: twice as long each time, up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

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
    restart_at: Instant,
    restart_pause: Duration,
    /// Which of `RESTARTS` is next.
    restart_patience: usize,
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
            restart_at: clock::monotonic(),
            restart_pause: SHORTEST_PAUSE,
            restart_patience: 0,
        }
    }

    /// How long its files were when they were last looked at.
    pub(super) fn file_sizes(&self) -> Arc<FileSizes> {
        Arc::clone(&self.file_sizes)
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

    /// Runs a query to its end, and all statements in it: only then SQLite reports an error at commit, and checkpoints.
    pub(super) async fn fetch_all(
        &mut self,
        query: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let connection = self.sound_connection().await?;
        let result = query.fetch_all(connection).await;
        self.checked(result).await
    }

    /// Runs a query to its end, and says how many rows it changed.
    pub(super) async fn execute(
        &mut self,
        query: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<u64, StoreError> {
        let connection = self.sound_connection().await?;
        let result = query.execute(connection).await;
        Ok(self.checked(result).await?.rows_affected())
    }

    /// Runs a query that begins a transaction and leaves it open: with the next call that is not `within` or `end` it is
    /// rolled back, also when what comes in between panics.
    pub(super) async fn begin(
        &mut self,
        query: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let connection = self.sound_connection().await?;
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
        self.checked(result).await
    }

    /// Ends the transaction that `begin` has left open, without a trace of it.
    pub(super) async fn roll_back(&mut self) {
        self.make_sound().await;
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

    async fn checked<T>(&mut self, result: Result<T, sqlx::Error>) -> Result<T, StoreError> {
        if result.is_err() {
            self.make_sound().await;
        }
        self.is_unsound = false;
        result.map_err(store_error)
    }

    /// Ends a transaction that a panic has left open, and begins the WAL anew when it has become long, unless it is the
    /// application's: to wait for readers would hold up its writers, and a tool that copies the WAL may forbid it.
    pub(super) async fn restart_long_wal(&mut self) -> Result<(), StoreError> {
        if self.is_unsound {
            // Until then others on the file could not write.
            self.make_sound().await;
        }
        if self.location.is_applications() {
            return Ok(());
        }
        let now = clock::monotonic();
        if now < self.restart_at || self.connection.is_none() {
            return Ok(());
        }
        if matches!(*self.location, Location::Memory) {
            return Ok(());
        }
        let location = Arc::clone(&self.location);
        if apart(move || location.wal_bytes()).await <= LONG_WAL_BYTES {
            return Ok(());
        }
        self.restart_at = now + self.restart_pause;
        let restart = RESTARTS[self.restart_patience];
        let restarted = self.fetch_all(sqlx::query(restart)).await;
        self.fetch_all(sqlx::query(AFTER_RESTART)).await?;
        let is_done = restarted?
            .last()
            .is_some_and(|row| matches!(row.try_get(0), Ok(0_i64)));
        if is_done {
            self.restart_at = now;
            self.restart_pause = SHORTEST_PAUSE;
        } else {
            self.restart_pause = LONGEST_PAUSE.min(2 * self.restart_pause);
            self.restart_patience = (RESTARTS.len() - 1).min(self.restart_patience + 1);
        }
        Ok(())
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

    pub(super) async fn close(&mut self) -> Result<(), StoreError> {
        match self.connection.take() {
            Some(connection) => connection.close().await.map_err(store_error),
            None => Ok(()),
        }
    }

    #[cfg(test)]
    pub(super) fn connection_mut(&mut self) -> &mut SqliteConnection {
        self.connection.as_mut().expect("the database is open")
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
        self.is_unsound = false;
    }

    async fn open(&mut self, with_probe: bool) -> Result<(), OpenError> {
        self.notice_loss().await;
        let (location, before) = (Arc::clone(&self.location), self.watch.files());
        let prepare = move || {
            location.prepare(before.as_ref())?;
            // Before it is opened: should it be replaced meanwhile, that is noticed later.
            Ok::<_, OpenError>(Files::at(&location))
        };
        let files = apart(prepare).await?;
        let connection = self.connect(with_probe).await?;
        let (location, sizes) = (Arc::clone(&self.location), self.file_sizes());
        let look = move || {
            location.measure(&sizes);
            // The file of an application may have been made just now.
            let files = files.or_else(|| Files::at(&location));
            files.map(|files| files.with_wal_at(&location))
        };
        let files = apart(look).await;
        self.connection = Some(connection);
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

    async fn connect(&mut self, with_probe: bool) -> Result<SqliteConnection, OpenError> {
        let is_first = self.generation == 0;
        let mut connection = settings::of(&self.location, is_first)
            .connect()
            .await
            .map_err(|error| self.open_error(error))?;
        version::check(&mut connection)
            .await
            .map_err(|error| self.open_error(error))??;
        if let Location::Application { path, .. } = Arc::make_mut(&mut self.location) {
            *path = application::file_of(&mut connection).await?;
        } else {
            settings::set_checkpoints(&mut connection)
                .await
                .map_err(|error| self.open_error(error))?;
        }
        schema::ensure(&mut connection)
            .await
            .map_err(|error| self.open_error(error))??;
        if with_probe {
            sqlx::query(PROBE)
                .fetch_all(&mut connection)
                .await
                .map_err(|error| self.open_error(error))?;
        }
        if is_first && self.location.is_applications() {
            application::warn_without_wal(&mut connection, &self.location.name())
                .await
                .map_err(|error| self.open_error(error))?;
        }
        Ok(connection)
    }

    fn open_error(&self, error: sqlx::Error) -> OpenError {
        let path = self.location.path();
        if extended_code(&error) == Some(IOERR_SHMSIZE) {
            return OpenError::DiskFull(path);
        }
        match code(&error) {
            Some(BUSY | LOCKED) => OpenError::Locked(path),
            Some(FULL) => OpenError::DiskFull(path),
            Some(CORRUPT) => OpenError::Damaged(path),
            Some(CANTOPEN) if self.location.is_applications() => application::why_not_opened(path),
            Some(PERM | READONLY | CANTOPEN) => OpenError::NotWritable(path),
            Some(NOTADB) => OpenError::NotADatabase(path),
            _ => OpenError::failed(error),
        }
    }
}

const PERM: u32 = 3;
const BUSY: u32 = 5;
const LOCKED: u32 = 6;
const READONLY: u32 = 8;
const CORRUPT: u32 = 11;
const FULL: u32 = 13;
const CANTOPEN: u32 = 14;
const NOTADB: u32 = 26;
/// The file `-shm` can't be made as long as it must be: there is no room.
const IOERR_SHMSIZE: u32 = 4874;

/// SQLite's result code, without its extension.
fn code(error: &sqlx::Error) -> Option<u32> {
    Some(extended_code(error)? & 0xff)
}

fn extended_code(error: &sqlx::Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}

fn store_error(error: sqlx::Error) -> StoreError {
    StoreError::Database {
        is_transient: matches!(code(&error), Some(BUSY | LOCKED | FULL)),
        source: Arc::new(error),
    }
}

#[cfg(test)]
mod tests {
    use super::settings::BUSY_TIMEOUT;
    use super::*;

    #[test]
    fn the_busy_timeout_is_put_back_after_a_restart() {
        let told = AFTER_RESTART.rsplit(' ').next().unwrap().parse();
        assert_eq!(told, Ok(BUSY_TIMEOUT.as_millis()));
    }
}
