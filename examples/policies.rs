//! Several policies in one decision, on a SQLite file: a request that one of them refuses uses nothing of the others.
//!
//! `GET /search` has a burst and a quota: for each customer 3 requests in any 5 seconds, and 10 a day. The customer is
//! who the `X-Api-Key` belongs to: `acme-key` or `globex-key`.
//!
//! `POST /login` counts by address *and* by account: in any minute 5 attempts from one address, whatever the accounts,
//! and 3 on one account, wherever they come from. The account is that of `X-Account`: a client that makes up others
//! finds fresh counters there, but not at its address.
//!
//! Environment: `ADDR` (default `127.0.0.1:3000`), `DATABASE_URL` (default `sqlite://policies.db`).

use std::env;
use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::signal;
use tollgate::{Key, Policy, RateLimitLayer, SqliteStore, key};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let database = env::var("DATABASE_URL").unwrap_or_else(|_| "sqlite://policies.db".to_owned());

    let store = SqliteStore::connect(&database).await?;
    let by_customer = key::extension(|customer: &Customer| Key::new("customer", customer.0));
    let burst = Policy::sliding(3, 5).name("burst");
    let daily = Policy::daily(10).name("daily");
    // Both by one key.
    let search = RateLimitLayer::new([burst, daily])
        .key(by_customer)
        .store(&store);

    let by_address = Policy::sliding(5, 60).name("address");
    let by_account = Policy::sliding(3, 60).name("account");
    // Each by a key of its own: the first by the layer's, which is the peer's address unless `key` says otherwise.
    let login = RateLimitLayer::new(by_address)
        .and(by_account, key::header("x-account"))
        .store(&store);

    let search = get(|| async { "found\n" }).route_layer(search);
    let app = Router::new()
        // What is added last is outermost: the customer is known when the limit looks.
        .route("/search", search.route_layer(middleware::from_fn(customer)))
        .route("/login", post(|| async { "welcome\n" }).route_layer(login))
        .into_make_service_with_connect_info::<SocketAddr>();

    let listener = TcpListener::bind(&address).await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("listening on {url}, counting in {database}; try each more than once:");
    println!("  curl -i {url}/search -H 'X-Api-Key: acme-key'");
    println!("  curl -i -X POST {url}/login -H 'X-Account: alice'");
    println!("  curl -i -X POST {url}/login -H 'X-Account: bob'");
    axum::serve(listener, app)
        .with_graceful_shutdown(stopped())
        .await?;
    store.close().await?;
    Ok(())
}

#[derive(Clone)]
struct Customer(&'static str);

/// Finds out who asks. A key that nobody has ends here, so made-up keys buy no counters.
async fn customer(mut request: Request, next: Next) -> Response {
    let key = request.headers().get("x-api-key");
    let customer = match key.map(HeaderValue::as_bytes) {
        Some(b"acme-key") => Customer("acme"),
        Some(b"globex-key") => Customer("globex"),
        _ => return (StatusCode::FORBIDDEN, "no such X-Api-Key\n").into_response(),
    };
    request.extensions_mut().insert(customer);
    next.run(request).await
}

/// Ctrl-C, or what a service manager sends.
async fn stopped() {
    #[cfg(unix)]
    if let Ok(mut terminated) = signal::unix::signal(signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = signal::ctrl_c() => (),
            _ = terminated.recv() => (),
        }
        return;
    }
    let _ = signal::ctrl_c().await;
}
