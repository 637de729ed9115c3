//! A pool of connections to SQLite, set up as well as this crate's one.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Row, SqlitePool};

use crate::report::median;

/// The sizes of a pool that are tried; the best one is measured.
pub(crate) const SIZES: [u32; 4] = [1, 2, 4, 8];
/// How often each is tried, in turns: one try is often noise.
pub(crate) const TRIES: usize = 3;

const PRAGMAS: &str = "
PRAGMA journal_mode; PRAGMA synchronous; PRAGMA busy_timeout; PRAGMA cache_size; PRAGMA page_size;
PRAGMA wal_autocheckpoint
";
const PRAGMA_NAMES: [&str; 6] = [
    "journal_mode",
    "synchronous",
    "busy_timeout",
    "cache_size",
    "page_size",
    "wal_autocheckpoint",
];

/// Opens so many connections to a file, after a first one has created what is in it.
pub(crate) async fn open(database: &Path, size: u32, create: &'static str) -> Result<SqlitePool> {
    let options = SqliteConnectOptions::new()
        .filename(database)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(Duration::from_secs(5))
        .pragma("cache_size", "-16384")
        // Each commit writes whole pages, and a WAL of 4 MB is moved into the file: as this crate has it.
        .page_size(1_024)
        .pragma("wal_autocheckpoint", "4000")
        .disable_statement_logging();
    // Before the pool: several connections at once can't switch a new file to WAL.
    let mut first = options.connect().await?;
    sqlx::raw_sql(create).execute(&mut first).await?;
    first.close().await?;
    let pool = SqlitePoolOptions::new()
        .min_connections(size)
        .max_connections(size)
        // A ping for each use of a connection would cost as much as a statement.
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_with(options)
        .await?;
    Ok(pool)
}

/// The size whose tries have the highest median, and what was tried.
pub(crate) fn best(rates: &[Vec<f64>; SIZES.len()]) -> (u32, String) {
    let mut best = (SIZES[0], 0.0);
    let mut tried = Vec::new();
    for (size, rates) in SIZES.into_iter().zip(rates) {
        let rate = median(rates);
        tried.push(format!("{size}: {rate:.0}"));
        if rate > best.1 {
            best = (size, rate);
        }
    }
    let tried = tried.join(" ");
    (best.0, format!("{tried} (medians of {TRIES} tries)"))
}

/// The size of a file's pages. Asked through SQLite: to open and close its file elsewhere would drop its locks.
pub(crate) async fn page_size(database: &Path) -> Result<i64> {
    let mut connection = SqliteConnectOptions::new()
        .filename(database)
        .connect()
        .await?;
    let row = sqlx::query("PRAGMA page_size")
        .fetch_all(&mut connection)
        .await?;
    connection.close().await?;
    row.first().map_or(Ok(0), |row| Ok(row.try_get(0)?))
}

/// The settings that hold, as SQLite tells them.
pub(crate) async fn settings(pool: &SqlitePool) -> Result<String> {
    let mut settings = format!("pool of {}", pool.options().get_max_connections());
    let rows = sqlx::query(PRAGMAS).fetch_all(pool).await?;
    for (name, row) in PRAGMA_NAMES.iter().zip(&rows) {
        let value: String = row.try_get_unchecked(0)?;
        write!(settings, ", {name} {value}")?;
    }
    Ok(settings)
}
