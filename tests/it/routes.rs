//! The matched route and the method as keys.

use axum::Router;
use axum::body::Body;
use axum::routing::{any, get as on_get, post};
use http::Request;
use tollgate::{Decisions, RateLimitLayer, key};
use tower::ServiceBuilder;

use crate::support::{Answer, capture_log, clock, get, memory, send};

async fn hello() -> &'static str {
    "hello"
}

fn by_route() -> RateLimitLayer {
    by(key::matched_route())
}

fn by(source: key::KeySource) -> RateLimitLayer {
    RateLimitLayer::fixed(9, 60)
        .key(source)
        .store(&memory(&clock()))
}

/// The text of the key that an answer was counted by.
fn key_of(answer: &Answer) -> String {
    let decisions: &Decisions = answer.extensions.get().unwrap();
    decisions.iter().next().unwrap().key().as_str().to_owned()
}

/// The status and the key of a request for this path.
async fn answer(router: &Router, path: &str) -> (u16, String) {
    let answer = send(router, get(path)).await;
    (answer.status, key_of(&answer))
}

fn keyed(status: u16, key: &str) -> (u16, String) {
    (status, key.to_owned())
}

#[tokio::test]
async fn a_respelled_path_buys_no_counter() {
    let router = Router::new()
        .route("/login", on_get(hello))
        .route("/user/{id}", on_get(hello))
        .layer(by_route());
    for path in ["/login", "/login?x=1", "/login?"] {
        assert_eq!(
            answer(&router, path).await,
            keyed(200, "route:/login"),
            "{path}"
        );
    }
    for path in ["/user/1", "/user/2", "/user/%6C", "/user/1?x=1"] {
        assert_eq!(
            answer(&router, path).await,
            keyed(200, "route:/user/{id}"),
            "{path}"
        );
    }
    for path in [
        "/login/",
        "//login",
        "/LOGIN",
        "/%6Cogin",
        "/./login",
        "/nowhere",
        "/unmatched",
    ] {
        assert_eq!(
            answer(&router, path).await,
            keyed(404, "route:unmatched"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn no_route_has_the_key_of_the_unmatched() {
    let router = Router::new()
        .route("/unmatched", on_get(hello))
        .layer(by_route());
    assert_eq!(
        answer(&router, "/unmatched").await,
        keyed(200, "route:/unmatched")
    );
    assert_eq!(
        answer(&router, "/nowhere").await,
        keyed(404, "route:unmatched")
    );
}

#[tokio::test]
async fn a_wrong_method_is_of_the_route() {
    let router = Router::new().route("/login", post(hello)).layer(by_route());
    assert_eq!(answer(&router, "/login").await, keyed(405, "route:/login"));
}

#[tokio::test]
async fn on_a_route_layer_and_on_a_method_router_the_route_is_known() {
    let router = Router::new()
        .route("/a/{x}", on_get(hello))
        .route_layer(by_route())
        .route("/b/{x}", on_get(hello).layer(by_route()));
    assert_eq!(answer(&router, "/a/1").await, keyed(200, "route:/a/{x}"));
    assert_eq!(answer(&router, "/b/1").await, keyed(200, "route:/b/{x}"));
}

#[tokio::test]
async fn nested_routes_have_their_whole_pattern() {
    let inside = Router::new()
        .route("/a/{x}", on_get(hello))
        .layer(by_route());
    let router = Router::new().nest("/api/{version}", inside);
    let expected = keyed(200, "route:/api/{version}/a/{x}");
    assert_eq!(answer(&router, "/api/1/a/1").await, expected);

    let inside = Router::new().route("/a/{x}", on_get(hello));
    let router = Router::new()
        .nest("/api/{version}", inside)
        .layer(by_route());
    assert_eq!(answer(&router, "/api/1/a/1").await, expected);
    let unmatched = keyed(404, "route:unmatched");
    assert_eq!(answer(&router, "/api/1/b").await, unmatched);
}

#[tokio::test]
async fn merged_routers_keep_their_routes() {
    let limited = Router::new()
        .route("/a/{x}", on_get(hello))
        .layer(by_route());
    let router = Router::new().route("/b", on_get(hello)).merge(limited);
    assert_eq!(answer(&router, "/a/1").await, keyed(200, "route:/a/{x}"));
}

#[tokio::test]
async fn fallbacks_share_the_key_of_the_unmatched() {
    let unmatched = keyed(200, "route:unmatched");
    let around = Router::new().fallback(hello).layer(by_route());
    assert_eq!(answer(&around, "/a").await, unmatched);
    assert_eq!(answer(&around, "/").await, unmatched);
    let on_it = Router::new().fallback_service(any(hello).layer(by_route()));
    assert_eq!(answer(&on_it, "/b").await, unmatched);
    let nested = Router::new().fallback(hello).layer(by_route());
    let router = Router::new().nest("/api", nested);
    assert_eq!(answer(&router, "/api/a").await, unmatched);
}

#[tokio::test]
async fn a_nested_service_whose_routes_are_not_known_is_unmatched() {
    let inside = Router::new().route("/a/{x}", on_get(hello));
    let around = ServiceBuilder::new()
        .layer(by_route())
        .service(inside.clone());
    let router = Router::new().nest_service("/api", around);
    assert_eq!(
        answer(&router, "/api/a/1").await,
        keyed(200, "route:unmatched")
    );
    let router = Router::new().nest_service("/api", inside.layer(by_route()));
    assert_eq!(
        answer(&router, "/api/a/1").await,
        keyed(200, "route:/api/a/{x}")
    );
}

#[tokio::test]
async fn around_the_router_it_is_a_500_with_the_cure_told_once() {
    let log = capture_log();
    let router = Router::new().route("/", on_get(hello)).fallback(hello);
    let service = ServiceBuilder::new().layer(by_route()).service(router);
    for path in ["/", "/nowhere", "/"] {
        let answer = send(&service, get(path)).await;
        assert_eq!(answer.status, 500);
        let problem = answer.json();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("inside the router"), "{detail}");
    }
    assert_eq!(log.lines_with("inside the router").len(), 1);
}

#[tokio::test]
async fn around_the_router_a_route_among_other_parts_is_told_too() {
    let router = Router::new().route("/", on_get(hello));
    let layer = by(key::constant("all").and(key::matched_route()));
    let service = ServiceBuilder::new().layer(layer).service(router);
    let answer = send(&service, get("/")).await;
    assert_eq!(answer.status, 500);
    assert!(answer.text().contains("inside the router"));
}

#[tokio::test]
async fn an_operator_types_a_route_as_it_is_written_in_the_router() {
    let router = Router::new()
        .route("/user/{id}", on_get(hello))
        .layer(by_route());
    let key = key::matched_route().key_for("/user/{id}");
    assert_eq!(answer(&router, "/user/1").await, keyed(200, key.as_str()));
}

#[tokio::test]
async fn methods_are_counted_apart_and_head_as_get() {
    let router = Router::new()
        .route("/", any(hello))
        .layer(by(key::method()));
    for (method, expected) in [
        ("GET", "method:GET"),
        ("HEAD", "method:GET"),
        ("POST", "method:POST"),
        ("PUT", "method:PUT"),
        ("PATCH", "method:PATCH"),
        ("DELETE", "method:DELETE"),
        ("OPTIONS", "method:OPTIONS"),
    ] {
        let request = Request::builder().method(method).body(Body::empty());
        let answer = send(&router, request.unwrap()).await;
        assert_eq!(key_of(&answer), expected);
        assert_eq!(key::method().key_for(method).as_str(), expected);
    }
}

#[tokio::test]
async fn a_made_up_method_buys_no_counter() {
    let router = Router::new()
        .route("/", any(hello))
        .layer(by(key::method()));
    for method in ["FOO1", "FOO2", "get", "other", "PROPFIND"] {
        let request = Request::builder().method(method).body(Body::empty());
        let answer = send(&router, request.unwrap()).await;
        assert_eq!(key_of(&answer), "method:other");
    }
}
