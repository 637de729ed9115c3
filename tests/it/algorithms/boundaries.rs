//! What each algorithm lets through at its boundaries, and at the ends of the numbers.

use std::time::Duration;

use tollgate::{Key, Limiter, ManualClock, Policy, SqliteStore, Store, Timestamp};
use tower::Layer;

use super::{each_algorithm, layer_of, stores};
use crate::support::{START, clock, get, hello, memory, send, sqlite};

/// How many of so many requests at once are let through.
async fn passed(policy: &Policy, store: &dyn Store, requests: usize) -> usize {
    let service = layer_of(policy.clone(), store).layer(hello());
    let mut passed = 0;
    for _ in 0..requests {
        passed += usize::from(send(&service, get("/")).await.status == 200);
    }
    passed
}

#[tokio::test]
async fn twice_the_limit_around_a_boundary_passes_of_fixed_windows_and_not_of_sliding_ones() {
    for (policy, expected) in [
        (Policy::fixed(5, 60), 5),
        (Policy::sliding(5, 60), 0),
        (Policy::sliding_counter(5, 60), 0),
        (Policy::token_bucket(5, 60), 0),
    ] {
        let clock = clock();
        for store in stores(&clock) {
            clock.set(START);
            clock.advance(Duration::from_millis(59_999));
            assert_eq!(passed(&policy, &*store, 9).await, 5, "{policy}");
            clock.advance(Duration::from_millis(1));
            assert_eq!(passed(&policy, &*store, 9).await, expected, "{policy}");
        }
    }
}

#[tokio::test]
async fn what_is_exactly_a_window_old_is_out_of_a_sliding_one() {
    let policy = Policy::sliding(5, 60);
    let clock = clock();
    for store in stores(&clock) {
        assert_eq!(passed(&policy, &*store, 9).await, 5);
        clock.advance(Duration::from_millis(59_999));
        assert_eq!(passed(&policy, &*store, 9).await, 0);
        clock.advance(Duration::from_millis(1));
        assert_eq!(passed(&policy, &*store, 9).await, 5);
    }
}

#[tokio::test]
async fn a_client_that_keeps_one_request_per_second_gets_about_the_limit_of_every_window() {
    for policy in [
        Policy::sliding(10, 60),
        Policy::sliding_counter(10, 60),
        Policy::token_bucket(10, 60),
    ] {
        let clock = clock();
        let store = sqlite(&clock);
        let mut each_minute = Vec::new();
        for _ in 0..10 {
            let mut minute = 0;
            for _ in 0..60 {
                minute += passed(&policy, &store, 1).await;
                clock.advance(Duration::from_secs(1));
            }
            each_minute.push(minute);
        }
        // Of a bucket the first minute has its burst and what comes back meanwhile.
        let is_fair = each_minute[1..]
            .iter()
            .all(|minute| (9..=11).contains(minute));
        assert!(is_fair && each_minute[0] <= 20, "{policy}: {each_minute:?}");
    }
}

#[tokio::test]
async fn a_limit_of_0_refuses_everything_and_promises_no_wait() {
    let mut policies = each_algorithm(0).to_vec();
    policies.push(Policy::token_bucket(10, 60).burst(0));
    for policy in policies {
        let clock = clock();
        for store in stores(&clock) {
            let service = layer_of(policy.clone(), &*store).layer(hello());
            for _ in 0..3 {
                let answer = send(&service, get("/")).await;
                assert_eq!(answer.status, 429, "{policy}");
                assert_eq!(answer.header("retry-after"), "", "{policy}");
                assert_eq!(answer.json().get("retry_after"), None, "{policy}");
                let limit = answer.only("ratelimit");
                assert!(limit.contains(";r=0;t="), "{limit}");
                assert!(!limit.ends_with("t=0"), "{limit}");
                clock.advance(Duration::from_hours(1));
            }
        }
    }
}

#[tokio::test]
async fn after_thirty_years_of_rest_there_is_exactly_the_limit() {
    for policy in each_algorithm(5) {
        let clock = clock();
        for store in stores(&clock) {
            assert_eq!(passed(&policy, &*store, 9).await, 5, "{policy}");
            clock.advance(Duration::from_hours(30 * 366 * 24));
            assert_eq!(passed(&policy, &*store, 9).await, 5, "{policy}");
        }
    }
}

