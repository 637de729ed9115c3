//! How often the server of a store was asked, by its own count.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use sqlx::{Connection, PgConnection};

/// Where the count is asked for, past the limiter.
const PATH: &str = "/trips";
/// The commands of Redis that decide; what a script calls by itself is counted apart.
const DECIDING: [&str; 3] = ["evalsha", "eval", "incr"];

/// A server that counts.
#[derive(Clone)]
pub(crate) enum Trips {
    /// Its URL.
    Redis(String),
    Postgres(String),
}

impl Trips {
    async fn count(&self) -> Result<u64> {
        match self {
            Self::Redis(url) => of_redis(url).await,
            Self::Postgres(url) => of_postgres(url).await,
        }
    }
}

async fn of_redis(url: &str) -> Result<u64> {
    let client = redis::Client::open(url)?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(&mut connection)
        .await?;
    let calls = stats.lines().filter_map(|line| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let count = rest.split(',').next()?.parse::<u64>().ok()?;
        DECIDING.contains(&command).then_some(count)
    });
    Ok(calls.sum())
}

/// Each call is a transaction. A session that is busy or has been for a second tells what it has done.
async fn of_postgres(url: &str) -> Result<u64> {
    let mut connection = PgConnection::connect(url).await?;
    let sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    let count: i64 = sqlx::query_scalar(sql).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(u64::try_from(count)?)
}

/// Tells the count beside what is limited.
pub(crate) fn with_trips(router: Router, trips: Trips) -> Router {
    let count = get(async move || {
        let count = trips.count().await;
        count.map_or_else(
            |error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            |count| (StatusCode::OK, count.to_string()),
        )
    });
    router.route(PATH, count)
}

/// The count that a server process tells.
pub(crate) fn of(address: SocketAddr) -> Result<u64> {
    let mut stream = TcpStream::connect(address)?;
    let request = format!("GET {PATH} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    let (_, body) = response.split_once("\r\n\r\n").context("no body")?;
    body.parse()
        .with_context(|| format!("no count of round trips: {response}"))
}
