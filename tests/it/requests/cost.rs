//! The units of a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use http::Request;
use tollgate::{Decisions, Policy, RateLimitLayer, key};
use tower::{Layer, Service, ServiceBuilder};

use super::{from_alice_with, used};
use crate::support::{CLIENT, capture_log, clock, from, hello, login, memory, send, sqlite};

const COST: &str = "x-cost";

/// The cost is what the request says in [`COST`], or 1.
fn by_header(layer: RateLimitLayer) -> RateLimitLayer {
    layer.cost(|parts| {
        let cost = parts.headers.get(COST).map(|cost| cost.to_str().unwrap());
        cost.map_or(1, |cost| cost.parse().unwrap())
    })
}

fn costing(cost: u32) -> Request<Body> {
    from_alice_with(COST, &cost.to_string())
}

fn policy() -> Policy {
    Policy::fixed(10, 60).name("login")
}

#[tokio::test]
async fn a_request_uses_its_cost_and_the_fields_say_so() {
    for layer in [
        login(10, 60, &sqlite(&clock())),
        login(10, 60, &memory(&clock())),
    ] {
        let service = by_header(layer).layer(hello());
        let answer = send(&service, costing(7)).await;
        assert_eq!(answer.only("ratelimit"), "\"login\";r=3;t=60");
        let answer = send(&service, from("alice")).await;
        assert_eq!(answer.only("ratelimit"), "\"login\";r=2;t=60");
    }
}

#[tokio::test]
async fn a_cost_that_does_not_fit_is_refused_and_leaves_room_for_a_cheaper_request() {
    let service = by_header(login(10, 60, &sqlite(&clock()))).layer(hello());
    let mut statuses = Vec::new();
    for cost in [8, 5, 1, 1, 1] {
        statuses.push(send(&service, costing(cost)).await.status);
    }
    assert_eq!(statuses, [200, 429, 200, 200, 429]);
}

#[tokio::test]
async fn a_cost_above_the_limit_is_refused_without_a_promise() {
    let service = by_header(login(10, 60, &memory(&clock()))).layer(hello());
    let answer = send(&service, costing(11)).await;
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (429, String::new())
    );
    assert_eq!(answer.only("ratelimit"), "\"login\";r=10;t=60");
    assert_eq!(send(&service, costing(u32::MAX)).await.status, 429);
    assert_eq!(send(&service, costing(10)).await.status, 200);
}

#[tokio::test]
async fn a_cost_of_nothing_is_a_look_that_is_always_allowed_and_has_the_fields() {
    let store = sqlite(&clock());
    let service = by_header(login(10, 60, &store)).layer(hello());
    let answer = send(&service, costing(0)).await;
    assert_eq!(
        (answer.status, answer.only("ratelimit")),
        (200, "\"login\";r=10;t=60")
    );
    send(&service, costing(10)).await;
    let answer = send(&service, costing(0)).await;
    assert_eq!(
        (answer.status, answer.only("ratelimit")),
        (200, "\"login\";r=0;t=60")
    );
    assert_eq!(used(policy(), &store).await, 10);
}

#[tokio::test]
async fn the_cost_is_of_every_policy_of_the_layer() {
    let store = memory(&clock());
    let hour = Policy::fixed(30, 3_600).name("hour");
    let layer = RateLimitLayer::new([policy(), hour.clone()]);
    let service = by_header(layer.key(key::header(CLIENT)).store(&store)).layer(hello());
    assert_eq!(send(&service, costing(6)).await.status, 200);
    assert_eq!(send(&service, costing(6)).await.status, 429);
    assert_eq!(used(policy(), &store).await, 6);
    assert_eq!(used(hour, &store).await, 6);
}

#[tokio::test]
async fn the_cost_is_asked_for_once_for_each_request() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let layer = login(10, 60, &sqlite(&clock())).cost(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        2
    });
    let service = layer.layer(hello());
    send(&service, from("alice")).await;
    send(&service, from("alice")).await;
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn the_decision_tells_the_cost() {
    let service = by_header(login(10, 60, &memory(&clock()))).layer(hello());
    let answer = send(&service, costing(4)).await;
    let decisions: &Decisions = answer.extensions.get().unwrap();
    assert_eq!(decisions.iter().next().unwrap().cost(), 4);
}

