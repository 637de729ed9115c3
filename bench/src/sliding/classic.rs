//! The sliding window as it is commonly written: count the events, then insert one, without a transaction.

use std::path::Path;

use anyhow::{Context, Result};
use sqlx::{Row, SqlitePool};
use tollgate::Timestamp;

use super::WINDOW_SECONDS;
use crate::pool;

/// The index covers what is counted. What has left the window stays here: sweeping it would only add to a decision.
const CREATE: &str = "
CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, key TEXT NOT NULL, at INTEGER NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS events_by_key ON events (key, at);
";
const COUNT: &str = "SELECT COUNT(*) FROM events WHERE key = $1 AND at > $2";
const INSERT: &str = "INSERT INTO events (key, at) VALUES ($1, $2)";

/// A pool, with the table.
#[derive(Clone)]
pub(super) struct Classic {
    pool: SqlitePool,
}

impl Classic {
    pub(super) async fn open(database: &Path, pool_size: u32) -> Result<Self> {
        let pool = pool::open(database, pool_size, CREATE).await?;
        Ok(Self { pool })
    }

    /// Whether there were fewer events than the limit in the window that ends now; then there is one more.
    pub(super) async fn is_allowed(&self, key: &str, limit: u32, now: Timestamp) -> Result<bool> {
        let now = now.unix_millis();
        let window_start = now - i64::try_from(WINDOW_SECONDS)? * 1_000;
        let count = sqlx::query(COUNT).bind(key).bind(window_start);
        let rows = count.fetch_all(&self.pool).await?;
        let row = rows.first().context("a count returned no row")?;
        if row.try_get::<i64, _>(0)? >= i64::from(limit) {
            return Ok(false);
        }
        let insert = sqlx::query(INSERT).bind(key).bind(now);
        insert.execute(&self.pool).await?;
        Ok(true)
    }

    /// The settings that hold, as SQLite tells them.
    pub(super) async fn settings(&self) -> Result<String> {
        pool::settings(&self.pool).await
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }
}