#[tokio::test]
async fn the_largest_numbers_are_counted_without_wrapping() {
    let longest = Duration::from_hours(10 * 366 * 24);
    let most = u32::MAX;
    for policy in [
        Policy::try_fixed(most, longest).unwrap(),
        Policy::try_sliding(most, longest).unwrap(),
        Policy::try_sliding_counter(most, longest).unwrap(),
        Policy::try_token_bucket(most, longest).unwrap(),
        Policy::token_bucket(most, 1),
        Policy::token_bucket(1, 60).burst(5_000_000),
        Policy::monthly(most),
    ] {
        let clock = clock();
        for store in stores(&clock) {
            let limiter = Limiter::new(policy.clone()).store(&*store);
            let key = Key::constant("all");
            let limit = policy.limit();
            assert!(
                limiter.check_n(&key, limit).await.unwrap().is_allowed(),
                "{policy}"
            );
            let refused = limiter.check_n(&key, limit).await.unwrap();
            assert!(refused.is_denied(), "{policy}");
            assert_eq!(refused.remaining(), 0, "{policy}");
            let wait = refused.retry_after().unwrap();
            assert!(wait <= 2 * longest, "{policy}: {wait:?}");
            clock.advance(wait);
            assert!(
                limiter.check_n(&key, limit).await.unwrap().is_allowed(),
                "{policy}"
            );
            let answer = send(&layer_of(policy.clone(), &*store).layer(hello()), get("/")).await;
            assert_eq!(answer.status, 429, "{policy}");
            let seconds: u64 = answer.only("retry-after").parse().unwrap();
            assert!(
                (1..=2 * longest.as_secs()).contains(&seconds),
                "{policy}: {seconds}"
            );
        }
    }
}

#[tokio::test]
async fn a_cost_above_the_limit_is_refused_without_a_promise_and_uses_nothing() {
    for policy in each_algorithm(5) {
        let limiter = Limiter::new(policy.clone()).store(&memory(&clock()));
        let key = Key::constant("all");
        let refused = limiter.check_n(&key, 6).await.unwrap();
        assert_eq!(
            (refused.is_denied(), refused.retry_after()),
            (true, None),
            "{policy}"
        );
        assert_eq!(refused.used(), 0, "{policy}");
        assert!(
            limiter.check_n(&key, 5).await.unwrap().is_allowed(),
            "{policy}"
        );
    }
}

#[tokio::test]
async fn a_changed_limit_keeps_what_was_used() {
    for place in 0..7 {
        let of = |limit| each_algorithm(limit)[place].clone().name("login");
        for store in stores(&clock()) {
            assert_eq!(passed(&of(5), &*store, 3).await, 3);
            assert_eq!(passed(&of(8), &*store, 9).await, 5, "{}", of(8));
            assert_eq!(passed(&of(2), &*store, 9).await, 0, "{}", of(2));
        }
    }
}

#[tokio::test]
async fn what_was_used_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    for expected in [5, 0] {
        let clock = clock();
        let store = SqliteStore::open(&path).await.unwrap();
        let store = store.clock(&clock).deadline(Duration::from_mins(1));
        for policy in each_algorithm(5) {
            assert_eq!(passed(&policy, &store, 9).await, expected, "{policy}");
        }
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_clock_that_steps_back_an_hour_locks_nobody_out_for_longer_than_two_windows() {
    for policy in each_algorithm(5) {
        let clock = ManualClock::new(START);
        for store in stores(&clock) {
            clock.advance(Duration::from_hours(5));
            assert_eq!(passed(&policy, &*store, 9).await, 5, "{policy}");
            let now = clock.now().unix_millis();
            clock.set(Timestamp::from_unix_millis(now - 3_600_000));
            let service = layer_of(policy.clone(), &*store).layer(hello());
            let answer = send(&service, get("/")).await;
            if answer.status == 429 {
                let seconds = answer.only("retry-after").parse().unwrap();
                assert!(
                    seconds <= 2 * policy.window().as_secs(),
                    "{policy}: {seconds}"
                );
                clock.advance(Duration::from_secs(seconds));
                assert_eq!(send(&service, get("/")).await.status, 200, "{policy}");
            }
        }
    }
}
