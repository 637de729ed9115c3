//! An exact sliding window for each user and endpoint, on a SQLite file: never more than 10 requests in any 60 seconds.
//!
//! | | who | |
//! | --- | --- | --- |
//! | `POST /rate/check` | user | records a request for `{"endpoint": "…"}`, or answers 429 and records nothing |
//! | `GET /rate/status?endpoint=…` | user | shows where the user stands, and uses nothing |
//! | `DELETE /rate/reset/{userId}` | admin | forgets a user's requests; with `?endpoint=…` those for one endpoint |
//!
//! The endpoint is in the body, so no layer can make the key: the handlers ask a [`Limiter`] themselves.
//!
//! `X-User-Id` says who the user is, and nothing here proves it: **a gateway that has authenticated the caller must set
//! it**, and must drop what the caller sent under that name. `X-Admin-Key` must equal the server's `ADMIN_KEY`.
//!
//! Environment: `ADDR` (default `127.0.0.1:3000`), `DATABASE_URL` (default `sqlite://sliding_window.db`), `ADMIN_KEY`
//! (without it, or with an empty one, nobody is admin).

use std::env;
use std::error::Error;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;
use tokio::signal;
use tollgate::{Key, Limiter, Policy, Rejection, SqliteStore};

const MAX_USER_ID_DIGITS: usize = 18;
const MAX_ENDPOINT_CHARS: usize = 128;

