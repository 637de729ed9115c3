//! A layer of several policies inside, or around, other layers.

use std::time::Duration;

use tollgate::{Decisions, Key, Limiter, Policies, Policy, RateLimitLayer, Store, key};
use tower::{Layer, ServiceBuilder};

use super::by_client;
use crate::support::{Answer, CLIENT, clock, from, hello, memory, send, sqlite, statuses};

fn all(limit: u32) -> Policy {
    Policy::fixed(limit, 60).name("all")
}

fn strict(limit: u32) -> Policy {
    Policy::sliding(limit, 900).name("strict")
}

/// What a policy has used for the client `alice` on the store.
async fn used(policy: Policy, store: &impl Store) -> u64 {
    let limiter = Limiter::new(policy).store(store);
    let seen = limiter.peek(&Key::header(CLIENT, "alice")).await;
    seen.unwrap().used()
}

/// The answer to the last of so many requests by `alice`, through an outer and an inner layer on one store.
async fn through(
    store: &impl Store,
    outer: impl Into<Policies>,
    inner: impl Into<Policies>,
    requests: usize,
) -> Answer {
    let service = ServiceBuilder::new()
        .layer(by_client(outer, store))
        .layer(by_client(inner, store))
        .service(hello());
    statuses(&service, "alice", requests - 1).await;
    send(&service, from("alice")).await
}

#[tokio::test]
async fn a_counter_that_the_outer_layer_has_charged_is_charged_once_and_the_others_too() {
    let store = sqlite(&clock());
    let answer = through(&store, all(9), [all(9), strict(5)], 2).await;
    assert_eq!(answer.status, 200);
    assert_eq!(used(all(9), &store).await, 2);
    assert_eq!(used(strict(5), &store).await, 2);
}

#[tokio::test]
async fn a_policy_of_both_layers_is_listed_once() {
    let answer = through(&memory(&clock()), all(9), [all(9), strict(5)], 1).await;
    assert_eq!(
        answer.header("ratelimit-policy"),
        "\"strict\";q=5;w=900, \"all\";q=9;w=60"
    );
    assert_eq!(
        answer.header("ratelimit"),
        "\"strict\";r=4;t=900, \"all\";r=8;t=60"
    );
}

#[tokio::test]
async fn one_policy_inside_several_of_which_it_is_one_changes_nothing() {
    let store = memory(&clock());
    let answer = through(&store, [all(9), strict(5)], strict(5), 3).await;
    assert_eq!(
        answer.only("ratelimit"),
        "\"all\";r=6;t=60, \"strict\";r=2;t=900"
    );
    assert_eq!(used(strict(5), &store).await, 3);
    let decisions: &Decisions = answer.extensions.get().unwrap();
    assert_eq!(decisions.iter().len(), 1);
}

#[tokio::test]
async fn layers_that_overlap_in_one_policy_charge_all_three_once() {
    let store = sqlite(&clock());
    let third = Policy::daily(50).name("daily");
    let answer = through(&store, [all(9), strict(5)], [strict(5), third.clone()], 4).await;
    assert_eq!(
        answer.header("ratelimit"),
        "\"daily\";r=46;t=72000, \"all\";r=5;t=60, \"strict\";r=1;t=900"
    );
    for policy in [all(9), strict(5), third] {
        assert_eq!(used(policy, &store).await, 4);
    }
}

#[tokio::test]
async fn the_same_layer_of_several_around_and_inside_charges_a_request_once() {
    let layer = by_client([all(9), strict(2)], &sqlite(&clock()));
    let service = ServiceBuilder::new()
        .layer(layer.clone())
        .layer(layer)
        .service(hello());
    assert_eq!(statuses(&service, "alice", 3).await, [200, 200, 429]);
}

#[tokio::test]
async fn a_refusal_of_the_inner_layer_has_used_what_the_outer_one_counts_and_nothing_of_its_own() {
    let store = memory(&clock());
    let daily = Policy::daily(50).name("daily");
    let answer = through(&store, all(9), [all(9), strict(1), daily.clone()], 4).await;
    assert_eq!(answer.status, 429);
    assert_eq!(
        answer.json()["violated-policies"],
        serde_json::json!(["strict"])
    );
    assert_eq!(used(all(9), &store).await, 4);
    assert_eq!(used(strict(1), &store).await, 1);
    assert_eq!(used(daily, &store).await, 1);
}

#[tokio::test]
async fn the_same_policies_by_another_key_are_charged_apart() {
    let store = memory(&clock());
    let layer = by_client([all(9), strict(5)], &store);
    let service = ServiceBuilder::new()
        .layer(layer.clone())
        .layer(layer.key(key::constant("everybody")))
        .service(hello());
    assert_eq!(statuses(&service, "alice", 1).await, [200]);
    assert_eq!(used(all(9), &store).await, 1);
    let limiter = Limiter::new(all(9)).store(&store);
    let seen = limiter.peek(&Key::constant("everybody")).await.unwrap();
    assert_eq!(seen.used(), 1);
}

