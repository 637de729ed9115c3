//! Counts what SQLite does, on every connection that this process opens while it counts: those of a library as well that
//! shows nobody its connection.
//!
//! SQLite calls an automatic extension for each new connection. The one here asks for a call at the end of each statement,
//! and that call reads what the statement has done. All of it is in SQLite's public interface; the library is as it is.
#![expect(
    unsafe_code,
    reason = "SQLite's own counters are read through its C interface"
)]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use libsqlite3_sys as ffi;

static STATEMENTS: AtomicU64 = AtomicU64::new(0);
static STEPS: AtomicU64 = AtomicU64::new(0);
static PAGES_READ: AtomicU64 = AtomicU64::new(0);
static PAGES_WRITTEN: AtomicU64 = AtomicU64::new(0);

/// What SQLite has done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Statements that were run to their end.
    #[cfg_attr(not(test), expect(dead_code, reason = "tells what was watched"))]
    pub(crate) statements: u64,
    /// Instructions of the statements' programs. A search for a row is one, however deep the tree.
    pub(crate) steps: u64,
    /// Pages that were asked for, in the cache or not: a search asks for one on each level of the tree.
    pub(crate) pages_read: u64,
    /// Pages that were written into the WAL.
    pub(crate) pages_written: u64,
}

/// Counts until it is dropped, on connections that are opened meanwhile. There is one at a time.
pub(crate) struct Counting(());

impl Counting {
    pub(crate) fn begin() -> Result<Self> {
        // SAFETY: the function has the signature of an extension's entry point, and lives as long as the process.
        let code = unsafe { ffi::sqlite3_auto_extension(Some(watch)) };
        ensure!(
            code == ffi::SQLITE_OK,
            "SQLite takes no extension: error {code}"
        );
        Ok(Self(()))
    }

    /// What was done since this was asked before. A statement is counted before its last row is handed on.
    #[expect(clippy::unused_self, reason = "it counts while there is one")]
    pub(crate) fn take(&self) -> Work {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::SeqCst);
        Work {
            statements: take(&STATEMENTS),
            steps: take(&STEPS),
            pages_read: take(&PAGES_READ),
            pages_written: take(&PAGES_WRITTEN),
        }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        // SAFETY: it only forgets the function; connections that are open go on calling `count`, which stays valid.
        unsafe { ffi::sqlite3_cancel_auto_extension(Some(watch)) };
    }
}

/// Is called by SQLite for each connection that is opened.
unsafe extern "C" fn watch(
    connection: *mut ffi::sqlite3,
    _message: *mut *mut c_char,
    _routines: *const ffi::sqlite3_api_routines,
) -> c_int {
    // SAFETY: the connection is SQLite's own and alive; the callback needs no context.
    unsafe {
        ffi::sqlite3_trace_v2(
            connection,
            ffi::SQLITE_TRACE_PROFILE,
            Some(count),
            ptr::null_mut(),
        )
    }
}

/// Is called by SQLite at the end of each statement, by the thread that runs it.
unsafe extern "C" fn count(
    event: c_uint,
    _context: *mut c_void,
    statement: *mut c_void,
    _nanos: *mut c_void,
) -> c_int {
    if event == ffi::SQLITE_TRACE_PROFILE {
        let statement = statement.cast::<ffi::sqlite3_stmt>();
        // SAFETY: for this event SQLite hands over the statement that has ended, which is alive during the call, and so is
        // its connection. Reading a counter changes nothing but the counter, which is set to 0.
        let (steps, connection) = unsafe {
            (
                ffi::sqlite3_stmt_status(statement, ffi::SQLITE_STMTSTATUS_VM_STEP, 1),
                ffi::sqlite3_db_handle(statement),
            )
        };
        let of_connection = |counter| {
            let (mut current, mut highest) = (0, 0);
            // SAFETY: as above; both places to write to are on this stack.
            unsafe {
                ffi::sqlite3_db_status(connection, counter, &raw mut current, &raw mut highest, 1)
            };
            current
        };
        let read = [
            ffi::SQLITE_DBSTATUS_CACHE_HIT,
            ffi::SQLITE_DBSTATUS_CACHE_MISS,
        ];
        add(&STATEMENTS, 1);
        add(&STEPS, steps);
        add(&PAGES_READ, read.map(of_connection).into_iter().sum());
        add(
            &PAGES_WRITTEN,
            of_connection(ffi::SQLITE_DBSTATUS_CACHE_WRITE),
        );
    }
    0
}

fn add(counter: &AtomicU64, count: c_int) {
    counter.fetch_add(u64::try_from(count).unwrap_or(0), Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection, SqliteConnection};

    use super::*;

    #[tokio::test]
    async fn a_longer_way_is_more_steps_on_watched_connections_alone() -> Result<()> {
        const WAY: &str =
            "WITH RECURSIVE way(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM way WHERE n < $1)
            SELECT count(*) FROM way";
        async fn walk(connection: &mut SqliteConnection, length: i64) -> Result<()> {
            sqlx::query(WAY).bind(length).fetch_all(connection).await?;
            Ok(())
        }

        let mut unwatched = SqliteConnection::connect("sqlite::memory:").await?;
        let counting = Counting::begin()?;
        let mut watched = SqliteConnection::connect("sqlite::memory:").await?;
        counting.take();

        walk(&mut unwatched, 10).await?;
        assert_eq!(counting.take().statements, 0);
        walk(&mut watched, 10).await?;
        let short = counting.take();
        walk(&mut watched, 1_000).await?;
        let long = counting.take();
        assert_eq!((short.statements, long.statements), (1, 1));
        assert!(long.steps > 50 * short.steps, "{short:?}, {long:?}");
        Ok(())
    }
}
