//! Everything together: an API that knows its callers, limits them by address, by account and by what they ask for, records what they
//! have used, tells its metrics, and lets an operator look and help. One file to begin a service with.
//!
//! ```text
//!  trace                 sees every answer
//!  global                300 a minute for each address, whoever asks; not for /healthz
//!    authentication      401, and `guesses`: who sends more than 10 wrong keys in 15 minutes is shut out for an hour
//!      plan              30 an hour or 100,000 a day for each account; recorded
//!        timeout, body limit
//!          imports       100 kB a minute for each account, on one route
//! ```
//!
//! By address stands outside of the authentication: it is for those who are not known, or not yet. By account stands inside, since
//! nobody knows the account before.
//!
//! | | |
//! | --- | --- |
//! | `GET /hello` | says who asks |
//! | `POST /import` | takes up to 64 kB, a unit of `imports` for each 10 kB |
//! | `GET /me/usage` | what the caller has used today; free of charge |
//! | `GET /healthz` | for load balancers |
//!
//! On a listener of its own, which must not be reached from outside: the admin API (`GET /openapi.json` describes it) behind
//! `X-Admin-Key`, and `GET /metrics` for Prometheus.
//!
//! Environment: `ADMIN_KEY` (required; `openssl rand -hex 32` makes one), `ADDR` (default `127.0.0.1:3000`), `ADMIN_ADDR` (default
//! `127.0.0.1:3001`), `DATABASE_URL` (default `sqlite://service.db`), `TRUSTED_PROXIES` (addresses and networks, separated by blanks;
//! default nobody), `RUST_LOG` (default `info`; `info,tollgate=debug` shows each refusal, in the span of its request).

use std::collections::HashMap;
use std::env::{self, VarError};
use std::error::Error;
use std::fmt::Display;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{interval, timeout};
use tokio::{signal, try_join};
use tollgate::key::{ForwardedHeader, KeySource, TrustedProxies};
use tollgate::{
    Admin, AdminKey, Day, Decisions, Key, Limiter, Policy, RateLimitLayer, Rejection, SqliteStore,
    key,
};
use tower::ServiceBuilder;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::{DefaultMakeSpan, TraceLayer};
use tracing::Level;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

const API_KEY: &str = "x-api-key";
const MOST_BODY_BYTES: u32 = 64_000;
const BYTES_PER_UNIT: u32 = 10_000;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than a request may take. Together with the next it must be shorter than the service manager waits before it kills.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(15);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let address = variable("ADDR", "127.0.0.1:3000", str::parse::<SocketAddr>)?;
    let admin_address = variable("ADMIN_ADDR", "127.0.0.1:3001", str::parse::<SocketAddr>)?;
    let admin_key = variable("ADMIN_KEY", "", |key| AdminKey::new(key))?;
    let database = variable("DATABASE_URL", "sqlite://service.db", str::parse::<String>)?;
    let proxies = variable("TRUSTED_PROXIES", "", |networks| {
        TrustedProxies::try_networks(networks.split_whitespace())
    })?;
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    let filter = variable("RUST_LOG", "", |directives| filter.parse(directives))?;

    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    // Before the store and the layers: what is told without a recorder is lost.
    let metrics = PrometheusBuilder::new().install_recorder()?;
    tollgate::describe_metrics();

    let store = SqliteStore::connect(&database).await;
    let store = store.map_err(|error| format!("DATABASE_URL: {error}"))?;
    let store = store.audit_retention(Duration::from_hours(90 * 24));

    let limits = Limits::new(&store, proxies);
    let admin = Admin::new(admin_key)
        .layer(&limits.global)
        .limiter(&limits.guesses)
        .layer(&limits.plan)
        .layer(&limits.imports)
        .store(&store)
        .into_router()?
        .route("/metrics", get(exposition).with_state(metrics.clone()));
    let app = app(limits, &store).into_make_service_with_connect_info::<SocketAddr>();

    let listener = listen("ADDR", address).await?;
    let admin_listener = listen("ADMIN_ADDR", admin_address).await?;
    let (url, admin_url) = (listener.local_addr()?, admin_listener.local_addr()?);
    println!("listening on http://{url}, counting in {database}");
    println!("admin API and metrics on http://{admin_url}; try:");
    println!("  curl -i http://{url}/hello -H 'X-Api-Key: key-of-alice'");
    println!("  curl -i http://{url}/hello -H 'X-Api-Key: guess'");
    println!("  curl -i http://{url}/import -H 'X-Api-Key: key-of-bob' -d @README.md");
    println!("  curl -i http://{url}/me/usage -H 'X-Api-Key: key-of-alice'");
    println!("  curl -i http://{admin_url}/refused -H \"X-Admin-Key: $ADMIN_KEY\"");
    println!("  curl -i http://{admin_url}/metrics");
    if !admin_url.ip().is_loopback() {
        tracing::warn!("ADMIN_ADDR is no loopback address: nobody outside may reach it");
    }

    tokio::spawn(upkeep(metrics));
    let (running, stopping) = watch::channel(());
    let app = axum::serve(listener, app).with_graceful_shutdown(closed(stopping.clone()));
    let admin = axum::serve(admin_listener, admin).with_graceful_shutdown(closed(stopping));
    let serving = tokio::spawn(async { try_join!(app.into_future(), admin.into_future()) });

    terminated().await;
    tracing::info!("stopping: requests that are under way may finish");
    drop(running);
    match timeout(DRAIN_TIMEOUT, serving).await {
        Ok(served) => drop(served??),
        Err(_) => tracing::warn!("some requests took too long, and are given up"),
    }
    // Last: it writes what was recorded, and gives back what was charged ahead.
    let closed = timeout(CLOSE_TIMEOUT, store.close()).await;
    closed.map_err(|_| "the store did not close in time: what was recorded last may be lost")??;
    Ok(())
}

