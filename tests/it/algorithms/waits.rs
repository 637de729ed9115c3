//! The waits that are told are those after which a request passes.

use std::ops::Range;
use std::slice;
use std::time::Duration;

use proptest::prelude::*;
use tollgate::{
    Decision, Key, Limiter, ManualClock, Policy, Problem, RateLimitLayer, Rejection, Store, key,
};
use tower::Layer;

use super::{each_algorithm, layer_of, stores};
use crate::fields::parsed;
use crate::support::{Answer, clock, get, hello, memory, send, sqlite};

/// A policy of any algorithm with a small limit.
fn any_policy() -> impl Strategy<Value = Policy> {
    let window = prop_oneof![1..100_u64, 1..100_000_u64, Just(1_000), Just(60_000)];
    (0..8, 1..7_u32, 1..7_u32, window).prop_map(|(algorithm, limit, burst, window)| {
        let window = Duration::from_millis(window);
        match algorithm {
            0 => Policy::try_fixed(limit, window).unwrap(),
            1 => Policy::try_sliding(limit, window).unwrap(),
            2 => Policy::try_sliding_counter(limit, window).unwrap(),
            3 => Policy::try_token_bucket(limit, window).unwrap(),
            4 => Policy::try_token_bucket(limit, window)
                .unwrap()
                .burst(burst),
            5 => Policy::hourly(limit),
            6 => Policy::daily(limit),
            _ => Policy::monthly(limit),
        }
    })
}

/// One policy, or several with names of their own.
fn any_policies() -> impl Strategy<Value = Vec<Policy>> {
    prop::collection::vec(any_policy(), 1..4).prop_map(|policies| {
        let named = policies.into_iter().enumerate();
        named
            .map(|(place, policy)| policy.name(&format!("p{place}")))
            .collect()
    })
}

/// Milliseconds between requests, many of which come at once.
fn any_steps() -> impl Strategy<Value = Vec<u64>> {
    let step = prop_oneof![Just(0), 0..20_u64, 0..20_000_u64, 0..5_000_000_u64];
    prop::collection::vec(step, 1..30)
}

/// Milliseconds of about four months.
const MONTHS: Range<u64> = 0..10_000_000_000;

fn clock_at(millis: u64) -> ManualClock {
    let clock = clock();
    clock.advance(Duration::from_millis(millis));
    clock
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(work)
}

/// What `RateLimit` tells of a policy: the units that are left, and the seconds.
fn told(answer: &Answer) -> Vec<(i64, i64)> {
    let members = parsed(answer.only("ratelimit"));
    let told = members.into_iter().map(|(_, params)| match &params[..] {
        [(r, left), (t, seconds)] if r == "r" && t == "t" => (*left, *seconds),
        params => panic!("{params:?}"),
    });
    told.collect()
}

/// What holds of the fields of every answer.
fn assert_fields_are_sane(answer: &Answer, policies: &[Policy]) {
    let retry_after: Option<i64> = answer.header("retry-after").parse().ok();
    assert_eq!(retry_after.is_some(), answer.status == 429);
    let violated = match answer.status {
        429 => answer.json()["violated-policies"]
            .as_array()
            .unwrap()
            .clone(),
        _ => Vec::new(),
    };
    let quotas = parsed(answer.only("ratelimit-policy"));
    for (((name, quota), (left, seconds)), policy) in quotas.iter().zip(told(answer)).zip(policies)
    {
        let limit = i64::from(policy.limit());
        assert_eq!((name.as_str(), quota[0].1), (policy.as_name(), limit));
        assert!(quota[1].1 >= 1, "w of {policy}");
        assert!((0..=limit).contains(&left), "r={left} of {policy}");
        assert!(seconds >= 1, "t={seconds} of {policy}");
        if violated.iter().any(|one| one == policy.as_name()) {
            assert_eq!(left, 0, "{policy}");
            assert!(
                Some(seconds) <= retry_after,
                "t={seconds} of {policy}, {retry_after:?}"
            );
        }
    }
}

/// Sends requests at these steps; waits exactly as long as each refusal says, and must be let through then.
async fn assert_a_wait_helps(
    policies: &[Policy],
    clock: &ManualClock,
    store: &dyn Store,
    steps: &[u64],
) {
    let layer = RateLimitLayer::new(policies.to_vec());
    let layer = layer.key(key::constant("all")).store(store);
    let service = layer.layer(hello());
    for step in steps {
        clock.advance(Duration::from_millis(*step));
        let answer = send(&service, get("/")).await;
        assert_fields_are_sane(&answer, policies);
        if answer.status == 429 {
            let seconds = answer.only("retry-after").parse().unwrap();
            assert_eq!(answer.json()["retry_after"], seconds);
            clock.advance(Duration::from_secs(seconds));
            let answer = send(&service, get("/")).await;
            assert_eq!(answer.status, 200, "{policies:?} after {seconds} s");
            assert_fields_are_sane(&answer, policies);
        }
    }
}

