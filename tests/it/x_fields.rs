//! `X-RateLimit-*`.

use std::time::Duration;

use tollgate::{ResetFormat, key};
use tower::{Layer, ServiceBuilder};

use crate::support::{Answer, START, clock, from, get, hello, login, memory, send};

#[tokio::test]
async fn delta_seconds_are_those_of_ratelimit() {
    let clock = clock();
    let layer = login(5, 900, &memory(&clock)).x_rate_limit(ResetFormat::DeltaSeconds);
    let service = layer.layer(hello());
    clock.advance(Duration::from_millis(500));
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.x_fields(), ["5", "4", "900"]);
    assert_eq!(answer.only("ratelimit"), "\"login\";r=4;t=900");
}

#[tokio::test]
async fn epoch_seconds_are_the_end_of_the_window() {
    let clock = clock();
    let layer = login(1, 900, &memory(&clock)).x_rate_limit(ResetFormat::EpochSeconds);
    let service = layer.layer(hello());
    let end = (START.unix_millis() / 1_000 + 900).to_string();
    for status in [200, 429] {
        clock.advance(Duration::from_millis(1_234));
        let answer = send(&service, from("alice")).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.x_fields(), ["1", "0", &*end]);
    }
}

#[tokio::test]
async fn epoch_seconds_lie_within_a_second_of_now_and_the_told_wait() {
    let clock = clock();
    let policy = tollgate::Policy::try_fixed(1, Duration::from_millis(700)).unwrap();
    let layer = tollgate::RateLimitLayer::new(policy)
        .key(key::constant("all"))
        .store(&memory(&clock))
        .x_rate_limit(ResetFormat::EpochSeconds);
    let service = layer.layer(hello());
    for _ in 0..20 {
        clock.advance(Duration::from_millis(333));
        let answer = send(&service, get("/")).await;
        let reset: i64 = answer.only("x-ratelimit-reset").parse().unwrap();
        let now = clock.now().unix_millis();
        assert!(reset * 1_000 >= now);
        let told: i64 = answer
            .only("ratelimit")
            .rsplit_once("t=")
            .unwrap()
            .1
            .parse()
            .unwrap();
        assert!(
            (now + told * 1_000 - reset * 1_000).abs() <= 1_000,
            "{reset} at {now}, t={told}"
        );
    }
}

#[tokio::test]
async fn a_refused_request_without_any_wait_has_them_too() {
    let layer = login(0, 60, &memory(&clock())).x_rate_limit(ResetFormat::DeltaSeconds);
    let answer = send(&layer.layer(hello()), from("alice")).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.x_fields(), ["0", "0", "60"]);
}

#[tokio::test]
async fn a_request_without_a_key_has_none() {
    let layer = login(5, 60, &memory(&clock())).x_rate_limit(ResetFormat::DeltaSeconds);
    let answer = send(&layer.layer(hello()), get("/")).await;
    assert!(!answer.headers.contains_key("x-ratelimit-limit"));
}

/// The fields of a request through two limits.
async fn nested(outer: (u32, u64), inner: (u32, u64), requests: usize) -> Answer {
    let store = memory(&clock());
    let layer = |(limit, seconds), name: &str| {
        login(limit, seconds, &store)
            .name(name)
            .x_rate_limit(ResetFormat::DeltaSeconds)
    };
    let service = ServiceBuilder::new()
        .layer(layer(outer, "outer"))
        .layer(layer(inner, "inner"))
        .service(hello());
    for _ in 1..requests {
        send(&service, from("alice")).await;
    }
    send(&service, from("alice")).await
}

#[tokio::test]
async fn nested_limits_show_the_one_with_the_fewest_left() {
    let inner_is_stricter = nested((100, 60), (5, 900), 1).await;
    assert_eq!(inner_is_stricter.x_fields(), ["5", "4", "900"]);
    let outer_is_stricter = nested((5, 60), (100, 900), 1).await;
    assert_eq!(outer_is_stricter.x_fields(), ["5", "4", "60"]);
}

#[tokio::test]
async fn of_nested_limits_with_as_many_left_the_longest_wait_shows() {
    assert_eq!(
        nested((5, 900), (5, 60), 1).await.x_fields(),
        ["5", "4", "900"]
    );
    assert_eq!(
        nested((5, 60), (5, 900), 1).await.x_fields(),
        ["5", "4", "900"]
    );
}

#[tokio::test]
async fn a_nested_refusal_shows_itself() {
    let answer = nested((100, 900), (1, 60), 2).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.x_fields(), ["1", "0", "60"]);
}
