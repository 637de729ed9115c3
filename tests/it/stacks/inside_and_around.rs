//! Each layer of tower-http, outside of a limit and inside.

use std::time::Duration;

use axum::Router;
use axum::routing::get as on_get;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use tollgate::RateLimitLayer;
use tower::{Layer, ServiceBuilder};
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

use crate::support::{from, hello, login_in_memory, send, serve, statuses};

const MINUTE: Duration = Duration::from_mins(1);

fn cors() -> CorsLayer {
    CorsLayer::new()
        .allow_origin(HeaderValue::from_static("https://app.example"))
        .expose_headers([
            HeaderName::from_static("ratelimit"),
            HeaderName::from_static("ratelimit-policy"),
            http::header::RETRY_AFTER,
        ])
}

fn timeout() -> TimeoutLayer {
    TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, MINUTE)
}

fn limit() -> RateLimitLayer {
    login_in_memory(1, 60)
}

fn from_app(client: &str) -> Request<axum::body::Body> {
    let mut request = from(client);
    let origin = HeaderValue::from_static("https://app.example");
    request.headers_mut().insert("origin", origin);
    request
}

#[tokio::test]
async fn in_a_service_builder() {
    let service = ServiceBuilder::new().layer(limit()).service(hello());
    assert_eq!(statuses(&service, "alice", 2).await, [200, 429]);
}

#[tokio::test]
async fn in_a_service_builder_on_a_router() {
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new_for_http())
        .layer(limit())
        .layer(timeout());
    let router = Router::new()
        .route("/", on_get(|| async { "hello" }))
        .layer(stack);
    assert_eq!(statuses(&router, "alice", 2).await, [200, 429]);
}

#[tokio::test]
async fn inside_cors_a_refusal_has_the_cors_headers_and_the_fields_are_exposed() {
    let service = ServiceBuilder::new()
        .layer(cors())
        .layer(limit())
        .service(hello());
    for status in [200, 429] {
        let answer = send(&service, from_app("alice")).await;
        assert_eq!(answer.status, status);
        assert_eq!(
            answer.only("access-control-allow-origin"),
            "https://app.example"
        );
        assert_eq!(
            answer.only("access-control-expose-headers"),
            "ratelimit,ratelimit-policy,retry-after"
        );
    }
}

#[tokio::test]
async fn inside_cors_a_preflight_is_free() {
    let service = ServiceBuilder::new()
        .layer(cors())
        .layer(limit())
        .service(hello());
    for _ in 0..3 {
        let mut preflight = from_app("alice");
        *preflight.method_mut() = Method::OPTIONS;
        let method = HeaderValue::from_static("GET");
        preflight
            .headers_mut()
            .insert("access-control-request-method", method);
        assert_eq!(send(&service, preflight).await.status, 200);
    }
    assert_eq!(send(&service, from_app("alice")).await.status, 200);
}

#[tokio::test]
async fn around_cors_it_limits_too() {
    let service = ServiceBuilder::new()
        .layer(limit())
        .layer(cors())
        .service(hello());
    assert_eq!(statuses(&service, "alice", 2).await, [200, 429]);
}

#[tokio::test]
async fn inside_and_around_tracing() {
    let inside = ServiceBuilder::new()
        .layer(TraceLayer::new_for_http())
        .layer(limit())
        .service(hello());
    assert_eq!(statuses(&inside, "alice", 2).await, [200, 429]);
    let around = ServiceBuilder::new()
        .layer(limit())
        .layer(TraceLayer::new_for_http())
        .service(hello());
    assert_eq!(statuses(&around, "alice", 2).await, [200, 429]);
}

#[tokio::test]
async fn inside_and_around_a_timeout() {
    let inside = ServiceBuilder::new()
        .layer(timeout())
        .layer(limit())
        .service(hello());
    assert_eq!(statuses(&inside, "alice", 2).await, [200, 429]);
    let around = limit().layer(timeout().layer(login_in_memory(9, 60).layer(hello())));
    assert_eq!(statuses(&around, "alice", 2).await, [200, 429]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_times_out_inside_keeps_its_charge_and_has_the_fields() {
    let router = Router::new()
        .route(
            "/",
            on_get(|| async { std::future::pending::<&str>().await }),
        )
        .layer(timeout())
        .layer(limit());
    let answer = send(&router, from("alice")).await;
    assert_eq!(
        (answer.status, answer.only("ratelimit")),
        (504, "\"login\";r=0;t=60")
    );
    assert_eq!(send(&router, from("alice")).await.status, 429);
}

#[tokio::test]
async fn inside_and_around_compression() {
    let inside = ServiceBuilder::new()
        .layer(CompressionLayer::new())
        .layer(limit())
        .service(hello());
    assert_eq!(statuses(&inside, "alice", 2).await, [200, 429]);
    let around = ServiceBuilder::new()
        .layer(limit())
        .layer(CompressionLayer::new())
        .service(hello());
    assert_eq!(statuses(&around, "alice", 2).await, [200, 429]);
}

#[tokio::test]
async fn a_compressed_refusal_is_still_a_problem_document() {
    let service = ServiceBuilder::new()
        .layer(CompressionLayer::new())
        .layer(limit())
        .service(hello());
    send(&service, from("alice")).await;
    let mut request = from("alice");
    let gzip = HeaderValue::from_static("gzip");
    request.headers_mut().insert("accept-encoding", gzip);
    let answer = send(&service, request).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.only("content-encoding"), "gzip");
    assert_eq!(answer.only("content-type"), "application/problem+json");
    assert_eq!(answer.header("content-length"), "");
    assert_eq!(&answer.body[..2], b"\x1f\x8b");
    assert_eq!(answer.only("retry-after"), "60");
}

#[tokio::test]
async fn all_of_them_around_and_inside_on_a_real_server() {
    let router = Router::new()
        .route("/", on_get(|| async { "hello" }))
        .layer(cors())
        .layer(timeout())
        .layer(CompressionLayer::new())
        .layer(TraceLayer::new_for_http())
        .layer(limit())
        .layer(timeout())
        .layer(CompressionLayer::new())
        .layer(TraceLayer::new_for_http())
        .layer(cors());
    let url = format!("http://{}/", serve(router).await);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = || client.get(&url).header("x-client-key", "alice").send();
    let answer = get().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.text().await.unwrap(), "hello");
    let answer = get().await.unwrap();
    assert_eq!(answer.status(), 429);
    let problem: serde_json::Value = answer.json().await.unwrap();
    assert_eq!(problem["status"], 429);
}
