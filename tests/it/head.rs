//! HEAD, byte by byte.

use axum::Router;
use axum::routing::get as on_get;
use http::{Method, Response};
use tollgate::{RateLimitLayer, key};
use tower::{Layer, ServiceBuilder};

use crate::hyper_server::serve_hyper;
use crate::support::{clock, from, get, hello, login_in_memory, memory, on_the_wire, send, serve};

fn refusing() -> RateLimitLayer {
    RateLimitLayer::fixed(0, 60)
        .name("none")
        .key(key::constant("all"))
        .store(&memory(&clock()))
}

/// The head of the answer, its lines sorted and without the date, and what comes after it.
async fn exchange(address: std::net::SocketAddr, method: &str) -> (Vec<String>, String) {
    let request = format!("{method} / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let answer = on_the_wire(address, &request).await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("a whole head");
    let mut lines: Vec<_> = head.lines().map(str::to_ascii_lowercase).collect();
    lines.retain(|line| !line.starts_with("date:"));
    lines[1..].sort();
    (lines, body.to_owned())
}

async fn assert_head_is_get_without_its_body(address: std::net::SocketAddr, status: &str) {
    let (get_head, get_body) = exchange(address, "GET").await;
    let (head_head, head_body) = exchange(address, "HEAD").await;
    assert_eq!(get_head[0], status);
    assert_eq!(head_head, get_head);
    assert!(
        get_head.contains(&format!("content-length: {}", get_body.len())),
        "{get_head:?}"
    );
    assert!(!get_body.is_empty());
    assert_eq!(head_body, "");
}

#[tokio::test]
async fn a_refused_head_on_plain_hyper_is_get_without_its_body() {
    let address = serve_hyper(refusing().layer(hello())).await;
    assert_head_is_get_without_its_body(address, "http/1.1 429 too many requests").await;
}

#[tokio::test]
async fn a_refused_head_of_an_axum_router_is_get_without_its_body() {
    let router = Router::new()
        .route("/", on_get(|| async { "hello" }))
        .layer(refusing());
    let address = serve(router).await;
    assert_head_is_get_without_its_body(address, "http/1.1 429 too many requests").await;
}

#[tokio::test]
async fn a_refused_head_of_an_axum_route_is_get_without_its_body() {
    let router = Router::new().route("/", on_get(|| async { "hello" }).layer(refusing()));
    let address = serve(router).await;
    assert_head_is_get_without_its_body(address, "http/1.1 429 too many requests").await;
}

#[tokio::test]
async fn a_head_without_a_key_is_get_without_its_body() {
    let router = Router::new()
        .route("/", on_get(|| async { "hello" }))
        .layer(login_in_memory(1, 60));
    let address = serve(router).await;
    assert_head_is_get_without_its_body(address, "http/1.1 400 bad request").await;
}

#[tokio::test]
async fn a_custom_answer_to_head_is_get_without_its_body() {
    let layer = refusing().rejection(|_, _| Some(Response::new("slow down\n")));
    let address = serve_hyper(layer.layer(hello())).await;
    assert_head_is_get_without_its_body(address, "http/1.1 200 ok").await;
}

#[tokio::test]
async fn a_refused_head_keeps_the_connection_good_for_the_next_request() {
    let address = serve_hyper(refusing().layer(hello())).await;
    let requests = "HEAD / HTTP/1.1\r\nhost: localhost\r\n\r\n\
        GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let answers = on_the_wire(address, requests).await;
    assert_eq!(answers.matches("HTTP/1.1 429").count(), 2, "{answers}");
    assert_eq!(answers.matches("{\"type\"").count(), 1, "{answers}");
}

#[tokio::test]
async fn a_refused_head_without_any_server_has_no_body() {
    let service = login_in_memory(0, 60).layer(hello());
    let whole = send(&service, from("alice")).await;
    let mut request = from("alice");
    *request.method_mut() = Method::HEAD;
    let answer = send(&service, request).await;
    assert_eq!(answer.status, 429);
    assert!(answer.body.is_empty());
    assert_eq!(answer.only("content-length"), whole.body.len().to_string());
    for name in whole.headers.keys() {
        assert_eq!(
            answer.header(name.as_str()),
            whole.header(name.as_str()),
            "{name}"
        );
    }
}

#[tokio::test]
async fn an_allowed_head_has_the_fields_and_its_own_length() {
    let layer = RateLimitLayer::fixed(9, 60)
        .name("all")
        .key(key::constant("all"))
        .store(&memory(&clock()));
    let router = Router::new()
        .route("/", on_get(|| async { "hello" }))
        .layer(layer);
    let address = serve(router).await;
    let (lines, body) = exchange(address, "HEAD").await;
    assert_eq!(body, "");
    assert!(lines.contains(&"content-length: 5".to_owned()), "{lines:?}");
    assert!(
        lines.contains(&"ratelimit: \"all\";r=8;t=60".to_owned()),
        "{lines:?}"
    );
}

#[tokio::test]
async fn other_methods_get_a_body() {
    let service = ServiceBuilder::new().layer(refusing()).service(hello());
    for method in [Method::POST, Method::OPTIONS, Method::DELETE] {
        let mut request = get("/");
        *request.method_mut() = method;
        assert!(!send(&service, request).await.body.is_empty());
    }
}
