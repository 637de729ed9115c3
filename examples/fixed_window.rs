//! A fixed window in front of one route, on a SQLite file: 3 requests per 60 seconds for each `X-Client-Key`.
//!
//! `GET /ping` is limited; without the header all callers share the key `127.0.0.1`. `GET /status?key=…` shows where a
//! key stands, and uses nothing. A real service would take the key from something that its clients can't make up.
//!
//! Each allowed request is recorded, which never makes one wait. To read what was:
//! `sqlite3 -readonly -box fixed_window.db 'SELECT * FROM api_call_log ORDER BY at DESC LIMIT 10'`.
//!
//! Environment: `ADDR` (default `127.0.0.1:3000`), `DATABASE_URL` (default `sqlite://fixed_window.db`).

use std::env;
use std::error::Error;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal;
use tollgate::{Decision, Key, Limiter, Problem, RateLimitLayer, Rejection, SqliteStore, key};

const CLIENT_KEY: &str = "x-client-key";
const KEY_WITHOUT_HEADER: &str = "127.0.0.1";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let database =
        env::var("DATABASE_URL").unwrap_or_else(|_| "sqlite://fixed_window.db".to_owned());

    let store = SqliteStore::connect(&database).await?;
    let limit = RateLimitLayer::fixed(3, 60)
        .name("ping")
        .store(&store)
        .audit(&store)
        .key(key::header(CLIENT_KEY).or_value(KEY_WITHOUT_HEADER))
        .problem(Problem::new("/problems/rate-limit-exceeded", "Too Many Requests").detail(detail));

    let app = Router::new()
        .route("/ping", get(ping).route_layer(limit.clone()))
        .route("/status", get(status))
        .with_state(limit.limiter());

    let listener = TcpListener::bind(&address).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}, counting in {database}; try:");
    println!("  curl -i http://{address}/ping -H 'X-Client-Key: alice'");
    println!("  curl -i 'http://{address}/status?key=alice'");
    axum::serve(listener, app)
        .with_graceful_shutdown(stopped())
        .await?;
    store.close().await?;
    Ok(())
}

async fn ping() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

#[derive(serde::Deserialize)]
struct StatusQuery {
    #[serde(default)]
    key: String,
}

async fn status(
    State(limiter): State<Limiter>,
    Query(query): Query<StatusQuery>,
) -> Result<Response, Rejection> {
    if query.key.trim().is_empty() {
        return Ok(unprocessable("the query parameter key is missing or empty"));
    }
    let decision = limiter.peek(&Key::header(CLIENT_KEY, &query.key)).await?;
    let policy = decision.policy();
    let status = Status {
        count: decision.attempts(),
        limit: policy.limit(),
        remaining: decision.remaining(),
        window_seconds: policy.window().as_secs(),
        reset_after: decision.reset_after().as_millis().div_ceil(1_000),
        key: query.key,
    };
    Ok(Json(status).into_response())
}

/// Where a key stands. `count` is of all attempts, the refused ones included.
#[derive(serde::Serialize)]
struct Status {
    key: String,
    count: u64,
    limit: u32,
    remaining: u32,
    window_seconds: u64,
    reset_after: u128,
}

/// The key may be shown here: it is what the caller sent.
fn detail(denied: &Decision) -> String {
    let policy = denied.policy();
    let key = denied.key().parts().find_map(|part| part.value());
    format!(
        "Rate limit of {} requests per {}s exceeded for key '{}'.",
        policy.limit(),
        policy.window().as_secs(),
        key.as_deref().unwrap_or("(long)"),
    )
}

fn unprocessable(detail: &str) -> Response {
    let status = StatusCode::UNPROCESSABLE_ENTITY;
    let problem = json!({
        "type": "about:blank",
        "title": "Unprocessable Content",
        "status": status.as_u16(),
        "detail": detail,
    });
    let content_type = [("content-type", "application/problem+json")];
    (status, content_type, problem.to_string()).into_response()
}

/// Ctrl-C, or what a service manager sends.
async fn stopped() {
    let interrupted = signal::ctrl_c();
    #[cfg(unix)]
    {
        let terminated = async {
            match signal::unix::signal(signal::unix::SignalKind::terminate()) {
                Ok(mut signal) => signal.recv().await,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupted => (),
            _ = terminated => (),
        }
    }
    #[cfg(not(unix))]
    let _ = interrupted.await;
}
