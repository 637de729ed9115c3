//! A file with many recorded requests: a month, 10,000 keys, five routes.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tollgate::SqliteStore;

pub(super) const KEYS: i64 = 10_000;
/// 2026-11-01, counted from 1970.
const FIRST_DAY: i64 = 20_758;
const DAYS: i64 = 30;

/// `$1` requests, spread over the days in the order of their time. The factors are odd, so that every key meets every route.
const CALLS: &str = "
INSERT INTO api_calls (at, id, policy, key, method, route, status, units)
WITH RECURSIVE n (n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM n WHERE n < $1 - 1)
SELECT
    $2 * 86400000 + n * ($3 * 86400000 / $1), n, 'api',
    'user:' || (n * 7919 % $4), 'GET', '/v1/resource-' || (n * 31 / 7 % 5) || '/{id}', 200, 1 + n % 3
FROM n";
const SUMS: &str = "
INSERT INTO api_usage (day, key, policy, route, requests, units)
SELECT at / 86400000, key, policy, route, count(*), sum(units) FROM api_calls GROUP BY 1, 2, 3, 4";

/// Makes it, and says what it is.
pub(super) async fn make(database: &Path, calls: u64) -> Result<String> {
    SqliteStore::open(database).await?.close().await?;
    let mut connection = SqliteConnectOptions::new()
        .filename(database)
        .pragma("cache_size", "-262144")
        .connect()
        .await?;
    let start = Instant::now();
    eprintln!("recording {calls} requests");
    sqlx::query(CALLS)
        .bind(i64::try_from(calls)?)
        .bind(FIRST_DAY)
        .bind(DAYS)
        .bind(KEYS)
        .execute(&mut connection)
        .await?;
    let sums = sqlx::query(SUMS).execute(&mut connection).await?;
    connection.close().await?;
    let megabytes = std::fs::metadata(database)?.len() / 1_000_000;
    Ok(format!(
        "A file of {calls} requests in {DAYS} days, of {KEYS} keys and five routes: {} sums, {megabytes} MB, made in {:.0} s",
        sums.rows_affected(),
        start.elapsed().as_secs_f64()
    ))
}
