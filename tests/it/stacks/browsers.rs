//! CORS, as a browser sees it.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::get as on_get;
use http::{HeaderName, HeaderValue, Method};
use reqwest::{RequestBuilder, Response};
use tollgate::{RateLimitLayer, ResetFormat};
use tower_http::cors::CorsLayer;

use super::{answer, client, get, statuses};
use crate::support::{CLIENT, login_in_memory, serve};

const ORIGIN: &str = "https://app.example";

fn router() -> Router {
    Router::new().route("/", on_get(|| async { "hello" }))
}

fn cors(limit: &RateLimitLayer) -> CorsLayer {
    CorsLayer::new()
        .allow_origin(HeaderValue::from_static(ORIGIN))
        .allow_credentials(true)
        .allow_methods([Method::GET])
        .allow_headers([HeaderName::from_static(CLIENT)])
        .expose_headers(limit.exposed_headers())
}

fn from_script(server: SocketAddr) -> RequestBuilder {
    get(server).header("origin", ORIGIN)
}

/// OPTIONS by alice, with what a browser adds when it asks whether it may send a request.
fn preflight(server: SocketAddr) -> RequestBuilder {
    bare_options(server)
        .header("origin", ORIGIN)
        .header("access-control-request-method", "GET")
        .header("access-control-request-headers", CLIENT)
}

fn bare_options(server: SocketAddr) -> RequestBuilder {
    client()
        .request(Method::OPTIONS, format!("http://{server}/"))
        .header(CLIENT, "alice")
}

/// The names in the lists of a header.
fn names(answer: &Response, header: &str) -> BTreeSet<String> {
    let lines = answer.headers().get_all(header).into_iter();
    lines
        .flat_map(|line| line.to_str().unwrap().split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect()
}

#[tokio::test]
async fn a_script_with_credentials_reads_a_refusal_and_just_its_fields() {
    let limit = login_in_memory(1, 60).x_rate_limit(ResetFormat::DeltaSeconds);
    let cors = cors(&limit);
    let server = serve(router().layer(limit).layer(cors)).await;

    let asked = answer(preflight(server)).await;
    assert_eq!(asked.status(), 200);
    assert_eq!(asked.headers()["access-control-allow-credentials"], "true");

    let mut emitted = BTreeSet::new();
    let mut exposed = BTreeSet::new();
    for status in [200, 429] {
        let answer = answer(from_script(server)).await;
        assert_eq!(answer.status(), status);
        // With credentials a browser takes no `*` in any of the three.
        let headers = answer.headers();
        assert_eq!(headers["access-control-allow-origin"], ORIGIN);
        assert_eq!(headers["access-control-allow-credentials"], "true");
        exposed = names(&answer, "access-control-expose-headers");
        let fields = headers.keys().map(HeaderName::as_str);
        let ours = fields.filter(|name| name.contains("ratelimit") || *name == "retry-after");
        emitted.extend(ours.map(str::to_owned));
    }
    assert_eq!(exposed, emitted);
}

#[tokio::test]
async fn inside_cors_no_options_is_counted_since_cors_answers_them_all() {
    let limit = login_in_memory(1, 60);
    let cors = cors(&limit);
    let server = serve(router().layer(limit).layer(cors)).await;
    assert_eq!(statuses(|| preflight(server), 3).await, [200; 3]);
    assert_eq!(statuses(|| bare_options(server), 3).await, [200; 3]);
    assert_eq!(statuses(|| from_script(server), 2).await, [200, 429]);
}

#[tokio::test]
async fn around_cors_a_refusal_has_none_of_its_headers() {
    let limit = login_in_memory(1, 60);
    let cors = cors(&limit);
    let server = serve(router().layer(cors).layer(limit)).await;
    assert_eq!(answer(from_script(server)).await.status(), 200);
    let refused = answer(from_script(server)).await;
    assert_eq!(refused.status(), 429);
    assert!(
        !refused
            .headers()
            .contains_key("access-control-allow-origin")
    );
}

#[tokio::test]
async fn around_cors_each_preflight_uses_a_unit() {
    let limit = login_in_memory(2, 60);
    let cors = cors(&limit);
    let server = serve(router().layer(cors).layer(limit)).await;
    assert_eq!(answer(preflight(server)).await.status(), 200);
    assert_eq!(statuses(|| from_script(server), 2).await, [200, 429]);
    assert_eq!(answer(preflight(server)).await.status(), 429);
}

#[tokio::test]
async fn around_cors_preflights_can_be_free_and_a_bare_options_counts() {
    let limit = login_in_memory(1, 60).skip_preflights();
    let cors = cors(&limit);
    let server = serve(router().layer(cors).layer(limit)).await;
    assert_eq!(statuses(|| preflight(server), 3).await, [200; 3]);
    assert_eq!(statuses(|| bare_options(server), 2).await, [200, 429]);
    assert_eq!(answer(preflight(server)).await.status(), 200);
    assert_eq!(answer(from_script(server)).await.status(), 429);
}
