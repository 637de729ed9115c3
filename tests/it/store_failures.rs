//! A store that gives no answer.

use http::Method;
use tollgate::{
    Decisions, FailureMode, Key, Limiter, MemoryStore, Policy, Problem, RateLimitLayer, Rejection,
    ResetFormat, SqliteStore, StoreError, key,
};
use tower::{Layer, ServiceBuilder};

use crate::support::{
    Answer, CLIENT, capture_log, clock, from, hello, login, memory, send, sqlite, statuses,
};

/// A `login` that refuses when its store gives no answer.
fn closed_login(limit: u32, seconds: u64, store: &SqliteStore) -> RateLimitLayer {
    login(limit, seconds, store).on_store_failure(FailureMode::Closed)
}

/// A store in a file, closed again.
async fn closed_file() -> (tempfile::TempDir, SqliteStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("secret-place.db"))
        .await
        .unwrap();
    store.close().await.unwrap();
    (folder, store)
}

fn assert_is_503(answer: &Answer) {
    assert_eq!(answer.status, 503);
    assert_eq!(answer.only("content-type"), "application/problem+json");
    assert_eq!(answer.only("cache-control"), "no-store");
    assert!(answer.only("retry-after").parse::<u64>().unwrap() >= 1);
    for name in [
        "ratelimit",
        "ratelimit-policy",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
    ] {
        assert!(!answer.headers.contains_key(name), "{name}");
    }
    let problem = answer.json();
    assert_eq!(problem["status"], 503);
    assert_eq!(problem["type"], "about:blank");
    assert_eq!(problem["title"], "Service Unavailable");
    assert_eq!(
        problem["retry_after"].to_string(),
        answer.only("retry-after")
    );
    assert_eq!(problem.get("violated-policies"), None);
}

#[tokio::test]
async fn a_closed_store_is_a_503_problem_document_with_retry_after_and_no_fields() {
    let (_folder, store) = closed_file().await;
    let layer = closed_login(9, 60, &store).x_rate_limit(ResetFormat::DeltaSeconds);
    assert_is_503(&send(&layer.layer(hello()), from("alice")).await);
}

#[tokio::test]
async fn the_503_tells_nothing_of_the_database_or_the_key() {
    let (_folder, store) = closed_file().await;
    let answer = send(&closed_login(9, 60, &store).layer(hello()), from("alice")).await;
    let all = format!("{:?} {}", answer.headers, answer.text()).to_lowercase();
    for secret in ["database", "sql", "secret-place", "alice", ".db", "closed"] {
        assert!(!all.contains(secret), "{secret} in {all}");
    }
}

#[tokio::test]
async fn the_inner_service_does_not_run_without_the_store() {
    let (_folder, store) = closed_file().await;
    let answer = send(&closed_login(9, 60, &store).layer(hello()), from("alice")).await;
    assert!(!answer.text().contains("hello"));
}

#[tokio::test]
async fn a_head_without_the_store_has_no_body() {
    let (_folder, store) = closed_file().await;
    let service = closed_login(9, 60, &store).layer(hello());
    let whole = send(&service, from("alice")).await;
    let mut head = from("alice");
    *head.method_mut() = Method::HEAD;
    let answer = send(&service, head).await;
    assert_eq!(answer.status, 503);
    assert!(answer.body.is_empty());
    assert_eq!(answer.only("content-length"), whole.body.len().to_string());
}

#[tokio::test]
async fn an_open_limit_lets_pass_without_any_fields() {
    let (_folder, store) = closed_file().await;
    let layer = login(1, 60, &store)
        .on_store_failure(FailureMode::Open)
        .x_rate_limit(ResetFormat::DeltaSeconds);
    let service = layer.layer(hello());
    for _ in 0..3 {
        let answer = send(&service, from("alice")).await;
        assert_eq!((answer.status, answer.text()), (200, "hello"));
        assert!(answer.headers.is_empty(), "{:?}", answer.headers);
    }
}

#[tokio::test]
async fn an_open_limit_marks_what_it_did_not_count() {
    let (_folder, store) = closed_file().await;
    let layer = login(1, 60, &store).on_store_failure(FailureMode::Open);
    let answer = send(&layer.layer(hello()), from("alice")).await;
    let decisions: &Decisions = answer.extensions.get().unwrap();
    let decision = decisions.iter().next().unwrap();
    assert!(decision.is_degraded() && decision.is_allowed());
}

