//! What `docs/migrating.md` says of others: its code is compiled, and what they do is seen.
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod axum_governor;
mod before;
mod tower_governor;
mod tower_limit;

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, Response};
use axum::routing::get;
use tollgate::{ManualClock, MemoryStore, RateLimitLayer, Timestamp};
use tower::ServiceExt;

/// `GET /` from this address, and with these headers.
fn request(peer: &str, headers: &[(&'static str, &str)]) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    let peer: SocketAddr = peer.parse().unwrap();
    request.extensions_mut().insert(ConnectInfo(peer));
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    request
}

async fn send(app: &Router, request: Request<Body>) -> Response<Body> {
    app.clone().oneshot(request).await.unwrap()
}

/// The statuses of these requests, one after another.
async fn statuses(app: &Router, requests: impl IntoIterator<Item = Request<Body>>) -> Vec<u16> {
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(send(app, request).await.status().as_u16());
    }
    statuses
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

/// A router behind a limit of ours, whose clock stands still.
fn behind(limit: RateLimitLayer) -> Router {
    let clock = ManualClock::new(Timestamp::from_unix_millis(0));
    hello().layer(limit.store(&MemoryStore::new().clock(&clock)))
}

#[test]
fn the_page_shows_the_code_that_is_compiled_here() {
    let page = include_str!("../../../docs/migrating.md");
    let blocks = page.split("```rs\n").skip(1);
    let shown: Vec<_> = blocks
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    let compiled = [
        include_str!("before/tower_governor.rs"),
        include_str!("before/axum_governor.rs"),
        include_str!("before/tower_limit.rs"),
    ];
    assert_eq!(shown, compiled);
}