/// No policy that refused tells a time after the wait, also when it has something left, but less than was asked for.
fn assert_no_time_is_after_the_wait(refused: &Decision) {
    let response = Rejection::Denied(refused.clone()).to_response(&Problem::default());
    let header = |name| response.headers()[name].to_str().unwrap();
    let retry_after: i64 = header("retry-after").parse().unwrap();
    let told = parsed(header("ratelimit"));
    for (verdict, (_, params)) in refused.verdicts().zip(told) {
        let (policy, seconds) = (verdict.policy(), params[1].1);
        let is_within = verdict.is_allowed() || seconds <= retry_after;
        assert!(is_within, "t={seconds} of {policy}, {retry_after}");
    }
}

/// Charges at these steps; a refused charge passes after exactly its wait, and not a millisecond before.
async fn assert_waits_are_exact(
    policies: &[Policy],
    clock: &ManualClock,
    store: &dyn Store,
    steps: &[u64],
) {
    let limiter = Limiter::new(policies.to_vec()).store(store);
    let key = Key::constant("all");
    let smallest = policies.iter().map(Policy::limit).min().unwrap();
    for (place, step) in (0..).zip(steps) {
        clock.advance(Duration::from_millis(*step));
        let cost = 1 + place % smallest;
        let decision = limiter.check_n(&key, cost).await.unwrap();
        if let Some(wait) = decision.retry_after() {
            assert_no_time_is_after_the_wait(&decision);
            let millisecond = Duration::from_millis(1);
            let almost = wait.checked_sub(millisecond).expect("a wait");
            clock.advance(almost);
            let early = limiter.check_n(&key, cost).await.unwrap();
            assert_eq!(
                early.retry_after(),
                Some(millisecond),
                "{policies:?} after {wait:?}"
            );
            clock.advance(millisecond);
            let decision = limiter.check_n(&key, cost).await.unwrap();
            assert!(decision.is_allowed(), "{policies:?} after {wait:?}");
        } else {
            assert!(decision.is_allowed(), "{policies:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn waiting_exactly_retry_after_helps_whatever_the_policies(
        policies in any_policies(), start in MONTHS, steps in any_steps(),
    ) {
        let clock = clock_at(start);
        block_on(assert_a_wait_helps(&policies, &clock, &memory(&clock), &steps));
    }

    #[test]
    fn the_wait_of_a_limiter_is_exact_to_the_millisecond(
        policies in any_policies(), start in MONTHS, steps in any_steps(),
    ) {
        let clock = clock_at(start);
        block_on(assert_waits_are_exact(&policies, &clock, &memory(&clock), &steps));
    }

    #[test]
    fn when_nothing_is_left_there_is_more_after_the_told_time(
        policy in any_policy(), start in MONTHS, steps in any_steps(),
    ) {
        let clock = clock_at(start);
        let layer = layer_of(policy.clone(), &memory(&clock));
        let (service, limiter) = (layer.layer(hello()), layer.limiter());
        block_on(async {
            for step in steps {
                clock.advance(Duration::from_millis(step));
                let answer = send(&service, get("/")).await;
                let (left, seconds) = told(&answer)[0];
                if left == 0 {
                    clock.advance(Duration::from_secs(seconds.unsigned_abs()));
                    let later = limiter.peek(&Key::constant("all")).await.unwrap();
                    assert!(later.remaining() >= 1, "{policy}: t={seconds}");
                }
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn waiting_exactly_retry_after_helps_in_sqlite_too(
        policies in any_policies(), start in MONTHS, steps in any_steps(),
    ) {
        let clock = clock_at(start);
        block_on(assert_a_wait_helps(&policies, &clock, &sqlite(&clock), &steps));
    }

    #[test]
    fn the_wait_of_a_limiter_in_sqlite_is_exact_to_the_millisecond(
        policies in any_policies(), start in MONTHS, steps in any_steps(),
    ) {
        let clock = clock_at(start);
        block_on(assert_waits_are_exact(&policies, &clock, &sqlite(&clock), &steps));
    }
}

#[tokio::test]
async fn waiting_exactly_retry_after_helps_with_each_algorithm() {
    let mut policies = each_algorithm(3).to_vec();
    policies.push(Policy::token_bucket(1, 7).burst(3));
    for policy in policies {
        let clock = clock();
        for store in stores(&clock) {
            let steps = [1_234, 0, 0, 0, 0, 100, 700, 0, 0, 0];
            assert_a_wait_helps(slice::from_ref(&policy), &clock, &*store, &steps).await;
        }
    }
}

#[tokio::test]
async fn the_wait_is_exact_with_each_algorithm() {
    let mut policies = each_algorithm(3).to_vec();
    policies.push(Policy::token_bucket(1, 7).burst(3));
    for policy in policies {
        let clock = clock();
        for store in stores(&clock) {
            let steps = [1_234, 0, 0, 0, 0, 100, 700, 0, 0, 0];
            assert_waits_are_exact(slice::from_ref(&policy), &clock, &*store, &steps).await;
        }
    }
}

#[tokio::test]
async fn what_is_left_falls_by_one_per_request_and_stays_at_0() {
    for policy in each_algorithm(3) {
        let clock = clock();
        for store in stores(&clock) {
            let service = layer_of(policy.clone(), &*store).layer(hello());
            for (left, status) in [(2, 200), (1, 200), (0, 200), (0, 429), (0, 429)] {
                let answer = send(&service, get("/")).await;
                assert_eq!(
                    (told(&answer)[0].0, answer.status),
                    (left, status),
                    "{policy}"
                );
            }
        }
    }
}
