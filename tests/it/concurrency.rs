//! Many requests at once: exactly the limit passes.

use axum::Router;
use axum::routing::get as on_get;
use tokio::task::JoinSet;
use tollgate::{Key, Limiter, Policy, RateLimitLayer, Store, key};
use tower::Layer;

use crate::support::{clock, from, hello, login, memory, send, serve, sqlite};

/// How many of so many requests at once got each status.
async fn pass_and_refused(layer: &RateLimitLayer, requests: usize) -> (usize, usize) {
    let mut tasks = JoinSet::new();
    for _ in 0..requests {
        let service = layer.layer(hello());
        tasks.spawn(async move { send(&service, from("alice")).await.status });
    }
    let statuses = tasks.join_all().await;
    let count = |wanted| statuses.iter().filter(|&&status| status == wanted).count();
    (count(200), count(429))
}

async fn assert_exact(store: &impl Store) {
    let layer = login(10, 60, store);
    assert_eq!(pass_and_refused(&layer, 200).await, (10, 190));
    let decision = layer
        .limiter()
        .peek(&Key::header("x-client-key", "alice"))
        .await
        .unwrap();
    assert_eq!((decision.used(), decision.attempts()), (10, 200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn exactly_the_limit_of_200_requests_at_once_passes_on_sqlite() {
    assert_exact(&sqlite(&clock())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn exactly_the_limit_of_200_requests_at_once_passes_in_memory() {
    assert_exact(&memory(&clock())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exactly_the_limit_of_200_requests_at_once_passes_over_http() {
    let layer = RateLimitLayer::fixed(10, 60)
        .key(key::peer_ip())
        .store(&sqlite(&clock()));
    let router = Router::new()
        .route("/", on_get(|| async { "hello" }))
        .layer(layer);
    let url = format!("http://{}/", serve(router).await);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..200 {
        let request = client.get(&url);
        tasks.spawn(async move { request.send().await.unwrap().status().as_u16() });
    }
    let statuses = tasks.join_all().await;
    assert_eq!(statuses.iter().filter(|&&status| status == 200).count(), 10);
    assert_eq!(
        statuses.iter().filter(|&&status| status == 429).count(),
        190
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_of_many_keys_at_once_has_exactly_its_limit() {
    let layer = login(3, 60, &sqlite(&clock()));
    let mut tasks = JoinSet::new();
    for request in 0..200 {
        let service = layer.layer(hello());
        let client = format!("client-{}", request % 20);
        tasks.spawn(async move { send(&service, from(client)).await.status });
    }
    let statuses = tasks.join_all().await;
    assert_eq!(statuses.iter().filter(|&&status| status == 200).count(), 60);
    assert_eq!(
        statuses.iter().filter(|&&status| status == 429).count(),
        140
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_admitted_request_is_told_a_remaining_of_its_own() {
    let layer = login(50, 60, &sqlite(&clock()));
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let service = layer.layer(hello());
        tasks.spawn(async move { send(&service, from("alice")).await.header("ratelimit") });
    }
    let mut told = tasks.join_all().await;
    told.sort();
    let mut expected: Vec<_> = (0..50)
        .map(|left| format!("\"login\";r={left};t=60"))
        .collect();
    expected.sort();
    assert_eq!(told, expected);
}

async fn assert_costs_are_all_or_nothing(store: &impl Store) {
    let limiter = Limiter::new(Policy::fixed(10, 60)).store(store);
    let key = Key::new("user", 42);
    assert!(limiter.check_n(&key, 8).await.unwrap().is_allowed());

    let refused = limiter.check_n(&key, 5).await.unwrap();
    assert!(refused.is_denied());
    assert_eq!(
        (refused.used(), refused.attempts(), refused.remaining()),
        (8, 13, 2)
    );
    assert!(refused.retry_after().is_some());

    assert!(limiter.check_n(&key, 1).await.unwrap().is_allowed());
    assert!(limiter.check_n(&key, 1).await.unwrap().is_allowed());
    assert!(limiter.check_n(&key, 1).await.unwrap().is_denied());
}

#[tokio::test]
async fn a_refused_cost_uses_nothing_of_what_is_left() {
    assert_costs_are_all_or_nothing(&sqlite(&clock())).await;
    assert_costs_are_all_or_nothing(&memory(&clock())).await;
}

async fn assert_no_wait_is_promised(store: &impl Store) {
    let limiter = Limiter::new(Policy::fixed(10, 60)).store(store);
    let key = Key::new("user", 42);
    for cost in [11, u32::MAX] {
        let refused = limiter.check_n(&key, cost).await.unwrap();
        assert!(refused.is_denied());
        assert_eq!(refused.retry_after(), None);
    }
    assert!(limiter.check_n(&key, 10).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_cost_above_the_limit_is_refused_without_a_promise() {
    assert_no_wait_is_promised(&sqlite(&clock())).await;
    assert_no_wait_is_promised(&memory(&clock())).await;
}

async fn assert_a_cost_of_0_looks(store: &impl Store) {
    let limiter = Limiter::new(Policy::fixed(1, 60)).store(store);
    let key = Key::new("user", 42);
    for used in [0, 1] {
        for _ in 0..2 {
            let look = limiter.check_n(&key, 0).await.unwrap();
            assert!(look.is_allowed());
            assert_eq!((look.used(), look.attempts()), (used, used));
        }
        let _ = limiter.check(&key).await.unwrap();
        if used == 0 {
            continue;
        }
        assert_eq!(limiter.check_n(&key, 0).await.unwrap().attempts(), 2);
    }
}

#[tokio::test]
async fn a_cost_of_0_is_a_look_that_uses_nothing() {
    assert_a_cost_of_0_looks(&sqlite(&clock())).await;
    assert_a_cost_of_0_looks(&memory(&clock())).await;
}
