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
/// The writer moves a WAL of this size into the database; with pages of 4 KB it is SQLite's own default.
const WAL_BYTES: u64 = 4 << 20;
/// The same when another connection has moved most of it by then. Each time the writer waits for the disk, so it is longer.
const WAL_BYTES_BESIDE: u64 = 12 << 20;

/// All settings but those that depend on the file: `set_wal`.
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

/// How long the WAL usually gets: the writer moves it into the database then.
pub(super) fn wal_bytes(others_checkpoint: bool) -> u64 {
    if others_checkpoint {
        WAL_BYTES_BESIDE
    } else {
        WAL_BYTES
    }
}

/// Sets how long the WAL gets, and that one which a long read made longer is cut back to it. Says how many pages that are: a file
/// that is there has its own size of them, so it is set last.
pub(super) async fn set_wal(
    connection: &mut SqliteConnection,
    wal_bytes: u64,
) -> Result<i64, sqlx::Error> {
    let rows = sqlx::query("PRAGMA page_size")
        .fetch_all(&mut *connection)
        .await?;
    let page_bytes: i64 = match rows.first() {
        Some(row) => row.try_get(0)?,
        None => return Err(sqlx::Error::RowNotFound),
    };
    let pages = wal_bytes.cast_signed() / page_bytes.max(512);
    // A pragma takes no parameters; numbers can't be anything else.
    let pragmas = AssertSqlSafe(format!(
        "PRAGMA wal_autocheckpoint = {pages}; PRAGMA journal_size_limit = {wal_bytes}"
    ));
    sqlx::query(pragmas).fetch_all(connection).await?;
    Ok(pages)
}