/// The status and the detail of a problem document.
struct Problem(StatusCode, &'static str);

const NO_USER: Problem = Problem(
    StatusCode::BAD_REQUEST,
    "X-User-Id must be given once: a positive decimal integer of at most 18 digits",
);
const NO_JSON: Problem = Problem(StatusCode::BAD_REQUEST, "the body must be JSON");
const NO_ENDPOINT: Problem = Problem(
    StatusCode::UNPROCESSABLE_ENTITY,
    "endpoint must be a string of 1 to 128 characters, and not blank",
);
const BAD_QUERY: Problem = Problem(
    StatusCode::UNPROCESSABLE_ENTITY,
    "the query may have one parameter: endpoint, once",
);
const NO_ADMIN: Problem = Problem(StatusCode::FORBIDDEN, "X-Admin-Key must be the admin's key");
const NO_SUCH_USER: Problem = Problem(StatusCode::NOT_FOUND, "no user can have this id");
const NO_SUCH_PATH: Problem = Problem(StatusCode::NOT_FOUND, "there is no such path");
const NO_SUCH_METHOD: Problem = Problem(
    StatusCode::METHOD_NOT_ALLOWED,
    "the path has no such method",
);

#[derive(Clone)]
struct App {
    limiter: Limiter,
    /// Empty: nobody is admin.
    admin_key: Arc<str>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let database =
        env::var("DATABASE_URL").unwrap_or_else(|_| "sqlite://sliding_window.db".to_owned());
    let admin_key = env::var("ADMIN_KEY").unwrap_or_default();
    let has_admin = !admin_key.is_empty();

    let store = SqliteStore::connect(&database).await?;
    let app = App {
        limiter: Limiter::new(Policy::sliding(10, 60).name("rate")).store(&store),
        admin_key: admin_key.into(),
    };
    let app = Router::new()
        .route("/rate/check", post(check))
        .route("/rate/status", get(status))
        .route("/rate/reset/{user_id}", delete(reset))
        .fallback(async || NO_SUCH_PATH)
        .method_not_allowed_fallback(async || NO_SUCH_METHOD)
        .with_state(app);

    let listener = TcpListener::bind(&address).await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("listening on {url}, counting in {database}; try:");
    println!("  curl -i {url}/rate/check -H 'X-User-Id: 7' -d '{{\"endpoint\":\"/search\"}}'");
    println!("  curl -i '{url}/rate/status?endpoint=/search' -H 'X-User-Id: 7'");
    println!("  curl -i -X DELETE {url}/rate/reset/7 -H \"X-Admin-Key: $ADMIN_KEY\"");
    if !has_admin {
        println!("  (ADMIN_KEY is not set, so nobody can reset)");
    }
    axum::serve(listener, app)
        .with_graceful_shutdown(stopped())
        .await?;
    store.close().await?;
    Ok(())
}

/// What is asked for, or by `?` a response that says why not.
type Answer<T> = axum::response::Result<Json<T>>;

#[derive(serde::Serialize)]
struct Checked {
    status: &'static str,
    count: u64,
    limit: u32,
    remaining: u32,
}

/// Takes the body for JSON whatever its content type, since `curl -d` sends that of a form.
async fn check(
    State(app): State<App>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Checked> {
    let user = caller(&headers)?;
    let body = body.map_err(|error| Problem(error.status(), "the body is too long, or cut off"))?;
    let body: Value = serde_json::from_slice(&body).map_err(|_| NO_JSON)?;
    let endpoint = endpoint(body.get("endpoint").and_then(Value::as_str))?;

    let decision = app.limiter.check(&key(user, endpoint)).await;
    let decision = decision.map_err(Rejection::from)?;
    let checked = Checked {
        status: "ok",
        count: decision.used(),
        limit: decision.policy().limit(),
        remaining: decision.remaining(),
    };
    decision.into_result().map_err(Rejection::from)?;
    Ok(Json(checked))
}

#[derive(serde::Serialize)]
struct Status {
    endpoint: String,
    count: u64,
    limit: u32,
    remaining: u32,
    window_seconds: u64,
}

async fn status(
    State(app): State<App>,
    headers: HeaderMap,
    query: Result<Query<Asked>, QueryRejection>,
) -> Answer<Status> {
    let user = caller(&headers)?;
    let Query(asked) = query.map_err(|_| BAD_QUERY)?;
    let endpoint = endpoint(asked.endpoint.as_deref())?;

    let decision = app.limiter.peek(&key(user, endpoint)).await;
    let decision = decision.map_err(Rejection::from)?;
    Ok(Json(Status {
        endpoint: endpoint.to_owned(),
        count: decision.used(),
        limit: decision.policy().limit(),
        remaining: decision.remaining(),
        window_seconds: decision.policy().window().as_secs(),
    }))
}

/// `removed` is how many requests still counted.
#[derive(serde::Serialize)]
struct Reset {
    reset: bool,
    removed: u64,
}

async fn reset(
    State(app): State<App>,
    headers: HeaderMap,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<Asked>, QueryRejection>,
) -> Answer<Reset> {
    // First: who is no admin learns nothing about users.
    admin(&headers, &app.admin_key)?;
    let user = path.ok().and_then(|Path(id)| user_id(id.as_bytes()));
    let user = user.ok_or(NO_SUCH_USER)?;
    let Query(asked) = query.map_err(|_| BAD_QUERY)?;

    let removed = match asked.endpoint {
        Some(one) => app.limiter.reset(&key(user, endpoint(Some(&one))?)).await,
        None => app.limiter.reset_under(&Key::new("user", user)).await,
    };
    let removed = removed.map_err(Rejection::from)?;
    Ok(Json(Reset {
        reset: true,
        removed,
    }))
}

/// The query. Nothing else may be in it, or a misspelt `endpoint` would reset all of a user's.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    endpoint: Option<String>,
}

fn key(user: u64, endpoint: &str) -> Key {
    Key::new("user", user).and("endpoint", endpoint)
}

/// The endpoint as it was sent: nothing is trimmed.
fn endpoint(text: Option<&str>) -> Result<&str, Problem> {
    let text = text.filter(|text| text.chars().count() <= MAX_ENDPOINT_CHARS);
    text.filter(|text| !text.trim().is_empty())
        .ok_or(NO_ENDPOINT)
}

fn caller(headers: &HeaderMap) -> Result<u64, Problem> {
    only(headers, "x-user-id").and_then(user_id).ok_or(NO_USER)
}

/// `007` and `7` are one user, and `+7` is none.
fn user_id(id: &[u8]) -> Option<u64> {
    let is_number = id.len() <= MAX_USER_ID_DIGITS && id.iter().all(u8::is_ascii_digit);
    let digits = str::from_utf8(id).ok().filter(|_| is_number)?;
    digits.parse().ok().filter(|id| *id > 0)
}

/// Without a key nobody is admin, and the comparison's time does not tell how much of a key is right.
fn admin(headers: &HeaderMap, key: &str) -> Result<(), Problem> {
    let given = only(headers, "x-admin-key").unwrap_or_default();
    let is_admin = !key.is_empty() && bool::from(key.as_bytes().ct_eq(given));
    is_admin.then_some(()).ok_or(NO_ADMIN)
}

/// A header that is there once: of two there is no telling which one the gateway set.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then_some(first.as_bytes())
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self(status, detail) = self;
        let problem = json!({
            "type": "about:blank",
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "detail": detail,
        });
        let content_type = [("content-type", "application/problem+json")];
        (status, content_type, problem.to_string()).into_response()
    }
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
