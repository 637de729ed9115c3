//! What many use today: one `INCR` for each request, in a Redis that the benchmark starts.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Router, http};
use redis::aio::MultiplexedConnection;

use crate::keys;

const PROGRAM: &str = "redis-server";
/// A server that has not answered by then does not start.
const ATTEMPTS: u32 = 100;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);

/// A server of its own, which ends with it, and one connection to it that all requests share: it pipelines what they ask.
pub(crate) struct Redis {
    process: Child,
    port: u16,
}

impl Redis {
    /// Whether there is such a program.
    pub(crate) fn is_there() -> bool {
        let version = Command::new(PROGRAM)
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        version.is_ok_and(|status| status.success())
    }

    /// Starts one that keeps nothing on disk.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let process = Command::new(PROGRAM)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .current_dir(folder)
            .stdout(Stdio::null())
            .spawn()
            .context("redis-server did not start")?;
        Ok(Self { process, port })
    }

    pub(crate) fn process(&self) -> u32 {
        self.process.id()
    }

    pub(crate) async fn connect(&self) -> Result<MultiplexedConnection> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/", self.port))?;
        for _ in 0..ATTEMPTS {
            if let Ok(connection) = client.get_multiplexed_async_connection().await {
                return Ok(connection);
            }
            tokio::time::sleep(BETWEEN_ATTEMPTS).await;
        }
        anyhow::bail!("redis-server does not answer")
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the server says of itself.
pub(crate) async fn settings(mut connection: MultiplexedConnection) -> Result<String> {
    let info: String = redis::cmd("INFO")
        .arg("server")
        .query_async(&mut connection)
        .await?;
    let version = info
        .lines()
        .find_map(|line| line.strip_prefix("redis_version:"));
    let version = version.unwrap_or("of an unknown version");
    Ok(format!(
        "redis-server {version} on loopback, nothing on disk, one multiplexed connection; its CPU is in that of the server"
    ))
}

/// Puts an `INCR` in front of the router. The window is that of the run, so it needs no expiry.
pub(crate) fn limit(router: Router, connection: MultiplexedConnection, limit: u32) -> Router {
    router.layer(middleware::from_fn_with_state((connection, limit), charge))
}

async fn charge(
    State((mut connection, limit)): State<(MultiplexedConnection, u32)>,
    request: Request,
    next: Next,
) -> Response {
    let value = request.headers().get(keys::HEADER);
    let Some(key) = value.and_then(|value| value.to_str().ok()) else {
        return http::StatusCode::BAD_REQUEST.into_response();
    };
    let used = redis::cmd("INCR")
        .arg(key)
        .query_async::<i64>(&mut connection)
        .await;
    match used {
        Ok(used) if used <= i64::from(limit) => next.run(request).await,
        Ok(_) => http::StatusCode::TOO_MANY_REQUESTS.into_response(),
        Err(_) => http::StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
