//! Quotas for each user and resource, by the hour, the day and the month, set at run time and kept in a SQLite file.
//!
//! | | who | |
//! | --- | --- | --- |
//! | `PUT /quotas/{user}/{resource}` | admin | sets a quota: `{"limit": 500, "period": "daily"}`; without a limit the default holds again |
//! | `GET /quotas/{user}/{resource}` | the user, or admin | shows the quotas, and what of them is used; uses nothing |
//! | `POST /quotas/{user}/{resource}/consume` | the user | uses `{"amount": 3}` of all three quotas, or answers 429 and uses nothing |
//! | `DELETE /quotas/{user}/{resource}` | admin | forgets what was used; the quotas stay |
//!
//! Three policies are one limiter, so that a request uses its amount of all quotas or of none. What an admin sets is a limit of one
//! key under one of them: [`Limiter::set_limit`].
//!
//! `X-User-Id` says who the user is, and nothing here proves it: **a gateway that has authenticated the caller must set
//! it**, and must drop what the caller sent under that name. `X-Admin-Key` must equal the server's `ADMIN_KEY`.
//!
//! Environment: `ADDR` (default `127.0.0.1:3000`), `DATABASE_URL` (default `sqlite://quotas.db`), `ADMIN_KEY` (without it, or with an
//! empty one, nobody is admin).

use std::env;
use std::error::Error;
use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;
use tokio::signal;
use tollgate::{Decision, Key, Limiter, Policy, Rejection, SqliteStore};

const MAX_USER_ID_DIGITS: usize = 18;
const MAX_RESOURCE_CHARS: usize = 64;

