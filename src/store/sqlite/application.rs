//! What is different where the database is the application's own.

use std::path::{Path, PathBuf};

use sqlx::sqlite::{SqliteConnectOptions, SqliteLockingMode};
use sqlx::{Row, SqliteConnection};
use tracing::Level;

use super::OpenError;
use super::files::apart;
use super::settings::{BUSY_TIMEOUT, CACHE_KIB};
use crate::store::TARGET;

/// The application's options, changed only in what no other connection notices.
pub(super) fn settings(options: &SqliteConnectOptions, is_first: bool) -> SqliteConnectOptions {
    let options = options
        .clone()
        // A cache that is shared with connections of the application knows no busy timeout, and an exclusive lock would
        // shut them out.
        .shared_cache(false)
        .locking_mode(SqliteLockingMode::Normal)
        .pragma("cache_size", CACHE_KIB)
        // It may have been set so, and would be set last.
        .pragma("busy_timeout", BUSY_TIMEOUT.as_millis().to_string());
    if is_first {
        options
    } else {
        // It was there before: the application puts it back, or makes another one.
        options.create_if_missing(false)
    }
}

/// The file that a connection of the application's has opened; an error when there is none.
pub(super) async fn file_of(connection: &mut SqliteConnection) -> Result<PathBuf, OpenError> {
    let rows = sqlx::query("SELECT file FROM pragma_database_list WHERE name = 'main'")
        .fetch_all(connection)
        .await
        .map_err(OpenError::failed)?;
    let file = rows.first().map(|row| row.try_get::<Option<String>, _>(0));
    let file = file.transpose().map_err(OpenError::failed)?.flatten();
    let there = apart(move || file.map(PathBuf::from).filter(|path| path.exists()));
    there.await.ok_or(OpenError::PoolInMemory)
}

/// Why SQLite has found no file that it could open.
pub(super) fn why_not_opened(path: PathBuf) -> OpenError {
    let has_folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.is_dir(),
        _ => Path::new(".").is_dir(),
    };
    if path.is_dir() {
        OpenError::IsFolder(path)
    } else if !has_folder {
        OpenError::NoFolder(path)
    } else if path.exists() {
        OpenError::NotWritable(path)
    } else {
        OpenError::NotFound(path)
    }
}

/// Warns of a database whose readers and writers wait for each other, which only the application may change.
pub(super) async fn warn_without_wal(
    connection: &mut SqliteConnection,
    store: &str,
) -> Result<(), sqlx::Error> {
    let rows = sqlx::query("PRAGMA journal_mode")
        .fetch_all(connection)
        .await?;
    let journal_mode: String = match rows.first() {
        Some(row) => row.try_get(0)?,
        None => return Err(sqlx::Error::RowNotFound),
    };
    if journal_mode != "wal" {
        tracing::event!(
            name: "tollgate.wal_missing",
            target: TARGET,
            Level::WARN,
            store,
            journal_mode,
            "the application's database is not in WAL mode, so charges wait for each read of it, and reads for charges: set \
             .journal_mode(SqliteJournalMode::Wal) in the options of its pool"
        );
    }
    Ok(())
}