/// Two layers on one counter, with these costs.
async fn nested(outer: u32, inner: u32, requests: usize) -> (u64, Vec<u16>) {
    let store = memory(&clock());
    let service = ServiceBuilder::new()
        .layer(login(10, 60, &store).cost(move |_| outer))
        .layer(login(10, 60, &store).cost(move |_| inner))
        .service(hello());
    let statuses = statuses(&service, requests).await;
    (used(policy(), &store).await, statuses)
}

async fn statuses<S, B>(service: &S, count: usize) -> Vec<u16>
where
    S: Service<Request<Body>, Response = http::Response<B>, Error: std::fmt::Debug> + Clone,
    B: http_body::Body<Error: std::fmt::Debug>,
{
    crate::support::statuses(service, "alice", count).await
}

#[tokio::test]
async fn a_counter_is_charged_once_for_a_request_with_the_cost_of_the_outermost_layer() {
    assert_eq!(nested(2, 5, 1).await, (2, vec![200]));
    assert_eq!(nested(5, 2, 1).await, (5, vec![200]));
    assert_eq!(nested(5, 5, 3).await, (10, vec![200, 200, 429]));
}

#[tokio::test]
async fn a_look_outside_charges_nothing_so_the_layer_inside_does() {
    assert_eq!(nested(0, 4, 3).await, (8, vec![200, 200, 429]));
}

#[tokio::test]
async fn a_look_outside_leaves_the_fields_to_the_layer_inside_that_charges() {
    let store = memory(&clock());
    let service = ServiceBuilder::new()
        .layer(login(10, 60, &store).cost(|_| 0))
        .layer(login(10, 60, &store).cost(|_| 6))
        .service(hello());
    for (status, field) in [(200, "\"login\";r=4;t=60"), (429, "\"login\";r=4;t=60")] {
        let answer = send(&service, from("alice")).await;
        assert_eq!((answer.status, answer.only("ratelimit")), (status, field));
        assert_eq!(answer.only("ratelimit-policy"), "\"login\";q=10;w=60");
    }
}

#[tokio::test]
async fn a_look_outside_at_other_counters_keeps_its_fields() {
    let store = memory(&clock());
    let hour = Policy::fixed(30, 3_600).name("hour");
    let looks = RateLimitLayer::new([policy(), hour]).cost(|_| 0);
    let service = ServiceBuilder::new()
        .layer(looks.key(key::header(CLIENT)).store(&store))
        .layer(login(10, 60, &store))
        .layer(login(10, 60, &store).key(key::constant("all")))
        .service(hello());
    let answer = send(&service, from("alice")).await;
    assert_eq!(
        answer.header("ratelimit"),
        "\"login\";r=9;t=60, \"login\";r=9;t=60, \"hour\";r=30;t=3600"
    );
}

#[tokio::test]
async fn a_look_outside_of_a_layer_that_does_not_count_keeps_its_fields() {
    let store = memory(&clock());
    let service = ServiceBuilder::new()
        .layer(login(10, 60, &store).cost(|_| 0))
        .layer(login(10, 60, &store).skip(|_| true))
        .service(hello());
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.only("ratelimit"), "\"login\";r=10;t=60");
}

#[tokio::test]
async fn a_look_inside_charges_nothing_more_and_refuses_nothing() {
    assert_eq!(nested(5, 0, 2).await, (10, vec![200, 200]));
}

#[tokio::test]
async fn a_look_inside_at_a_lower_limit_refuses_nothing() {
    let store = memory(&clock());
    let service = ServiceBuilder::new()
        .layer(login(10, 60, &store))
        .layer(login(1, 60, &store).cost(|_| 0))
        .service(hello());
    assert_eq!(statuses(&service, 3).await, [200, 200, 200]);
}

#[tokio::test]
async fn two_looks_at_one_counter_are_told_once() {
    let layer = login(10, 60, &memory(&clock())).cost(|_| 0);
    let service = ServiceBuilder::new()
        .layer(layer.clone())
        .layer(layer)
        .service(hello());
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.only("ratelimit"), "\"login\";r=10;t=60");
}

#[tokio::test]
async fn a_cost_that_is_not_charged_since_an_outer_layer_has_charged_less_is_warned_about_once() {
    let log = capture_log();
    nested(1, 5, 3).await;
    let lines = log.lines_with("set .cost(…) on the outermost layer");
    assert_eq!(lines.len(), 1, "{lines:?}");
    nested(5, 1, 3).await;
    assert_eq!(log.lines_with("outermost layer").len(), 1);
}
