//! The constructors of the layer, the names of policies, and what is said of them.

use std::time::Duration;

use tollgate::{Algorithm, Policy, RateLimitLayer, key};
use tower::Layer;

use super::{each_algorithm, layer_of, stores};
use crate::support::{CLIENT, capture_log, clock, from, get, hello, memory, send, statuses};

/// A layer by each constructor, that allows 3 requests at once; what it is called without a name; and what it says.
fn layers() -> [(RateLimitLayer, Algorithm, &'static str, &'static str); 8] {
    [
        (
            RateLimitLayer::fixed(3, 60),
            Algorithm::FixedWindow,
            "fixed-3-60s",
            "fixed-3-60s: 3 per 60 s, fixed window",
        ),
        (
            RateLimitLayer::sliding(3, 60),
            Algorithm::SlidingWindow,
            "sliding-3-60s",
            "sliding-3-60s: 3 per 60 s, sliding window",
        ),
        (
            RateLimitLayer::sliding_counter(3, 60),
            Algorithm::SlidingCounter,
            "sliding-counter-3-60s",
            "sliding-counter-3-60s: 3 per 60 s, sliding counter",
        ),
        (
            RateLimitLayer::token_bucket(3, 60),
            Algorithm::TokenBucket,
            "token-bucket-3-60s",
            "token-bucket-3-60s: 3 per 60 s, token bucket",
        ),
        (
            RateLimitLayer::token_bucket(1, 60).burst(3),
            Algorithm::TokenBucket,
            "token-bucket-1-60s-burst-3",
            "token-bucket-1-60s-burst-3: 1 per 60 s with bursts of 3, token bucket",
        ),
        (
            RateLimitLayer::hourly(3),
            Algorithm::CalendarHour,
            "hourly-3",
            "hourly-3: 3 per calendar hour, UTC",
        ),
        (
            RateLimitLayer::daily(3),
            Algorithm::CalendarDay,
            "daily-3",
            "daily-3: 3 per calendar day, UTC",
        ),
        (
            RateLimitLayer::monthly(3),
            Algorithm::CalendarMonth,
            "monthly-3",
            "monthly-3: 3 per calendar month, UTC",
        ),
    ]
}

fn by_client(layer: RateLimitLayer) -> RateLimitLayer {
    layer.key(key::header(CLIENT)).store(&memory(&clock()))
}

#[tokio::test]
async fn every_constructor_of_the_layer_lets_its_limit_pass_and_refuses_the_next() {
    for (layer, algorithm, ..) in layers() {
        assert_eq!(layer.limiter().policy().algorithm(), algorithm);
        let service = by_client(layer).layer(hello());
        let seen = statuses(&service, "alice", 5).await;
        assert_eq!(seen, [200, 200, 200, 429, 429], "{algorithm}");
        assert_eq!(statuses(&service, "bob", 1).await, [200], "{algorithm}");
    }
}

#[tokio::test]
async fn a_policy_without_a_name_is_told_by_the_word_of_its_constructor_and_its_numbers() {
    for (layer, _, name, _) in layers() {
        let answer = send(&by_client(layer).layer(hello()), from("alice")).await;
        let policy = answer.only("ratelimit-policy");
        assert!(
            policy.starts_with(&format!("\"{name}\";q=3;w=")),
            "{policy}"
        );
        let limit = answer.only("ratelimit");
        assert!(limit.starts_with(&format!("\"{name}\";r=2;t=")), "{limit}");
    }
}

#[tokio::test]
async fn a_policy_with_a_name_is_told_by_it() {
    for (layer, ..) in layers() {
        let layer = by_client(layer.name("login"));
        let answer = send(&layer.layer(hello()), from("alice")).await;
        assert!(
            answer
                .only("ratelimit-policy")
                .starts_with("\"login\";q=3;w=")
        );
        assert!(answer.only("ratelimit").starts_with("\"login\";r=2;t="));
    }
}

#[tokio::test]
async fn every_policy_says_what_it_is_in_one_info_line() {
    for (layer, _, _, said) in layers() {
        let log = capture_log();
        statuses(&by_client(layer).layer(hello()), "alice", 5).await;
        let said = format!(": {said}, key header x-client-key, store ");
        let lines = log.lines_with(" key ");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(&said), "{} is not {said}", lines[0]);
        assert!(lines[0].trim_start().starts_with("INFO"), "{}", lines[0]);
    }
}

#[test]
fn a_window_that_is_no_whole_seconds_is_in_the_name_in_milliseconds() {
    let window = Duration::from_millis(1_500);
    let names = [
        Policy::try_fixed(3, window),
        Policy::try_sliding(3, window),
        Policy::try_sliding_counter(3, window),
        Policy::try_token_bucket(3, window),
        Policy::try_token_bucket(3, window).and_then(|policy| policy.try_burst(9)),
    ]
    .map(|policy| policy.unwrap().as_name().to_owned());
    let expected = [
        "fixed-3-1500ms",
        "sliding-3-1500ms",
        "sliding-counter-3-1500ms",
        "token-bucket-3-1500ms",
        "token-bucket-3-1500ms-burst-9",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_burst_keeps_the_name_that_was_given_before_it() {
    let layer = RateLimitLayer::token_bucket(10, 1).name("api").burst(50);
    let limiter = layer.limiter();
    assert_eq!(
        (limiter.policy().as_name(), limiter.policy().limit()),
        ("api", 50)
    );
}

#[tokio::test]
async fn policies_of_one_name_but_other_algorithms_count_apart() {
    for store in stores(&clock()) {
        for policy in each_algorithm(1) {
            let service = layer_of(policy.name("login"), &*store).layer(hello());
            assert_eq!(send(&service, get("/")).await.status, 200);
            assert_eq!(send(&service, get("/")).await.status, 429);
        }
    }
}