/// The status and the detail of a problem document.
struct Problem(StatusCode, &'static str);

const NO_USER: Problem = Problem(
    StatusCode::BAD_REQUEST,
    "X-User-Id must be given once: a positive decimal integer of at most 18 digits",
);
const NOT_YOURS: Problem = Problem(
    StatusCode::FORBIDDEN,
    "this is another user's quota: X-User-Id must be that user, or X-Admin-Key the admin's key",
);
const NO_ADMIN: Problem = Problem(StatusCode::FORBIDDEN, "X-Admin-Key must be the admin's key");
const NO_SUCH_USER: Problem = Problem(StatusCode::NOT_FOUND, "no user can have this id");
const NO_SUCH_PATH: Problem = Problem(StatusCode::NOT_FOUND, "there is no such path");
const NO_SUCH_METHOD: Problem = Problem(
    StatusCode::METHOD_NOT_ALLOWED,
    "the path has no such method",
);
const NO_RESOURCE: Problem = Problem(
    StatusCode::UNPROCESSABLE_ENTITY,
    "a resource is named with 1 to 64 characters, and not blank",
);
const NO_QUOTA: Problem = Problem(
    StatusCode::UNPROCESSABLE_ENTITY,
    r#"a quota is {"limit": 0 to 4294967295, "period": "hourly", "daily" or "monthly"}, sent as JSON; a null limit is the default"#,
);
const NO_AMOUNT: Problem = Problem(
    StatusCode::UNPROCESSABLE_ENTITY,
    r#"what is consumed is {"amount": 1 to 4294967295}, sent as JSON"#,
);

#[derive(Clone)]
struct App {
    quotas: Limiter,
    /// Empty: nobody is admin.
    admin_key: Arc<str>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let database = env::var("DATABASE_URL").unwrap_or_else(|_| "sqlite://quotas.db".to_owned());
    let admin_key = env::var("ADMIN_KEY").unwrap_or_default();
    let has_admin = !admin_key.is_empty();

    let store = SqliteStore::connect(&database).await?;
    // Who was given no quota has these.
    let defaults = [
        Policy::hourly(100).name("hourly"),
        Policy::daily(1_000).name("daily"),
        Policy::monthly(10_000).name("monthly"),
    ];
    let app = App {
        quotas: Limiter::new(defaults).store(&store),
        admin_key: admin_key.into(),
    };
    let app = Router::new()
        .route(
            "/quotas/{user}/{resource}",
            get(read).put(set).delete(reset),
        )
        .route("/quotas/{user}/{resource}/consume", post(consume))
        .fallback(async || NO_SUCH_PATH)
        .method_not_allowed_fallback(async || NO_SUCH_METHOD)
        .with_state(app);

    let listener = TcpListener::bind(&address).await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("listening on {url}, counting in {database}; try:");
    let url = format!("{url}/quotas/7/exports");
    println!("  curl -i --json '{{\"amount\":3}}' {url}/consume -H 'X-User-Id: 7'");
    println!("  curl -i {url} -H 'X-User-Id: 7'");
    println!(
        "  curl -i -X PUT --json '{{\"limit\":5,\"period\":\"daily\"}}' {url} -H \"X-Admin-Key: $ADMIN_KEY\""
    );
    if !has_admin {
        println!("  (ADMIN_KEY is not set, so nobody can set quotas)");
    }
    axum::serve(listener, app)
        .with_graceful_shutdown(stopped())
        .await?;
    store.close().await?;
    Ok(())
}

/// What is asked for, or by `?` a response that says why not.
type Answer<T> = axum::response::Result<Json<T>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewQuota {
    limit: Option<u32>,
    period: Period,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Period {
    Hourly,
    Daily,
    Monthly,
}

impl Period {
    fn policy(self) -> &'static str {
        match self {
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Monthly => "monthly",
        }
    }
}

async fn set(
    caller: Caller,
    State(app): State<App>,
    path: Result<Path<(String, String)>, PathRejection>,
    body: Result<Json<NewQuota>, JsonRejection>,
) -> Answer<Quotas> {
    // First: who is no admin learns nothing about users.
    caller.admin()?;
    let (user, key) = key(path)?;
    let Json(quota) = body.map_err(|_| NO_QUOTA)?;
    let policy = quota.period.policy();
    match quota.limit {
        Some(limit) => app.quotas.set_limit(policy, &key, limit).await,
        None => app.quotas.remove_limit(policy, &key).await.map(drop),
    }
    .map_err(Rejection::from)?;
    quotas(&app, user, &key).await
}

async fn read(
    caller: Caller,
    State(app): State<App>,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Answer<Quotas> {
    let (user, key) = caller.own_or_admin(path)?;
    quotas(&app, user, &key).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Amount {
    amount: u32,
}

async fn consume(
    caller: Caller,
    State(app): State<App>,
    path: Result<Path<(String, String)>, PathRejection>,
    body: Result<Json<Amount>, JsonRejection>,
) -> Answer<Quotas> {
    let (user, key) = caller.own(path)?;
    let Json(Amount { amount }) = body.map_err(|_| NO_AMOUNT)?;
    if amount == 0 {
        Err(NO_AMOUNT)?;
    }
    let decision = app.quotas.check_n(&key, amount).await;
    let decision = decision.map_err(Rejection::from)?;
    let quotas = Quotas::of(user, &decision);
    decision.into_result().map_err(Rejection::from)?;
    Ok(Json(quotas))
}

async fn reset(
    caller: Caller,
    State(app): State<App>,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Answer<Quotas> {
    caller.admin()?;
    let (user, key) = key(path)?;
    app.quotas.reset(&key).await.map_err(Rejection::from)?;
    quotas(&app, user, &key).await
}

/// How a user stands with a resource.
#[derive(Serialize)]
struct Quotas {
    user: u64,
    quotas: Vec<Quota>,
}

#[derive(Serialize)]
struct Quota {
    period: String,
    limit: u32,
    is_default: bool,
    used: u64,
    remaining: u32,
    reset_after_seconds: u128,
}

impl Quotas {
    fn of(user: u64, decision: &Decision) -> Self {
        let quotas = decision.verdicts().map(|verdict| Quota {
            period: verdict.policy().as_name().to_owned(),
            limit: verdict.policy().limit(),
            is_default: verdict.stored_limit().is_none(),
            used: verdict.used(),
            remaining: verdict.remaining(),
            reset_after_seconds: verdict.reset_after().as_millis().div_ceil(1_000),
        });
        Self {
            user,
            quotas: quotas.collect(),
        }
    }
}

async fn quotas(app: &App, user: u64, key: &Key) -> Answer<Quotas> {
    let decision = app.quotas.peek(key).await.map_err(Rejection::from)?;
    Ok(Json(Quotas::of(user, &decision)))
}

/// The user and the key that a path is about.
fn key(path: Result<Path<(String, String)>, PathRejection>) -> Result<(u64, Key), Problem> {
    let Path((user, resource)) = path.map_err(|_| NO_SUCH_PATH)?;
    let user = user_id(user.as_bytes()).ok_or(NO_SUCH_USER)?;
    let is_long = resource.chars().count() > MAX_RESOURCE_CHARS;
    if is_long || resource.trim().is_empty() {
        return Err(NO_RESOURCE);
    }
    Ok((user, Key::new("user", user).and("resource", resource)))
}

/// Who asks.
struct Caller {
    user: Option<u64>,
    is_admin: bool,
}

impl FromRequestParts<App> for Caller {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Self::Rejection> {
        let given = only(&parts.headers, "x-admin-key").unwrap_or_default();
        // Without a key nobody is admin, and the comparison's time does not tell how much of a key is right.
        let is_right = bool::from(app.admin_key.as_bytes().ct_eq(given));
        Ok(Self {
            user: only(&parts.headers, "x-user-id").and_then(user_id),
            is_admin: is_right && !app.admin_key.is_empty(),
        })
    }
}

impl Caller {
    fn admin(&self) -> Result<(), Problem> {
        self.is_admin.then_some(()).ok_or(NO_ADMIN)
    }

    fn own(
        &self,
        path: Result<Path<(String, String)>, PathRejection>,
    ) -> Result<(u64, Key), Problem> {
        let caller = self.user.ok_or(NO_USER)?;
        let (user, key) = key(path)?;
        if user == caller {
            Ok((user, key))
        } else {
            Err(NOT_YOURS)
        }
    }

    fn own_or_admin(
        &self,
        path: Result<Path<(String, String)>, PathRejection>,
    ) -> Result<(u64, Key), Problem> {
        if self.is_admin {
            key(path)
        } else {
            self.own(path)
        }
    }
}

/// `007` and `7` are one user, and `+7` is none.
fn user_id(id: &[u8]) -> Option<u64> {
    let is_number = id.len() <= MAX_USER_ID_DIGITS && id.iter().all(u8::is_ascii_digit);
    let digits = str::from_utf8(id).ok().filter(|_| is_number)?;
    digits.parse().ok().filter(|id| *id > 0)
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
