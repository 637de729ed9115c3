//! Limits that decide and count, but refuse nobody.

use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use axum::routing::get as on_get;
use tollgate::{
    Decision, Decisions, FailureMode, Key, Limiter, Policy, RateLimitLayer, SqliteStore, Store, key,
};
use tower::{Layer, ServiceBuilder};

use crate::support::{
    Answer, CLIENT, capture_log, clock, from, get, hello, login, memory, send, sqlite, statuses,
};

fn decisions(answer: &Answer) -> &Decisions {
    answer.extensions.get().unwrap()
}

fn shadow(limit: u32, store: &impl Store) -> RateLimitLayer {
    login(limit, 60, store).shadow(true)
}

/// What a limit in force of this name has used for `alice`.
async fn used_in_force(store: &impl Store) -> u64 {
    let limiter = Limiter::new(Policy::fixed(9, 60).name("login")).store(store);
    let seen = limiter.peek(&Key::header(CLIENT, "alice")).await;
    seen.unwrap().used()
}

#[tokio::test]
async fn nobody_is_refused_and_the_decision_says_who_would_be() {
    for layer in [
        login(1, 60, &sqlite(&clock())),
        login(1, 60, &memory(&clock())),
    ] {
        let service = layer.shadow(true).layer(hello());
        let answer = send(&service, from("alice")).await;
        assert_eq!(answer.status, 200);
        assert!(decisions(&answer).shadows().all(Decision::is_allowed));
        for _ in 0..3 {
            let answer = send(&service, from("alice")).await;
            assert_eq!((answer.status, answer.text()), (200, "hello"));
            let refusal = decisions(&answer).shadows().next().unwrap();
            assert!(refusal.is_denied());
            assert_eq!(refusal.retry_after(), Some(Duration::from_mins(1)));
        }
    }
}

#[tokio::test]
async fn a_refusal_of_a_shadow_is_no_refusal_of_the_request() {
    let service = shadow(0, &memory(&clock())).layer(hello());
    let answer = send(&service, from("alice")).await;
    let decisions = decisions(&answer);
    assert!(decisions.denied().is_none());
    assert!(decisions.is_empty());
    assert_eq!((decisions.iter().len(), decisions.shadows().len()), (0, 1));
}

#[tokio::test]
async fn a_shadow_sends_no_fields() {
    let service = shadow(1, &memory(&clock())).layer(hello());
    for _ in 0..2 {
        let answer = send(&service, from("alice")).await;
        assert!(answer.headers.is_empty(), "{:?}", answer.headers);
    }
}

#[tokio::test]
async fn a_handler_sees_what_a_shadow_decided() {
    let handler = |Extension(decisions): Extension<Decisions>| async move {
        let would_be_refused = decisions.shadows().any(Decision::is_denied);
        would_be_refused.to_string()
    };
    let router = Router::new()
        .route("/", on_get(handler))
        .layer(shadow(1, &memory(&clock())));
    assert_eq!(send(&router, from("alice")).await.text(), "false");
    assert_eq!(send(&router, from("alice")).await.text(), "true");
}

#[tokio::test]
async fn a_request_without_a_key_passes() {
    let log = capture_log();
    let service = shadow(1, &memory(&clock())).layer(hello());
    let answer = send(&service, get("/")).await;
    assert_eq!(answer.status, 200);
    assert!(answer.extensions.get::<Decisions>().is_none());
    assert_eq!(log.lines_with("WARN").len(), 1);
}

#[tokio::test]
async fn a_mistake_in_the_set_up_is_told_and_passes() {
    let log = capture_log();
    let by_peer = shadow(1, &memory(&clock())).key(key::peer_ip());
    assert_eq!(send(&by_peer.layer(hello()), get("/")).await.status, 200);
    let plans = RateLimitLayer::one_of(Policy::fixed(1, 60).name("free"), |_| "gold");
    let plans = plans.key(key::header(CLIENT)).shadow(true);
    assert_eq!(send(&plans.layer(hello()), from("alice")).await.status, 200);
    assert_eq!(log.lines_with("ERROR").len(), 2);
}

#[tokio::test]
async fn a_store_that_fails_lets_all_pass_whatever_the_failure_mode() {
    for failure_mode in [FailureMode::Closed, FailureMode::Open] {
        let store = SqliteStore::in_memory();
        store.clone().close().await.unwrap();
        let layer = shadow(1, &store).on_store_failure(failure_mode);
        let answer = send(&layer.layer(hello()), from("alice")).await;
        assert_eq!((answer.status, answer.text()), (200, "hello"));
        assert!(answer.headers.is_empty(), "{:?}", answer.headers);
    }
}

#[tokio::test]
async fn an_answer_of_ones_own_is_not_given() {
    let layer = shadow(0, &memory(&clock()))
        .rejection(|_, _| Some(http::Response::builder().status(418).body("").unwrap()));
    assert_eq!(send(&layer.layer(hello()), from("alice")).await.status, 200);
}

