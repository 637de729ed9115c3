//! A policy that is computed for each request.

use axum::body::Body;
use http::Request;
use tollgate::{Decisions, Policy, RateLimitLayer, key};
use tower::{Layer, ServiceBuilder};

use super::{from_alice_with, used};
use crate::support::{CLIENT, capture_log, clock, from, hello, login, memory, send, sqlite};

const LIMIT: &str = "x-limit";

fn api(limit: u32) -> Policy {
    Policy::fixed(limit, 60).name("api")
}

/// The limit is what the request says in [`LIMIT`], or the layer's own.
fn by_header(layer: RateLimitLayer) -> RateLimitLayer {
    layer.policy_for(|parts| {
        let limit = parts.headers.get(LIMIT)?;
        Some(api(limit.to_str().unwrap().parse().unwrap()))
    })
}

fn limited_to(limit: u32) -> Request<Body> {
    from_alice_with(LIMIT, &limit.to_string())
}

#[tokio::test]
async fn a_request_is_held_to_the_policy_that_was_computed_for_it() {
    let layer = login(9, 60, &sqlite(&clock())).name("api");
    let service = by_header(layer).layer(hello());
    let answer = send(&service, limited_to(2)).await;
    assert_eq!(answer.only("ratelimit-policy"), "\"api\";q=2;w=60");
    assert_eq!(answer.only("ratelimit"), "\"api\";r=1;t=60");
    assert_eq!(send(&service, limited_to(2)).await.status, 200);
    assert_eq!(send(&service, limited_to(2)).await.status, 429);
}

#[tokio::test]
async fn nothing_computed_is_the_policy_of_the_layer() {
    let layer = login(9, 60, &memory(&clock())).name("api");
    let service = by_header(layer).layer(hello());
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.only("ratelimit-policy"), "\"api\";q=9;w=60");
}

#[tokio::test]
async fn another_limit_under_the_same_name_goes_on_from_what_was_used() {
    for layer in [
        login(9, 60, &sqlite(&clock())).name("api"),
        RateLimitLayer::fixed(9, 3_600)
            .name("api")
            .key(key::header(CLIENT))
            .clock(&clock()),
    ] {
        let service = by_header(layer).layer(hello());
        for _ in 0..2 {
            assert_eq!(send(&service, limited_to(2)).await.status, 200);
        }
        assert_eq!(send(&service, limited_to(2)).await.status, 429);
        let answer = send(&service, limited_to(5)).await;
        assert_eq!(answer.only("ratelimit"), "\"api\";r=2;t=60");
        assert_eq!(send(&service, limited_to(2)).await.status, 429);
    }
}

#[tokio::test]
async fn units_that_were_charged_ahead_under_a_higher_limit_are_not_spent_under_a_lower_one() {
    let layer = login(100, 60, &sqlite(&clock())).name("api");
    let service = by_header(layer).layer(hello());
    for _ in 0..50 {
        assert_eq!(send(&service, limited_to(100)).await.status, 200);
    }
    assert_eq!(send(&service, limited_to(20)).await.status, 429);
    assert_eq!(send(&service, limited_to(50)).await.status, 429);
    let answer = send(&service, limited_to(100)).await;
    assert_eq!(answer.only("ratelimit"), "\"api\";r=49;t=60");
}

#[tokio::test]
async fn layers_without_a_store_never_meet_in_computed_policies() {
    let layer = || {
        let layer = RateLimitLayer::fixed(9, crate::support::LONG).key(key::header(CLIENT));
        layer.policy_for(|_| Some(Policy::fixed(1, crate::support::LONG).name("api")))
    };
    for service in [layer().layer(hello()), layer().layer(hello())] {
        assert_eq!(send(&service, from("alice")).await.status, 200);
        assert_eq!(send(&service, from("alice")).await.status, 429);
    }
}

#[tokio::test]
async fn a_policy_beside_it_always_applies() {
    let store = memory(&clock());
    let daily = Policy::daily(9).name("daily");
    let layer = by_header(login(9, 60, &store)).and(daily.clone(), key::header(CLIENT));
    let answer = send(&layer.layer(hello()), limited_to(2)).await;
    assert_eq!(
        answer.only("ratelimit-policy"),
        "\"api\";q=2;w=60, \"daily\";q=9;w=86400"
    );
    assert_eq!(used(daily, &store).await, 1);
    assert_eq!(used(api(2), &store).await, 1);
}

#[tokio::test]
async fn the_name_of_a_policy_beside_it_is_a_mistake_in_the_set_up() {
    let log = capture_log();
    let store = memory(&clock());
    let layer =
        by_header(login(9, 60, &store)).and(Policy::fixed(9, 60).name("API"), key::header(CLIENT));
    let service = layer.layer(hello());
    for _ in 0..2 {
        let answer = send(&service, limited_to(2)).await;
        assert_eq!(answer.status, 500);
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(
            detail.contains("the policy of policy_for is named api"),
            "{detail}"
        );
    }
    assert_eq!(log.lines_with("policy_for is named api").len(), 1);
    assert_eq!(used(api(9), &store).await, 0);
    assert_eq!(send(&service, from("alice")).await.status, 200);
}

#[tokio::test]
async fn the_same_layer_around_and_inside_charges_a_request_once() {
    let store = memory(&clock());
    let layer = by_header(login(9, 60, &store));
    let service = ServiceBuilder::new()
        .layer(layer.clone())
        .layer(layer)
        .service(hello());
    let answer = send(&service, limited_to(5)).await;
    assert_eq!(answer.only("ratelimit"), "\"api\";r=4;t=60");
    let decisions: &Decisions = answer.extensions.get().unwrap();
    assert_eq!(decisions.iter().len(), 1);
}

#[test]
#[should_panic(expected = "policy_for is for a rate limit of one policy, and this one has several")]
fn it_is_refused_for_several_policies() {
    let _ = RateLimitLayer::new([api(1), Policy::daily(9)]).policy_for(|_| None);
}

#[test]
#[should_panic(expected = "policy_for is for a rate limit of one policy, and this one has several")]
fn it_is_refused_for_plans() {
    let _ = RateLimitLayer::one_of(api(1), |_| "api").policy_for(|_| None);
}
