//! Every place in axum where a layer fits.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::connect_info::MockConnectInfo;
use axum::handler::Handler;
use axum::routing::{any, get as on_get, post};
use tollgate::RateLimitLayer;

use crate::support::{LONG, get, send};

/// The headline's layer, with a window that no test crosses.
fn one_liner() -> RateLimitLayer {
    RateLimitLayer::fixed(2, LONG)
}

async fn hello() -> &'static str {
    "hello"
}

/// The statuses of three requests to a path.
async fn three(router: Router, path: &str) -> [u16; 3] {
    let peer = SocketAddr::from(([203, 0, 113, 7], 1));
    let router = router.layer(MockConnectInfo(peer));
    let mut statuses = [0; 3];
    for status in &mut statuses {
        *status = send(&router, get(path)).await.status;
    }
    statuses
}

#[tokio::test]
async fn on_a_router() {
    let router = Router::new().route("/", on_get(hello)).layer(one_liner());
    assert_eq!(three(router, "/").await, [200, 200, 429]);
}

#[tokio::test]
async fn on_a_router_it_also_charges_what_matches_no_route() {
    let router = Router::new().route("/", on_get(hello)).layer(one_liner());
    assert_eq!(three(router, "/nowhere").await, [404, 404, 429]);
}

#[tokio::test]
async fn all_routes_of_a_router_share_its_counter() {
    let router = Router::new()
        .route("/a", on_get(hello))
        .route("/b", on_get(hello))
        .layer(one_liner());
    assert_eq!(three(router.clone(), "/a").await, [200, 200, 429]);
    assert_eq!(three(router, "/b").await, [429, 429, 429]);
}

#[tokio::test]
async fn on_a_method_router() {
    let router = Router::new()
        .route("/", on_get(hello).layer(one_liner()))
        .route("/free", on_get(hello));
    assert_eq!(three(router.clone(), "/").await, [200, 200, 429]);
    assert_eq!(three(router, "/free").await, [200, 200, 200]);
}

#[tokio::test]
async fn on_a_method_router_it_also_charges_wrong_methods() {
    let router = Router::new().route("/", post(hello).layer(one_liner()));
    assert_eq!(three(router, "/").await, [405, 405, 429]);
}

#[tokio::test]
async fn as_a_route_layer_of_a_method_router_it_does_not_charge_wrong_methods() {
    let router = Router::new().route("/", post(hello).route_layer(one_liner()));
    assert_eq!(three(router, "/").await, [405, 405, 405]);
}

#[tokio::test]
async fn as_a_route_layer_of_a_router_it_does_not_charge_what_matches_no_route() {
    let router = Router::new()
        .route("/", on_get(hello))
        .route_layer(one_liner());
    assert_eq!(three(router.clone(), "/nowhere").await, [404, 404, 404]);
    assert_eq!(three(router, "/").await, [200, 200, 429]);
}

#[tokio::test]
async fn on_a_handler() {
    let router = Router::new().route("/", on_get(hello.layer(one_liner())));
    assert_eq!(three(router, "/").await, [200, 200, 429]);
}

#[tokio::test]
async fn on_a_nested_router() {
    let api = Router::new().route("/a", on_get(hello)).layer(one_liner());
    let router = Router::new().route("/", on_get(hello)).nest("/api", api);
    assert_eq!(three(router.clone(), "/api/a").await, [200, 200, 429]);
    assert_eq!(three(router, "/").await, [200, 200, 200]);
}

#[tokio::test]
async fn around_a_nested_router() {
    let api = Router::new().route("/a", on_get(hello));
    let router = Router::new().nest("/api", api).layer(one_liner());
    assert_eq!(three(router, "/api/a").await, [200, 200, 429]);
}

#[tokio::test]
async fn on_a_nested_service() {
    let files = tower::ServiceBuilder::new()
        .layer(one_liner())
        .service(Router::new().fallback(hello));
    let router = Router::new().nest_service("/files", files);
    assert_eq!(three(router, "/files/a").await, [200, 200, 429]);
}

#[tokio::test]
async fn on_one_of_two_merged_routers() {
    let limited = Router::new()
        .route("/limited", on_get(hello))
        .layer(one_liner());
    let free = Router::new().route("/free", on_get(hello));
    let router = free.merge(limited);
    assert_eq!(three(router.clone(), "/limited").await, [200, 200, 429]);
    assert_eq!(three(router, "/free").await, [200, 200, 200]);
}

#[tokio::test]
async fn one_layer_on_two_merged_routers_is_one_counter() {
    let layer = one_liner();
    let first = Router::new()
        .route("/a", on_get(hello))
        .route_layer(layer.clone());
    let second = Router::new().route("/b", on_get(hello)).route_layer(layer);
    let router = first.merge(second);
    assert_eq!(three(router.clone(), "/a").await, [200, 200, 429]);
    assert_eq!(three(router, "/b").await, [429, 429, 429]);
}

#[tokio::test]
async fn on_a_fallback() {
    let router = Router::new()
        .route("/", on_get(hello))
        .fallback_service(any(hello).layer(one_liner()));
    assert_eq!(three(router.clone(), "/nowhere").await, [200, 200, 429]);
    assert_eq!(three(router, "/").await, [200, 200, 200]);
}

#[tokio::test]
async fn around_a_fallback() {
    let router = Router::new().fallback(hello).layer(one_liner());
    assert_eq!(three(router, "/nowhere").await, [200, 200, 429]);
}

#[tokio::test]
async fn on_a_path_with_parameters_all_values_share_the_counter() {
    let router = Router::new().route("/user/{id}", on_get(hello).layer(one_liner()));
    assert_eq!(three(router.clone(), "/user/1").await, [200, 200, 429]);
    assert_eq!(three(router, "/user/2?x=1").await, [429, 429, 429]);
}
