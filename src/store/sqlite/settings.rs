//! Every setting of a connection, with its reason.

use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Row, SqliteConnection};

use super::{Location, application};
use crate::store::engine::QUEUE_LENGTH;

/// Below the deadline of a charge, so that it is the database that gives up first and says why.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_millis(200);
/// Ten times the hot pages of 10,000 keys; the default of 2 MB holds some 10,000 rows.
pub(super) const CACHE_KIB: &str = "-16384";
/// A charge changes some 80 bytes, and the WAL gets the whole page that they are in. With pages of 1 KB a batch of 64
/// charges on 10,000 keys takes three quarters of the time that it takes with SQLite's 4 KB, on a million keys two thirds.
const PAGE_BYTES: u32 = 1_024;
/// SQLite moves a WAL of this size into the database; with pages of 4 KB it is SQLite's own default.
const CHECKPOINT_BYTES: i64 = 4 << 20;
/// A WAL that a long read made large is cut back to that size.
const JOURNAL_SIZE_LIMIT: &str = "4194304";

/// All settings but the one that depends on the file: `set_checkpoints`.
pub(super) fn of(location: &Location, is_first: bool) -> SqliteConnectOptions {
    let options = match location {
        Location::Memory => SqliteConnectOptions::new()
            .in_memory(true)
            .page_size(PAGE_BYTES),
        Location::File { options, .. } => SqliteConnectOptions::clone(options)
            // Readers never wait for the writer, and a commit is an append. It stays with the file.
            .journal_mode(SqliteJournalMode::Wal)
            // No fsync for each commit: a killed process loses nothing, a power failure the last moments.
            .synchronous(SqliteSynchronous::Normal)
            .pragma("journal_size_limit", JOURNAL_SIZE_LIMIT)
            .pragma("cache_size", CACHE_KIB)
            // Of a new database; a file that is there keeps its own.
            .page_size(PAGE_BYTES)
            // The file was created by `Location::prepare`, with a mode that SQLite would not give it.
            .create_if_missing(false),
        Location::Application { options, .. } => application::settings(options, is_first),
    };
    options
        .busy_timeout(BUSY_TIMEOUT)
        // With fewer than a batch has rows, SQLite's thread waits for ours while it holds the write lock.
        .row_buffer_size(4 * QUEUE_LENGTH + 1)
        // Two per batch, and logging costs more than some of them.
        .disable_statement_logging()
        .thread_name(|_| "tollgate-sqlite".to_owned())
}

/// A file that is there has its own size of pages, so the number of them is told last.
pub(super) async fn set_checkpoints(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let rows = sqlx::query("PRAGMA page_size")
        .fetch_all(&mut *connection)
        .await?;
    let page_bytes: i64 = match rows.first() {
        Some(row) => row.try_get(0)?,
        None => return Err(sqlx::Error::RowNotFound),
    };
    let pages = CHECKPOINT_BYTES / page_bytes.max(512);
    // A pragma takes no parameters; a number can't be anything else than one.
    let pragma = AssertSqlSafe(format!("PRAGMA wal_autocheckpoint = {pages}"));
    sqlx::query(pragma).fetch_all(connection).await.map(drop)
}
