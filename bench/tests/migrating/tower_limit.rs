//! tower's own limits.

use std::net::SocketAddr;
use std::time::Duration;

use axum::error_handling::HandleErrorLayer;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{BoxError, Router};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tower::ServiceBuilder;

use crate::{before, hello, request, send, statuses};

const PEER: &str = "203.0.113.9:1";
const MINUTE: Duration = Duration::from_mins(1);

async fn failed(_: BoxError) -> StatusCode {
    StatusCode::INTERNAL_SERVER_ERROR
}

/// One request in a minute.
fn one_a_minute(router: Router) -> Router {
    let limit = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(failed))
        .buffer(1_024)
        .rate_limit(1, MINUTE);
    router.layer(limit)
}

/// Puts the layers on now, as a server does; a router that is called as it is does so for each request.
fn built(router: Router) -> Router {
    router.with_state(())
}

/// How much of tokio's time two requests take, each on a connection of its own.
async fn time_of_two(server: SocketAddr) -> Duration {
    let start = Instant::now();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn the_sixth_request_of_a_second_waits_and_is_answered() {
    let app = built(before::tower_limit::app());
    let start = Instant::now();
    let answers = statuses(&app, (0..5).map(|_| request(PEER, &[]))).await;
    assert_eq!(answers, [200; 5]);
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(send(&app, request(PEER, &[])).await.status(), 200);
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn who_calls_is_no_matter() {
    let app = built(one_a_minute(hello()));
    let start = Instant::now();
    send(&app, request("192.0.2.1:1", &[])).await;
    send(&app, request("192.0.2.2:1", &[])).await;
    assert!(start.elapsed() >= MINUTE);
}

#[tokio::test(start_paused = true)]
async fn each_route_of_a_router_has_a_limit_of_its_own() {
    let app = hello().route("/other", get(|| async { "hello" }));
    let app = built(one_a_minute(app));
    let start = Instant::now();
    send(&app, request(PEER, &[])).await;
    let mut other = request(PEER, &[]);
    *other.uri_mut() = "/other".parse().unwrap();
    assert_eq!(send(&app, other).await.status(), 200);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_router_that_is_served_as_it_is_has_a_limit_for_each_connection() {
    for (is_made, is_delayed) in [(false, false), (true, true)] {
        let app = one_a_minute(hello());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            if is_made {
                axum::serve(listener, app.into_make_service()).await
            } else {
                axum::serve(listener, app).await
            }
        });
        let time = time_of_two(address).await;
        assert_eq!(time >= MINUTE, is_delayed, "{is_made}: {time:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_concurrency_does_not_count_requests_in_time() {
    let app = built(hello().layer(ServiceBuilder::new().concurrency_limit(1)));
    let answers = statuses(&app, (0..100).map(|_| request(PEER, &[]))).await;
    assert_eq!(answers, [200; 100]);
}