/// A variable of the environment, read. An error names it.
fn variable<T, E: Display>(
    name: &str,
    default: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, String> {
    let text = match env::var(name) {
        Err(VarError::NotPresent) => Ok(default.to_owned()),
        text => text.map_err(|error| format!("{name}: {error}")),
    };
    parse(&text?).map_err(|error| format!("{name}: {error}"))
}

async fn listen(name: &str, address: SocketAddr) -> Result<TcpListener, String> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| format!("{name}: can't listen on {address}: {error}"))
}

struct Limits {
    by_address: KeySource,
    global: RateLimitLayer,
    guesses: Limiter,
    plan: RateLimitLayer,
    imports: RateLimitLayer,
}

impl Limits {
    fn new(store: &SqliteStore, proxies: TrustedProxies) -> Self {
        let by_address = key::client_ip(ForwardedHeader::x_forwarded_for(), proxies);
        let by_account = key::extension(Account::key);
        let guesses = Policy::sliding(10, 900).name("guesses");
        let guesses = guesses.block_for(Duration::from_hours(1));
        let plans = [
            Policy::hourly(30).name("free"),
            Policy::daily(100_000).name("pro"),
        ];
        Self {
            global: RateLimitLayer::fixed(300, 60)
                .name("global")
                .key(by_address.clone())
                .skip(|head| head.uri.path() == "/healthz")
                .store(store),
            guesses: Limiter::new(guesses).store(store),
            plan: RateLimitLayer::one_of(plans, |head| {
                let account = head.extensions.get::<Account>();
                account.map_or("free", |account| account.plan)
            })
            .key(by_account.clone())
            .cost(|head| u32::from(head.uri.path() != "/me/usage"))
            // What `imports` refuses, or the server fails to do, is not paid for.
            .refund_if(|status| status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error())
            .store(store)
            .audit(store),
            imports: RateLimitLayer::sliding(10, 60)
                .name("imports")
                .key(by_account)
                .cost(size)
                .store(store),
            by_address,
        }
    }
}

/// Units for a body of this size, as the client declares it: no more than that is read. Who declares nothing pays for the most.
fn size(head: &Parts) -> u32 {
    let declared = head.headers.get(CONTENT_LENGTH);
    let declared = declared.and_then(|length| length.to_str().ok()?.parse().ok());
    let bytes = declared.unwrap_or(MOST_BODY_BYTES).min(MOST_BODY_BYTES);
    bytes.div_ceil(BYTES_PER_UNIT).max(1)
}

fn app(limits: Limits, store: &SqliteStore) -> Router {
    let gate = Gate {
        accounts: accounts(),
        by_address: limits.by_address,
        guesses: limits.guesses,
    };
    let known = ServiceBuilder::new()
        .layer(from_fn_with_state(gate, authenticate))
        .layer(limits.plan)
        .layer(TimeoutLayer::with_status_code(
            StatusCode::GATEWAY_TIMEOUT,
            REQUEST_TIMEOUT,
        ))
        .layer(RequestBodyLimitLayer::new(MOST_BODY_BYTES as usize));
    let api = Router::new()
        .route("/hello", get(hello))
        .route("/import", post(import).route_layer(limits.imports))
        .route("/me/usage", get(usage))
        .route_layer(known)
        .with_state(store.clone());
    let trace = TraceLayer::new_for_http();
    Router::new()
        .merge(api)
        .route("/healthz", get(|| async { "ok\n" }))
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "there is no such path") })
        .layer(limits.global)
        .layer(trace.make_span_with(DefaultMakeSpan::new().level(Level::INFO)))
}

