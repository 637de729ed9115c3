//! What is outside to see and to shape every answer: request ids, traces, timeouts, compression.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::get as on_get;
use http::{Response, StatusCode};
use reqwest::Client;
use serde_json::Value;
use tollgate::RateLimitLayer;
use tower::ServiceBuilder;
use tower_http::compression::CompressionLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;
use tracing::Span;

use super::{answer, get, statuses};
use crate::support::{CLIENT, clock, login, login_in_memory, memory, serve};

fn router() -> Router {
    Router::new().route("/", on_get(|| async { "hello" }))
}

/// A router whose handler never answers.
fn stuck() -> Router {
    Router::new().route("/", on_get(|| async { pending::<&str>().await }))
}

fn timeout() -> TimeoutLayer {
    TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(1))
}

fn limit() -> RateLimitLayer {
    login_in_memory(1, 60)
}

#[tokio::test]
async fn a_refusal_has_the_request_id_of_a_layer_outside() {
    let ids = || {
        ServiceBuilder::new()
            .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
            .layer(PropagateRequestIdLayer::x_request_id())
    };
    let server = serve(router().layer(limit()).layer(ids())).await;
    for status in [200, 429] {
        let answer = answer(get(server).header("x-request-id", "17")).await;
        assert_eq!(answer.status(), status);
        assert_eq!(answer.headers()["x-request-id"], "17");
    }
    let made = answer(get(server)).await;
    assert_eq!(made.headers()["x-request-id"].len(), 36);

    let server = serve(router().layer(ids()).layer(limit())).await;
    answer(get(server)).await;
    let refused = answer(get(server).header("x-request-id", "17")).await;
    assert_eq!(refused.status(), 429);
    assert!(!refused.headers().contains_key("x-request-id"));
}

#[tokio::test]
async fn a_trace_outside_sees_the_refusal_and_one_inside_does_not() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    macro_rules! trace {
        () => {{
            let seen = Arc::clone(&seen);
            TraceLayer::new_for_http().on_response(
                move |response: &Response<_>, _: Duration, _: &Span| {
                    seen.lock().unwrap().push(response.status().as_u16());
                },
            )
        }};
    }
    let server = serve(router().layer(limit()).layer(trace!())).await;
    assert_eq!(statuses(|| get(server), 2).await, [200, 429]);
    assert_eq!(*seen.lock().unwrap(), [200, 429]);

    seen.lock().unwrap().clear();
    let server = serve(router().layer(trace!()).layer(limit())).await;
    assert_eq!(statuses(|| get(server), 2).await, [200, 429]);
    assert_eq!(*seen.lock().unwrap(), [200]);
}

// Tokio's time is paused in these: a timeout fires as soon as nothing else is to be done.

#[tokio::test(start_paused = true)]
async fn a_timeout_outside_keeps_the_charge_and_its_answer_has_no_fields() {
    let server = serve(stuck().layer(limit()).layer(timeout())).await;
    let late = answer(get(server)).await;
    assert_eq!(late.status(), 504);
    assert!(!late.headers().contains_key("ratelimit"));
    assert_eq!(answer(get(server)).await.status(), 429);
}

#[tokio::test(start_paused = true)]
async fn what_a_timeout_inside_has_ended_can_be_given_back() {
    let limit = || limit().refund_if(|status| status == StatusCode::GATEWAY_TIMEOUT);
    let server = serve(stuck().layer(timeout()).layer(limit())).await;
    for _ in 0..2 {
        let late = answer(get(server)).await;
        assert_eq!(late.status(), 504);
        assert_eq!(late.headers()["ratelimit"], "\"login\";r=1;t=60");
    }
    // Outside it drops the limit before there is an answer to judge.
    let server = serve(stuck().layer(limit()).layer(timeout())).await;
    assert_eq!(statuses(|| get(server), 2).await, [504, 429]);
}

#[tokio::test]
async fn a_refusal_that_is_compressed_outside_is_read_as_a_problem_document() {
    let server = serve(router().layer(limit()).layer(CompressionLayer::new())).await;
    assert_eq!(answer(get(server)).await.status(), 200);
    let raw = Client::builder().no_proxy().no_gzip().build().unwrap();
    let raw = raw.get(format!("http://{server}/")).header(CLIENT, "alice");
    let raw = answer(raw.header("accept-encoding", "gzip")).await;
    assert_eq!(raw.headers()["content-encoding"], "gzip");

    // This client asks for gzip by itself, and unpacks it.
    let refused = answer(get(server)).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(
        refused.headers()["content-type"],
        "application/problem+json"
    );
    assert_eq!(refused.headers()["retry-after"], "60");
    let problem: Value = refused.json().await.unwrap();
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["violated-policies"], serde_json::json!(["login"]));
}

#[tokio::test]
async fn around_compression_a_refusal_is_sent_as_it_is() {
    let server = serve(router().layer(CompressionLayer::new()).layer(limit())).await;
    assert_eq!(answer(get(server)).await.status(), 200);
    let refused = answer(get(server)).await;
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("content-length"));
    let problem: Value = refused.json().await.unwrap();
    assert_eq!(problem["status"], 429);
}

#[tokio::test]
async fn a_limit_on_each_side_of_a_layer_sends_the_fields_of_both() {
    let store = memory(&clock());
    let inner = login(1, 60, &store);
    let outer = login(9, 60, &store).name("all");
    let server = serve(
        router()
            .layer(inner)
            .layer(CompressionLayer::new())
            .layer(outer),
    )
    .await;
    assert_eq!(statuses(|| get(server), 2).await, [200, 429]);
    let refused = answer(get(server)).await;
    let fields = refused.headers().get_all("ratelimit").into_iter();
    let fields: Vec<_> = fields.map(|field| field.to_str().unwrap()).collect();
    // The outer limit was charged for the three, also for the two that the inner one refused.
    assert_eq!(fields, ["\"login\";r=0;t=60", "\"all\";r=6;t=60"]);
}
