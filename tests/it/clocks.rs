//! A clock that a test sets, given to a layer or a limiter.

use std::time::Duration;

use tollgate::{Key, Limiter, ManualClock, MemoryStore, Policy, RateLimitLayer, SqliteStore, key};
use tower::Layer;

use crate::support::{CLIENT, START, clock, from, hello, send, statuses};

const MINUTE: Duration = Duration::from_mins(1);

/// One request a minute for each client, but for the store.
fn one_a_minute() -> RateLimitLayer {
    RateLimitLayer::fixed(1, 60)
        .name("login")
        .key(key::header(CLIENT))
}

/// The layer lets one pass, and another one when the clock has moved by a minute.
async fn assert_decides_by(clock: &ManualClock, layer: &RateLimitLayer) {
    let service = layer.layer(hello());
    assert_eq!(statuses(&service, "alice", 2).await, [200, 429]);
    clock.advance(MINUTE);
    assert_eq!(statuses(&service, "alice", 2).await, [200, 429]);
}

#[tokio::test]
async fn without_a_store_the_layer_decides_by_its_clock() {
    let clock = clock();
    assert_decides_by(&clock, &one_a_minute().clock(&clock)).await;
}

#[tokio::test]
async fn with_a_store_it_is_the_clock_of_the_store_whichever_is_set_first() {
    for is_clock_first in [true, false] {
        let (in_memory, sqlite) = (clock(), clock());
        let (memory, database) = (MemoryStore::new(), SqliteStore::in_memory());
        let database = database.deadline(MINUTE);
        let (first, second) = if is_clock_first {
            (
                one_a_minute().clock(&in_memory).store(&memory),
                one_a_minute().clock(&sqlite).store(&database),
            )
        } else {
            (
                one_a_minute().store(&memory).clock(&in_memory),
                one_a_minute().store(&database).clock(&sqlite),
            )
        };
        assert_decides_by(&in_memory, &first).await;
        assert_decides_by(&sqlite, &second).await;
    }
}

#[tokio::test]
async fn only_the_first_clock_of_a_store_counts() {
    let (first, second) = (clock(), clock());
    let store = MemoryStore::new().clock(&first);
    let layer = one_a_minute().store(&store).clock(&second);
    let service = layer.layer(hello());
    assert_eq!(statuses(&service, "alice", 2).await, [200, 429]);
    second.advance(MINUTE);
    assert_eq!(statuses(&service, "alice", 1).await, [429]);
    first.advance(MINUTE);
    assert_eq!(statuses(&service, "alice", 1).await, [200]);
}

#[tokio::test]
async fn layers_with_a_clock_and_without_a_store_count_apart_and_clones_together() {
    let clock = clock();
    let layer = one_a_minute().clock(&clock);
    let (service, clone) = (layer.layer(hello()), layer.clone().layer(hello()));
    assert_eq!(statuses(&service, "alice", 1).await, [200]);
    assert_eq!(statuses(&clone, "alice", 1).await, [429]);
    let other = one_a_minute().clock(&clock).layer(hello());
    assert_eq!(statuses(&other, "alice", 1).await, [200]);
}

#[tokio::test]
async fn a_layer_with_a_clock_leaves_the_shared_store_on_the_systems() {
    let clock = clock();
    let set = one_a_minute().clock(&clock);
    send(&set.layer(hello()), from("alice")).await;
    let layer = RateLimitLayer::fixed(9, crate::support::LONG).key(key::header(CLIENT));
    let limiter = layer.limiter();
    let seen = limiter.check(&Key::header(CLIENT, "alice")).await.unwrap();
    assert_ne!(seen.decided_at(), START);
}

#[tokio::test]
async fn settings_after_the_clock_keep_it() {
    let clock = clock();
    let layer = RateLimitLayer::fixed(1, 60).clock(&clock);
    let layer = layer.name("login").key(key::header(CLIENT));
    let daily = Policy::daily(9).name("daily");
    let layer = layer.and(daily, key::header(CLIENT));
    assert_decides_by(&clock, &layer).await;
}

#[tokio::test]
async fn a_limiter_decides_by_its_clock_too() {
    let clock = clock();
    let user = Key::new("user", 42);
    for limiter in [
        Limiter::new(Policy::fixed(1, 60)).clock(&clock),
        Limiter::new(Policy::fixed(1, 60))
            .clock(&clock)
            .store(&SqliteStore::in_memory().deadline(MINUTE)),
    ] {
        let decision = limiter.check(&user).await.unwrap();
        assert_eq!(decision.decided_at(), clock.now());
        assert!(limiter.check(&user).await.unwrap().is_denied());
        clock.advance(MINUTE);
        assert!(limiter.check(&user).await.unwrap().is_allowed());
    }
}
