//! What one would write without this crate: one upsert for each decision, on a pool.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Router, http};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Row, SqlitePool};

use crate::contestant::LIMIT;
use crate::keys;

/// The sizes of a pool that are tried; the best one is measured.
pub(crate) const POOL_SIZES: [u32; 4] = [1, 2, 4, 8];

/// As this crate's table, without what it keeps beside the count.
const CREATE: &str = "
CREATE TABLE IF NOT EXISTS windows (
    policy TEXT NOT NULL,
    key TEXT NOT NULL,
    window_start INTEGER NOT NULL,
    used INTEGER NOT NULL,
    PRIMARY KEY (policy, key, window_start)
) STRICT, WITHOUT ROWID
";

const UPSERT: &str = "
INSERT INTO windows (policy, key, window_start, used) VALUES ('bench', $1, 0, 1)
ON CONFLICT (policy, key, window_start) DO UPDATE SET used = used + 1
RETURNING used
";

const PRAGMAS: &str = "
PRAGMA journal_mode; PRAGMA synchronous; PRAGMA busy_timeout; PRAGMA cache_size; PRAGMA wal_autocheckpoint
";
const PRAGMA_NAMES: [&str; 5] = [
    "journal_mode",
    "synchronous",
    "busy_timeout",
    "cache_size",
    "wal_autocheckpoint",
];

/// A pool, with the table.
#[derive(Clone)]
pub(crate) struct Upsert {
    pool: SqlitePool,
}

impl Upsert {
    pub(crate) async fn open(database: &Path, pool_size: u32) -> Result<Self> {
        let options = SqliteConnectOptions::new()
            .filename(database)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(Duration::from_secs(5))
            .pragma("cache_size", "-16384")
            .disable_statement_logging();
        // Before the pool: several connections at once can't switch a new file to WAL.
        let mut first = options.connect().await?;
        sqlx::query(CREATE).execute(&mut first).await?;
        first.close().await?;
        let pool = SqlitePoolOptions::new()
            .min_connections(pool_size)
            .max_connections(pool_size)
            // A ping for each use of a connection would cost as much as the upsert.
            .test_before_acquire(false)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(options)
            .await?;
        Ok(Self { pool })
    }

    /// Counts one, and says whether that was within the limit.
    pub(crate) async fn is_allowed(&self, key: &str) -> Result<bool> {
        // `fetch_one` would leave the statement unfinished, and the WAL without checkpoints.
        let rows = sqlx::query(UPSERT).bind(key).fetch_all(&self.pool).await?;
        let row = rows.first().context("an upsert returned no row")?;
        Ok(row.try_get::<i64, _>(0)? <= i64::from(LIMIT))
    }

    /// The settings that hold, as SQLite tells them.
    pub(crate) async fn settings(&self) -> Result<String> {
        let mut settings = format!("pool of {}", self.pool.options().get_max_connections());
        let rows = sqlx::query(PRAGMAS).fetch_all(&self.pool).await?;
        for (name, row) in PRAGMA_NAMES.iter().zip(&rows) {
            let value: String = row.try_get_unchecked(0)?;
            write!(settings, ", {name} {value}")?;
        }
        Ok(settings)
    }
}

/// Puts the upsert in front of the router.
pub(crate) fn limit(router: Router, upsert: Upsert) -> Router {
    router.layer(middleware::from_fn_with_state(upsert, charge))
}

async fn charge(State(upsert): State<Upsert>, request: Request, next: Next) -> Response {
    let value = request.headers().get(keys::HEADER);
    let Some(key) = value.and_then(|value| value.to_str().ok()) else {
        return http::StatusCode::BAD_REQUEST.into_response();
    };
    match upsert.is_allowed(key).await {
        Ok(true) => next.run(request).await,
        Ok(false) => http::StatusCode::TOO_MANY_REQUESTS.into_response(),
        Err(_) => http::StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