#[tokio::test]
async fn a_shadow_outside_takes_nothing_from_a_limit_inside() {
    let store = sqlite(&clock());
    for shadow_limit in [0, 1, 9] {
        let service = ServiceBuilder::new()
            .layer(shadow(shadow_limit, &store))
            .layer(login(2, 60, &store))
            .service(hello());
        let answer = send(&service, from("alice")).await;
        assert_eq!(answer.only("ratelimit"), "\"login\";r=1;t=60");
        assert_eq!(decisions(&answer).iter().len(), 1);
        assert_eq!(decisions(&answer).shadows().len(), 1);
        assert_eq!(statuses(&service, "alice", 2).await, [200, 429]);
        let limiter = login(2, 60, &store).limiter();
        limiter.reset(&Key::header(CLIENT, "alice")).await.unwrap();
    }
}

#[tokio::test]
async fn a_shadow_inside_takes_nothing_from_a_limit_outside() {
    let store = sqlite(&clock());
    let inner = shadow(1, &store);
    let limiter = inner.limiter();
    let service = ServiceBuilder::new()
        .layer(login(3, 60, &store))
        .layer(inner)
        .service(hello());
    assert_eq!(
        statuses(&service, "alice", 5).await,
        [200, 200, 200, 429, 429]
    );
    let seen = limiter.peek(&Key::header(CLIENT, "alice")).await.unwrap();
    assert_eq!((seen.used(), seen.attempts()), (1, 3));
}

#[tokio::test]
async fn requests_that_a_shadow_alone_counts_use_nothing_of_a_limit_in_force() {
    let store = memory(&clock());
    let service = shadow(9, &store).layer(hello());
    statuses(&service, "alice", 5).await;
    assert_eq!(used_in_force(&store).await, 0);
}

#[tokio::test]
async fn the_same_shadow_around_and_inside_charges_a_request_once() {
    let layer = shadow(9, &memory(&clock()));
    let limiter = layer.limiter();
    let service = ServiceBuilder::new()
        .layer(layer.clone())
        .layer(layer)
        .service(hello());
    let answer = send(&service, from("alice")).await;
    assert_eq!(decisions(&answer).shadows().len(), 1);
    let seen = limiter.peek(&Key::header(CLIENT, "alice")).await.unwrap();
    assert_eq!(seen.used(), 1);
}

#[tokio::test]
async fn a_refusal_inside_has_the_decisions_of_the_shadow_outside_too() {
    let store = memory(&clock());
    let service = ServiceBuilder::new()
        .layer(shadow(0, &store))
        .layer(login(0, 60, &store).name("inner"))
        .service(hello());
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.status, 429);
    let decisions = decisions(&answer);
    assert_eq!(decisions.denied().unwrap().policy().as_name(), "inner");
    assert_eq!((decisions.iter().len(), decisions.shadows().len()), (1, 1));
}

#[tokio::test]
async fn the_layer_that_writes_the_fields_is_never_a_shadow_between_others() {
    let store = memory(&clock());
    let service = ServiceBuilder::new()
        .layer(login(9, 60, &store).name("outer"))
        .layer(shadow(5, &store))
        .layer(login(7, 60, &store).name("inner"))
        .service(hello());
    let answer = send(&service, from("alice")).await;
    assert_eq!(
        answer.header("ratelimit"),
        "\"inner\";r=6;t=60, \"outer\";r=8;t=60"
    );
    let decisions = decisions(&answer);
    let names: Vec<_> = decisions.iter().map(|it| it.policy().as_name()).collect();
    assert_eq!(names, ["outer", "inner"]);
    assert_eq!(decisions.shadows().len(), 1);
}

#[tokio::test]
async fn a_limit_that_comes_into_force_refuses_nobody_for_what_its_shadow_counted() {
    let store = memory(&clock());
    let layer = login(2, 60, &store);
    let on_trial = layer.clone().shadow(true).layer(hello());
    statuses(&on_trial, "alice", 5).await;
    let service = layer.layer(hello());
    assert_eq!(statuses(&service, "alice", 3).await, [200, 200, 429]);
}

#[tokio::test]
async fn a_shadow_that_is_switched_back_limits() {
    let layer = login(1, 60, &memory(&clock())).shadow(true).shadow(false);
    assert_eq!(
        statuses(&layer.layer(hello()), "alice", 2).await,
        [200, 429]
    );
}

#[tokio::test]
async fn the_order_of_settings_does_not_matter() {
    let store = memory(&clock());
    let base = RateLimitLayer::fixed(1, 60);
    let source = key::header(CLIENT);
    for layer in [
        base.clone().shadow(true).store(&store).key(source.clone()),
        base.key(source).store(&store).shadow(true),
    ] {
        let service = layer.name("login").layer(hello());
        assert_eq!(statuses(&service, "alice", 3).await, [200, 200, 200]);
    }
    assert_eq!(used_in_force(&store).await, 0);
}

#[tokio::test]
async fn layers_without_a_store_keep_their_shadows_apart() {
    let layer = || {
        let layer = RateLimitLayer::fixed(1, crate::support::LONG);
        layer.key(key::header(CLIENT)).shadow(true)
    };
    for service in [layer().layer(hello()), layer().layer(hello())] {
        let answer = send(&service, from("alice")).await;
        assert!(decisions(&answer).shadows().all(Decision::is_allowed));
    }
}
