//! The promise: wait as long as you are told, and the same request passes.

use std::time::Duration;

use axum::body::Body;
use http::Request;
use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tollgate::{
    Key, Limiter, ManualClock, Policy, RateLimitLayer, ResetFormat, Store, Timestamp, key,
};
use tower::Layer;

use crate::support::{START, clock, hello, memory, send, sqlite};

const MILLISECOND: Duration = Duration::from_millis(1);
/// 1 ms, odd lengths, and the longest window.
const WINDOWS: [u64; 8] = [
    1,
    100,
    999,
    1_001,
    7_000,
    60_000,
    86_400_000,
    10 * 366 * 86_400_000,
];

fn windows() -> impl Strategy<Value = u64> {
    prop_oneof![proptest::sample::select(&WINDOWS[..]), 1..100_000_u64]
}

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

/// Uses the whole limit, is refused, waits for `Retry-After` by the clock, and asks again.
async fn passes_after_retry_after(
    clock: &ManualClock,
    store: &impl Store,
    policy: Policy,
    client: u32,
) -> bool {
    let limit = policy.limit();
    let layer = RateLimitLayer::new(policy)
        .key(key::constant(client))
        .store(store);
    let service = layer.layer(hello());
    for _ in 0..limit {
        assert_eq!(
            send(&service, Request::new(Body::empty())).await.status,
            200
        );
    }
    let refused = send(&service, Request::new(Body::empty())).await;
    assert_eq!(refused.status, 429);
    let seconds = refused.only("retry-after").parse().unwrap();
    clock.advance(Duration::from_secs(seconds));
    send(&service, Request::new(Body::empty())).await.status == 200
}

/// Uses the whole limit, is refused, and asks again just before and at `retry_after`.
async fn passes_exactly_at_retry_after(
    clock: &ManualClock,
    store: &impl Store,
    policy: Policy,
    client: u32,
    cost: u32,
) -> bool {
    let limit = policy.limit();
    let limiter = Limiter::new(policy).store(store);
    let key = Key::constant(client);
    assert!(limiter.check_n(&key, limit).await.unwrap().is_allowed());
    let refused = limiter.check_n(&key, cost).await.unwrap();
    let retry_after = refused.retry_after().expect("a wait that helps");
    let retry_at = clock.now().saturating_add(retry_after);
    clock.advance(retry_after.saturating_sub(MILLISECOND));
    let early = limiter.check_n(&key, cost).await.unwrap();
    clock.set(retry_at);
    let in_time = limiter.check_n(&key, cost).await.unwrap();
    early.is_denied() && in_time.is_allowed()
}

fn policy(limit: u32, window: u64) -> Policy {
    let window = Duration::from_millis(window);
    Policy::try_fixed(limit, window).unwrap().name("waiting")
}

fn starting(offset: u64) -> Timestamp {
    START.saturating_add(Duration::from_millis(offset))
}

proptest! {
    #[test]
    fn a_client_that_waits_for_retry_after_passes(
        limit in 1..5_u32, window in windows(), offset in 0..1_000_000_u64,
    ) {
        let clock = clock();
        clock.set(starting(offset));
        let passes = runtime().block_on(passes_after_retry_after(&clock, &memory(&clock), policy(limit, window), 1));
        prop_assert!(passes);
    }

    #[test]
    fn a_charge_passes_at_its_retry_after_and_not_one_millisecond_before(
        limit in 1..5_u32, cost in 1..5_u32, window in windows(), offset in 0..1_000_000_u64,
    ) {
        let clock = clock();
        clock.set(starting(offset));
        let store = memory(&clock);
        let cost = cost.min(limit);
        let passes = runtime().block_on(passes_exactly_at_retry_after(&clock, &store, policy(limit, window), 1, cost));
        prop_assert!(passes);
    }
}

#[test]
fn the_promise_holds_on_sqlite_for_every_window() {
    runtime().block_on(async {
        for (index, window) in (0..).zip(WINDOWS) {
            for offset in [0, 1, 12_345] {
                let clock = clock();
                let store = sqlite(&clock);
                clock.set(starting(offset));
                assert!(
                    passes_after_retry_after(&clock, &store, policy(2, window), index).await,
                    "{window} ms"
                );
                clock.set(starting(offset));
                let client = index + 1_000;
                assert!(
                    passes_exactly_at_retry_after(&clock, &store, policy(2, window), client, 1)
                        .await,
                    "{window} ms"
                );
            }
        }
    });
}

#[tokio::test]
async fn the_last_millisecond_belongs_to_the_old_window_and_the_next_one_to_the_new() {
    let clock = clock();
    let limiter = Limiter::new(Policy::fixed(1, 60)).store(&sqlite(&clock));
    let key = Key::constant("all");
    assert!(limiter.check(&key).await.unwrap().is_allowed());
    clock.advance(Duration::from_millis(59_999));
    assert!(limiter.check(&key).await.unwrap().is_denied());
    clock.advance(MILLISECOND);
    assert!(limiter.check(&key).await.unwrap().is_allowed());
}

/// Two requests on a limit of 1 at this instant: their statuses.
async fn at(now: i64, store: &impl Store, window: u64) -> [u16; 2] {
    let layer = RateLimitLayer::new(policy(1, window))
        .key(key::constant(now))
        .x_rate_limit(ResetFormat::EpochSeconds)
        .store(store);
    let service = layer.layer(hello());
    let first = send(&service, Request::new(Body::empty())).await;
    let second = send(&service, Request::new(Body::empty())).await;
    assert!(second.only("retry-after").parse::<u64>().unwrap() >= 1);
    [first.status, second.status]
}

proptest! {
    #[test]
    fn no_instant_makes_a_request_panic_or_slip_through(now in any::<i64>(), window in windows()) {
        let clock = ManualClock::new(Timestamp::from_unix_millis(now));
        let statuses = runtime().block_on(at(now, &memory(&clock), window));
        prop_assert_eq!(statuses, [200, 429]);
    }
}

#[tokio::test]
async fn the_ends_of_time_and_1970_are_instants_like_any_other_on_sqlite() {
    let clock = clock();
    let store = sqlite(&clock);
    for now in [
        i64::MIN,
        i64::MIN + 1,
        -60_001,
        -1,
        0,
        1,
        i64::MAX - 1,
        i64::MAX,
    ] {
        clock.set(Timestamp::from_unix_millis(now));
        for window in WINDOWS {
            assert_eq!(
                at(now, &store, window).await,
                [200, 429],
                "{now}, {window} ms"
            );
        }
    }
}
