//! What is charged where in axum: matches, other paths, other methods, fallbacks.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::extract::Request;
use axum::response::IntoResponse;
use axum::routing::{get as on_get, post};
use axum::{Router, ServiceExt};
use http::Method;
use tokio::net::TcpListener;
use tollgate::{Key, Limiter, RateLimitLayer};
use tower::ServiceBuilder;

use super::client;
use crate::support::{clock, memory, serve};

async fn hello() -> &'static str {
    "hello"
}

/// A limit that counts and never refuses.
fn limit() -> RateLimitLayer {
    RateLimitLayer::fixed(100, 60).store(&memory(&clock()))
}

/// Statuses of requests to a server, and what each of them used of a limit.
struct Charges {
    server: SocketAddr,
    limiter: Limiter,
}

impl Charges {
    async fn of(router: impl FnOnce(RateLimitLayer) -> Router) -> Self {
        let limit = limit();
        let limiter = limit.limiter();
        let server = serve(router(limit)).await;
        Self { server, limiter }
    }

    async fn used(&self) -> u64 {
        let key = Key::ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        self.limiter.peek(&key).await.unwrap().used()
    }

    async fn send(&self, method: Method, path: &str) -> (u16, u64) {
        let before = self.used().await;
        let url = format!("http://{}{path}", self.server);
        let answer = client().request(method, url).send().await.unwrap();
        (answer.status().as_u16(), self.used().await - before)
    }

    async fn get(&self, path: &str) -> (u16, u64) {
        self.send(Method::GET, path).await
    }

    async fn post(&self, path: &str) -> (u16, u64) {
        self.send(Method::POST, path).await
    }
}

#[tokio::test]
async fn on_a_router_everything_is_charged() {
    let charges = Charges::of(|limit| Router::new().route("/a", on_get(hello)).layer(limit)).await;
    assert_eq!(charges.get("/a").await, (200, 1));
    assert_eq!(charges.send(Method::HEAD, "/a").await, (200, 1));
    assert_eq!(charges.get("/nowhere").await, (404, 1));
    assert_eq!(charges.post("/a").await, (405, 1));
}

#[tokio::test]
async fn as_a_route_layer_another_path_is_free_and_another_method_is_not() {
    let router = |limit| Router::new().route("/a", on_get(hello)).route_layer(limit);
    let charges = Charges::of(router).await;
    assert_eq!(charges.get("/a").await, (200, 1));
    assert_eq!(charges.send(Method::HEAD, "/a").await, (200, 1));
    assert_eq!(charges.get("/nowhere").await, (404, 0));
    assert_eq!(charges.post("/a").await, (405, 1));
}

#[tokio::test]
async fn on_a_method_router_another_method_is_charged_and_as_its_route_layer_it_is_free() {
    let layer = |limit| Router::new().route("/a", on_get(hello).layer(limit));
    let charges = Charges::of(layer).await;
    assert_eq!(charges.get("/a").await, (200, 1));
    assert_eq!(charges.post("/a").await, (405, 1));
    let route_layer = |limit| Router::new().route("/a", on_get(hello).route_layer(limit));
    let charges = Charges::of(route_layer).await;
    assert_eq!(charges.get("/a").await, (200, 1));
    assert_eq!(charges.send(Method::HEAD, "/a").await, (200, 1));
    assert_eq!(charges.post("/a").await, (405, 0));
    assert_eq!(charges.get("/nowhere").await, (404, 0));
}

#[tokio::test]
async fn what_is_added_after_the_layer_is_free() {
    let routes = |limit| {
        Router::new()
            .route("/before", on_get(hello))
            .layer(limit)
            .route("/after", on_get(hello))
    };
    let charges = Charges::of(routes).await;
    assert_eq!(charges.get("/before").await, (200, 1));
    assert_eq!(charges.get("/after").await, (200, 0));
    assert_eq!(charges.get("/nowhere").await, (404, 1));

    let methods = |limit| Router::new().route("/", on_get(hello).layer(limit).post(hello));
    let charges = Charges::of(methods).await;
    assert_eq!(charges.get("/").await, (200, 1));
    assert_eq!(charges.post("/").await, (200, 0));
}