#[tokio::test]
async fn the_same_policies_on_another_store_are_charged_apart() {
    let (outer, inner) = (memory(&clock()), memory(&clock()));
    let service = ServiceBuilder::new()
        .layer(by_client([all(9), strict(5)], &outer))
        .layer(by_client([all(9), strict(5)], &inner))
        .service(hello());
    assert_eq!(statuses(&service, "alice", 1).await, [200]);
    for store in [outer, inner] {
        assert_eq!(used(all(9), &store).await, 1);
        assert_eq!(used(strict(5), &store).await, 1);
    }
}

#[tokio::test]
async fn a_further_policy_that_an_outer_layer_has_charged_by_the_same_key_is_charged_once() {
    let store = sqlite(&clock());
    let inner = RateLimitLayer::new(strict(5))
        .key(key::constant("everybody"))
        .and(all(9), key::header(CLIENT))
        .store(&store);
    let service = ServiceBuilder::new()
        .layer(by_client(all(9), &store))
        .layer(inner)
        .service(hello());
    assert_eq!(statuses(&service, "alice", 2).await, [200, 200]);
    assert_eq!(used(all(9), &store).await, 2);
}

#[tokio::test]
async fn a_lower_limit_inside_on_a_counter_of_the_outer_layer_refuses_and_charges_nothing_else() {
    let store = memory(&clock());
    let answer = through(&store, all(9), [all(2), strict(5)], 4).await;
    assert_eq!(answer.status, 429);
    assert_eq!(
        answer.json()["violated-policies"],
        serde_json::json!(["all"])
    );
    assert_eq!(used(strict(5), &store).await, 2);
}

/// The answer when an inner layer has no room by a counter of the outer one, nor by one of its own that takes longer.
async fn refused_by_a_counter_of_the_outer_layer_and_one_of_its_own() -> Answer {
    let answer = through(&memory(&clock()), all(9), [all(2), strict(2)], 3).await;
    assert_eq!(answer.status, 429);
    answer
}

#[tokio::test]
async fn a_policy_that_is_exceeded_beside_a_counter_of_the_outer_layer_is_named_too() {
    let answer = refused_by_a_counter_of_the_outer_layer_and_one_of_its_own().await;
    let violated = &answer.json()["violated-policies"];
    assert_eq!(violated, &serde_json::json!(["all", "strict"]));
}

#[tokio::test]
async fn retry_after_waits_for_a_policy_beside_a_counter_of_the_outer_layer_too() {
    let answer = refused_by_a_counter_of_the_outer_layer_and_one_of_its_own().await;
    assert_eq!(answer.only("retry-after"), "900");
}

#[tokio::test]
async fn a_switched_off_layer_of_several_counts_nothing_and_sends_no_fields() {
    let store = memory(&clock());
    let layer = by_client([all(0), strict(0)], &store).enabled(false);
    let answer = send(&layer.layer(hello()), from("alice")).await;
    assert_eq!(answer.status, 200);
    assert!(answer.headers.is_empty(), "{:?}", answer.headers);
    assert_eq!(used(all(9), &store).await, 0);
}

#[tokio::test]
async fn an_inner_refusal_is_told_by_one_retry_after_that_is_long_enough() {
    let clock = clock();
    let store = memory(&clock);
    let outer = [all(9), Policy::hourly(99).name("hourly")];
    let service = ServiceBuilder::new()
        .layer(by_client(outer, &store))
        .layer(by_client([all(9), strict(1)], &store))
        .service(hello());
    assert_eq!(statuses(&service, "alice", 1).await, [200]);
    let answer = send(&service, from("alice")).await;
    assert_eq!((answer.status, answer.only("retry-after")), (429, "900"));
    clock.advance(Duration::from_secs(900));
    assert_eq!(statuses(&service, "alice", 1).await, [200]);
}

#[tokio::test]
async fn a_sliding_counter_of_the_outer_layer_tells_the_inner_ones_exact_wait() {
    let clock = clock();
    let store = sqlite(&clock);
    let sliding = |limit| Policy::sliding(limit, 100).name("a");
    let service = ServiceBuilder::new()
        .layer(by_client(sliding(100), &store))
        .layer(by_client(sliding(2), &store))
        .service(hello());
    for _ in 0..2 {
        statuses(&service, "alice", 1).await;
        clock.advance(Duration::from_secs(1));
    }
    let refused = send(&service, from("alice")).await;
    // The outer layer has charged it, so three are used, and two must leave: the second one does at 101 s.
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), "99");
}