/// Whom a request is from.
#[derive(Clone)]
struct Account {
    id: u64,
    /// The name of a policy.
    plan: &'static str,
}

impl Account {
    fn key(&self) -> Key {
        Key::new("account", self.id)
    }
}

/// By the SHA-256 of their keys: how long a look-up takes tells nothing of a key.
type Accounts = HashMap<[u8; 32], Account>;

/// In a real service a table, with the hashes alone. Keys are long and random, so that a plain hash hides them.
fn accounts() -> Arc<Accounts> {
    let account = |key: &str, id, plan| (hash(key.as_bytes()), Account { id, plan });
    let alice = account("key-of-alice", 1, "free");
    let bob = account("key-of-bob", 2, "pro");
    Arc::new(HashMap::from([alice, bob]))
}

fn hash(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

#[derive(Clone)]
struct Gate {
    accounts: Arc<Accounts>,
    by_address: KeySource,
    guesses: Limiter,
}

/// Lets in who sends a key that is known, with the account that it belongs to.
///
/// A wrong key uses a unit of `guesses`, a right one only looks. A layer with `refund_if` would have each request hold a unit until it
/// is answered: of many good ones at once some would be refused, and those that clients give up would count as guesses.
async fn authenticate(
    State(gate): State<Gate>,
    request: Request,
    next: Next,
) -> Result<Response, Rejection> {
    let (mut head, body) = request.into_parts();
    let Some(key) = head.headers.get(API_KEY) else {
        return Ok(unauthorized());
    };
    let address = gate.by_address.extract(&head)?;
    let Some(account) = gate.accounts.get(&hash(key.as_bytes())) else {
        gate.guesses.check(&address).await?.into_result()?;
        return Ok(unauthorized());
    };
    // A look passes always. Where nothing is left, or the address is blocked, `peek` says for how long.
    if gate.guesses.check_n(&address, 0).await?.remaining() == 0 {
        gate.guesses.peek(&address).await?.into_result()?;
    }
    head.extensions.insert(account.clone());
    Ok(next.run(Request::from_parts(head, body)).await)
}

fn unauthorized() -> Response {
    let answer = problem(
        StatusCode::UNAUTHORIZED,
        "send the key of an account in X-Api-Key",
    );
    ([(WWW_AUTHENTICATE, "X-Api-Key")], answer).into_response()
}

async fn hello(Extension(account): Extension<Account>) -> String {
    format!("hello, account {}\n", account.id)
}

async fn import(body: Bytes) -> String {
    format!("imported {} bytes\n", body.len())
}

async fn usage(
    State(store): State<SqliteStore>,
    Extension(account): Extension<Account>,
    Extension(decisions): Extension<Decisions>,
) -> axum::response::Result<impl IntoResponse> {
    // The day on which the limits outside have let this request pass. What is left is told by their fields.
    let decision = decisions.iter().next();
    let today = Day::of(
        decision
            .ok_or(StatusCode::INTERNAL_SERVER_ERROR)?
            .decided_at(),
    );
    let routes = store.usage(today).key(&account.key()).by_route().await;
    let routes = routes.map_err(Rejection::from)?.into_iter();
    let usage = json!({
        "account": account.id,
        "day": today.to_string(),
        "routes": routes
            .map(|(route, used)| json!({"route": route, "requests": used.requests(), "units": used.units()}))
            .collect::<Value>(),
    });
    Ok(([(CACHE_CONTROL, "no-store")], Json(usage)))
}

fn problem(status: StatusCode, detail: &str) -> Response {
    let problem = json!({
        "type": "about:blank",
        "title": status.canonical_reason(),
        "status": status.as_u16(),
        "detail": detail,
    });
    let content_type = [(CONTENT_TYPE, "application/problem+json")];
    (status, content_type, problem.to_string()).into_response()
}

async fn exposition(State(metrics): State<PrometheusHandle>) -> impl IntoResponse {
    let content_type = [(CONTENT_TYPE, "text/plain; version=0.0.4")];
    (content_type, metrics.render())
}

/// Takes in what histograms have collected: without it, they grow until the next scrape.
async fn upkeep(metrics: PrometheusHandle) {
    let mut ticks = interval(Duration::from_secs(5));
    loop {
        ticks.tick().await;
        metrics.run_upkeep();
    }
}

async fn closed(mut stopping: watch::Receiver<()>) {
    // Nothing is ever sent: it ends when the sender is dropped.
    let _ = stopping.changed().await;
}

/// Ctrl-C, or what a service manager sends.
async fn terminated() {
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