#[tokio::test]
async fn a_fallback_is_charged_when_it_is_there_before_the_layer() {
    let before = |limit| Router::new().fallback(hello).layer(limit);
    assert_eq!(Charges::of(before).await.get("/a").await, (200, 1));
    let after = |limit| Router::new().layer(limit).fallback(hello);
    assert_eq!(Charges::of(after).await.get("/a").await, (200, 0));
    let route_layer = |limit| {
        let router = Router::new().route("/", on_get(hello)).fallback(hello);
        router.route_layer(limit)
    };
    assert_eq!(Charges::of(route_layer).await.get("/a").await, (200, 0));
}

#[tokio::test]
async fn inside_nest_only_what_matches_is_charged_unless_there_is_a_fallback() {
    let nested = |limit| {
        let api = Router::new().route("/a", on_get(hello)).layer(limit);
        Router::new().nest("/api", api)
    };
    let charges = Charges::of(nested).await;
    assert_eq!(charges.get("/api/a").await, (200, 1));
    assert_eq!(charges.post("/api/a").await, (405, 1));
    assert_eq!(charges.get("/api/nowhere").await, (404, 0));
    assert_eq!(charges.get("/nowhere").await, (404, 0));

    let with_fallback = |limit| {
        let api = Router::new().route("/a", on_get(hello)).fallback(hello);
        Router::new().nest("/api", api.layer(limit))
    };
    let charges = Charges::of(with_fallback).await;
    assert_eq!(charges.get("/api/nowhere").await, (200, 1));
    assert_eq!(charges.get("/nowhere").await, (404, 0));
}

#[tokio::test]
async fn of_merged_routers_the_one_that_is_merged_last_answers_404s() {
    let limited = |limit| Router::new().route("/a", on_get(hello)).layer(limit);
    let free = || Router::new().route("/b", on_get(hello));

    let into_free = Charges::of(|limit| free().merge(limited(limit))).await;
    assert_eq!(into_free.get("/a").await, (200, 1));
    assert_eq!(into_free.get("/b").await, (200, 0));
    assert_eq!(into_free.get("/nowhere").await, (404, 1));

    let into_limited = Charges::of(|limit| limited(limit).merge(free())).await;
    assert_eq!(into_limited.get("/a").await, (200, 1));
    assert_eq!(into_limited.get("/b").await, (200, 0));
    assert_eq!(into_limited.get("/nowhere").await, (404, 0));

    // A fallback of one's own stays, whichever of the two has it.
    let own = |limit| free().fallback(hello).merge(limited(limit));
    assert_eq!(Charges::of(own).await.get("/nowhere").await, (200, 0));
}

#[tokio::test]
async fn methods_of_one_path_have_limits_of_their_own() {
    let router = |limit| Router::new().route("/", on_get(hello).merge(post(hello).layer(limit)));
    let charges = Charges::of(router).await;
    assert_eq!(charges.get("/").await, (200, 0));
    assert_eq!(charges.post("/").await, (200, 1));
}

#[tokio::test]
async fn around_the_router_everything_is_charged_and_the_peer_is_known() {
    let limit = limit();
    let limiter = limit.limiter();
    let router = Router::new().route("/a", on_get(hello));
    let service = ServiceBuilder::new()
        .map_response(IntoResponse::into_response)
        .layer(limit)
        .service(router);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let make_service =
        ServiceExt::<Request>::into_make_service_with_connect_info::<SocketAddr>(service);
    tokio::spawn(async move { axum::serve(listener, make_service).await });

    let charges = Charges { server, limiter };
    assert_eq!(charges.get("/a").await, (200, 1));
    assert_eq!(charges.send(Method::HEAD, "/a").await, (200, 1));
    assert_eq!(charges.post("/a").await, (405, 1));
    assert_eq!(charges.get("/nowhere").await, (404, 1));
}
