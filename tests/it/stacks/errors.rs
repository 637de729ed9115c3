//! Layers that refuse too: body limits, load shedding, limits of concurrency.

use std::net::SocketAddr;

use axum::Router;
use axum::error_handling::HandleErrorLayer;
use axum::routing::{get as on_get, post};
use http::StatusCode;
use reqwest::RequestBuilder;
use tollgate::RateLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::{BoxError, ServiceBuilder};
use tower_http::limit::RequestBodyLimitLayer;

use super::{answer, client, get, statuses};
use crate::support::{CLIENT, login_in_memory, serve};

fn limit() -> RateLimitLayer {
    login_in_memory(1, 60)
}

/// More than a body limit of 4 bytes takes.
fn upload(server: SocketAddr) -> RequestBuilder {
    let request = client().post(format!("http://{server}/"));
    request.header(CLIENT, "alice").body("hello")
}

async fn overloaded(_: BoxError) -> StatusCode {
    StatusCode::SERVICE_UNAVAILABLE
}

#[tokio::test]
async fn a_body_that_is_too_large_is_charged_when_its_limit_stands_inside() {
    let router = || Router::new().route("/", post(|body: String| async { body }));
    let bodies = || RequestBodyLimitLayer::new(4);
    let server = serve(router().layer(bodies()).layer(limit())).await;
    assert_eq!(statuses(|| upload(server), 2).await, [413, 429]);
    let server = serve(router().layer(limit()).layer(bodies())).await;
    assert_eq!(statuses(|| upload(server), 3).await, [413; 3]);
}

#[tokio::test]
async fn what_is_shed_inside_is_charged_and_can_be_given_back() {
    // Without a permit nothing is ever ready.
    let stack = |limit: RateLimitLayer| {
        ServiceBuilder::new()
            .layer(limit)
            .layer(HandleErrorLayer::new(overloaded))
            .layer(LoadShedLayer::new())
            .concurrency_limit(0)
    };
    let router = || Router::new().route("/", on_get(|| async { "hello" }));
    let server = serve(router().layer(stack(limit()))).await;
    let shed = answer(get(server)).await;
    assert_eq!(shed.status(), 503);
    assert_eq!(shed.headers()["ratelimit"], "\"login\";r=0;t=60");
    assert_eq!(answer(get(server)).await.status(), 429);

    let giving_back = limit().refund_if(|status| status == StatusCode::SERVICE_UNAVAILABLE);
    let server = serve(router().layer(stack(giving_back))).await;
    assert_eq!(statuses(|| get(server), 3).await, [503; 3]);
}

#[tokio::test]
async fn what_is_shed_outside_is_not_charged() {
    let limit = limit();
    let limiter = limit.limiter();
    let stack = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(overloaded))
        .layer(LoadShedLayer::new())
        .concurrency_limit(0)
        .layer(limit);
    let router = Router::new().route("/", on_get(|| async { "hello" }));
    let server = serve(router.layer(stack)).await;
    assert_eq!(statuses(|| get(server), 3).await, [503; 3]);
    let key = tollgate::Key::header(CLIENT, "alice");
    assert_eq!(limiter.peek(&key).await.unwrap().used(), 0);
}

#[tokio::test]
async fn an_error_passes_through_a_limit_to_a_handler_outside_and_keeps_its_charge() {
    let stack = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(overloaded))
        .layer(limit())
        .layer(LoadShedLayer::new())
        .concurrency_limit(0);
    let router = Router::new().route("/", on_get(|| async { "hello" }));
    let server = serve(router.layer(stack)).await;
    assert_eq!(statuses(|| get(server), 2).await, [503, 429]);
}
