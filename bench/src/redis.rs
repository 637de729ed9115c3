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
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use crate::keys::Keys;
use crate::trips::Trips;
use crate::{keys, refusal};

const PROGRAM: &str = "redis-server";
/// A server that has not answered by then does not start.
const ATTEMPTS: u32 = 100;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);

/// Starts the server, and ends it when standard input ends: also when whoever started it is killed.
const GUARD: &str = r#""$0" "$@" </dev/null & read -r end; kill $!; wait"#;
/// So many requests are sent at once to fill it.
const PIPELINED: usize = 1_000;
/// What is not measured may take so long; each request has the client's own deadline.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server, and one connection to it that all requests share: it pipelines what they ask.
pub(crate) struct Redis {
    /// Of the one who has started it.
    started: Option<Started>,
    port: u16,
}

struct Started {
    guard: Child,
    process: u32,
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

    /// The one at a port, or a new one that keeps nothing on disk.
    pub(crate) async fn of(port: Option<u16>, folder: &Path) -> Result<Self> {
        if let Some(port) = port {
            let started = None;
            return Ok(Self { started, port });
        }
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let guard = Command::new("sh")
            .args(["-c", GUARD, PROGRAM])
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("redis-server did not start")?;
        let mut started = Started { guard, process: 0 };
        let mut redis = Self {
            started: None,
            port,
        };
        let info = info(&mut redis.connect_patiently().await?).await?;
        let process = value(&info, "process_id").context("a Redis without a process")?;
        started.process = process.parse()?;
        redis.started = Some(started);
        Ok(redis)
    }

    /// The process that it has started.
    pub(crate) fn process(&self) -> Option<u32> {
        Some(self.started.as_ref()?.process)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// How often it was asked for a decision, by its own count.
    pub(crate) fn trips(&self) -> Trips {
        Trips::Redis(self.url())
    }

    /// As anybody connects.
    pub(crate) async fn connect(&self) -> Result<MultiplexedConnection> {
        self.connect_with(&AsyncConnectionConfig::new()).await
    }

    async fn connect_patiently(&self) -> Result<MultiplexedConnection> {
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        self.connect_with(&patient).await
    }

    async fn connect_with(&self, config: &AsyncConnectionConfig) -> Result<MultiplexedConnection> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/", self.port))?;
        for _ in 0..ATTEMPTS {
            let connection = client
                .get_multiplexed_async_connection_with_config(config)
                .await;
            if let Ok(connection) = connection {
                return Ok(connection);
            }
            tokio::time::sleep(BETWEEN_ATTEMPTS).await;
        }
        anyhow::bail!("redis-server does not answer")
    }

    /// Counts one request of each key.
    pub(crate) async fn fill(&self, keys: Keys) -> Result<()> {
        let mut connection = self.connect_patiently().await?;
        for values in keys.values().chunks(PIPELINED) {
            let mut pipeline = redis::pipe();
            for value in values {
                pipeline.cmd("INCR").arg(value).ignore();
            }
            pipeline.exec_async(&mut connection).await?;
        }
        Ok(())
    }

    /// What the server says of itself.
    pub(crate) async fn settings(&self) -> Result<String> {
        let info = info(&mut self.connect_patiently().await?).await?;
        let version = value(&info, "redis_version").unwrap_or("of an unknown version");
        Ok(format!(
            "redis-server {version} on loopback, nothing on disk; its CPU is in that of the server"
        ))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

async fn info(connection: &mut MultiplexedConnection) -> Result<String> {
    let info = redis::cmd("INFO")
        .arg("server")
        .query_async(connection)
        .await?;
    Ok(info)
}

fn value<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
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
        Ok(_) => refusal::answer(limit),
        Err(_) => http::StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