#[tokio::test]
async fn a_refusal_is_no_failure() {
    let layer = login(1, 60, &sqlite(&clock())).on_store_failure(FailureMode::Open);
    assert_eq!(
        statuses(&layer.layer(hello()), "alice", 3).await,
        [200, 429, 429]
    );
}

#[tokio::test]
async fn a_failed_inner_store_keeps_the_fields_of_the_outer_limit() {
    let (_folder, store) = closed_file().await;
    let service = ServiceBuilder::new()
        .layer(login(9, 60, &memory(&clock())).name("outer"))
        .layer(closed_login(9, 60, &store))
        .service(hello());
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.only("ratelimit"), "\"outer\";r=8;t=60");
}

#[tokio::test]
async fn a_limiter_on_a_closed_store_returns_the_error() {
    let (_folder, store) = closed_file().await;
    let limiter = Limiter::new(Policy::fixed(1, 60))
        .store(&store)
        .on_store_failure(FailureMode::Closed);
    let key = Key::constant("all");
    let error = limiter.check(&key).await.unwrap_err();
    assert!(matches!(error, StoreError::Closed), "{error:?}");
    assert!(limiter.peek(&key).await.is_err());
    assert!(limiter.reset(&key).await.is_err());
}

#[tokio::test]
async fn the_error_answered_by_a_handler_is_the_layers_answer() {
    let (_folder, store) = closed_file().await;
    let layer = closed_login(9, 60, &store);
    let by_layer = send(&layer.layer(hello()), from("alice")).await;
    let error = layer
        .limiter()
        .check(&Key::constant("all"))
        .await
        .unwrap_err();
    let by_hand = Rejection::from(error).to_response(&Problem::default());
    assert_eq!(by_hand.status(), by_layer.status);
    assert_eq!(by_hand.headers(), &by_layer.headers);
    assert_eq!(by_hand.body(), &by_layer.body);
}

#[tokio::test]
async fn closing_one_store_leaves_others_alone() {
    let (first, second) = (sqlite(&clock()), sqlite(&clock()));
    first.close().await.unwrap();
    assert_eq!(
        statuses(&login(1, 60, &second).layer(hello()), "alice", 2).await,
        [200, 429]
    );
}

#[tokio::test]
async fn a_full_store_is_a_503_for_new_keys_and_keeps_refusing_the_old_ones() {
    let store = MemoryStore::new().clock(&clock()).max_keys(1);
    let service = login(1, 60, &store).layer(hello());
    assert_eq!(statuses(&service, "alice", 2).await, [200, 429]);
    assert_is_503(&send(&service, from("bob")).await);
    assert_eq!(statuses(&service, "alice", 1).await, [429]);
}

#[tokio::test]
async fn a_full_memory_is_told_once() {
    let log = capture_log();
    let store = MemoryStore::new().clock(&clock()).max_keys(1);
    let service = login(1, 60, &store).layer(hello());
    assert_eq!(statuses(&service, "alice", 2).await, [200, 429]);
    for client in ["bob", "carol", "bob"] {
        assert_eq!(send(&service, from(client)).await.status, 503);
        assert_eq!(statuses(&service, "alice", 1).await, [429]);
    }
    let lines = log.lines_with("holds as many keys as its cap allows");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].trim_start().starts_with("ERROR"), "{}", lines[0]);
    assert!(lines[0].contains("store=\"memory\""), "{}", lines[0]);
}

#[tokio::test]
async fn the_order_of_settings_does_not_matter() {
    let (_folder, store) = closed_file().await;
    let layer = RateLimitLayer::fixed(1, 60)
        .on_store_failure(FailureMode::Open)
        .key(key::header(CLIENT))
        .store(&store)
        .name("login");
    assert_eq!(
        statuses(&layer.layer(hello()), "alice", 2).await,
        [200, 200]
    );
    let layer = layer.store(&memory(&clock()));
    assert_eq!(
        statuses(&layer.layer(hello()), "alice", 2).await,
        [200, 429]
    );
}

#[tokio::test]
async fn a_closed_limit_inside_an_open_one_on_the_same_counter_still_refuses() {
    let (_folder, store) = closed_file().await;
    for limit in [9, 3] {
        let outer = login(9, 60, &store).on_store_failure(FailureMode::Open);
        let inner = closed_login(limit, 60, &store);
        let service = outer.layer(inner.layer(hello()));
        assert_is_503(&send(&service, from("alice")).await);
    }
}
