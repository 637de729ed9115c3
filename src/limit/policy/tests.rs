//! What is built, what it is called, and what is refused.

use std::time::Duration;

use super::policy::LONGEST_WINDOW;
use super::*;

#[test]
fn a_policy_without_a_name_is_called_after_its_numbers() {
    assert_eq!(Policy::fixed(5, 60).as_name(), "fixed-5-60s");
    let short = Policy::try_fixed(7, Duration::from_millis(1_500)).unwrap();
    assert_eq!(short.as_name(), "fixed-7-1500ms");
    assert_eq!(short.window_seconds(), 2);
    assert_eq!(Policy::sliding(5, 60).as_name(), "sliding-5-60s");
    assert_eq!(
        Policy::sliding_counter(5, 60).as_name(),
        "sliding-counter-5-60s"
    );
    assert_eq!(Policy::token_bucket(5, 60).as_name(), "token-bucket-5-60s");
    let burst = Policy::token_bucket(5, 60).burst(20);
    assert_eq!(burst.as_name(), "token-bucket-5-60s-burst-20");
    assert_eq!(burst.burst(5).as_name(), "token-bucket-5-60s");
    assert_eq!(Policy::daily(10_000).as_name(), "daily-10000");
}

#[test]
fn a_counter_is_filed_under_name_algorithm_and_window_but_not_limit() {
    let five = Policy::fixed(5, 60).name("login");
    let fifty = Policy::fixed(50, 60).name("login");
    let hourly = Policy::fixed(5, 3_600).name("login");
    assert_eq!(five.counter_name(), "login;fixed;60s");
    assert_eq!(five.counter_name(), fifty.counter_name());
    assert_ne!(five.counter_name(), hourly.counter_name());
    let names = [
        Policy::sliding(5, 60),
        Policy::sliding_counter(5, 60),
        Policy::token_bucket(5, 60).burst(20),
        Policy::hourly(5),
        Policy::daily(5),
        Policy::monthly(5),
    ]
    .map(|policy| policy.name("p").counter_name());
    let stored = [
        "p;sliding;60s",
        "p;counter;60s",
        "p;bucket;60s",
        "p;calendar;hour",
        "p;calendar;day",
        "p;calendar;month",
    ];
    assert_eq!(names, stored);
}

#[test]
fn nonsense_is_refused_when_it_is_built() {
    let build = |window| Policy::try_fixed(1, window).map(|_| ());
    assert_eq!(build(Duration::ZERO), Err(PolicyError::ZeroWindow));
    assert_eq!(build(Duration::MAX), Err(PolicyError::WindowTooLong));
    assert_eq!(
        build(Duration::from_secs(u64::MAX)),
        Err(PolicyError::WindowTooLong)
    );
    assert_eq!(
        build(Duration::from_nanos(1)),
        Err(PolicyError::WindowFraction)
    );
    assert_eq!(build(LONGEST_WINDOW), Ok(()));
}

#[test]
fn names_are_printable_tokens() {
    let name = |name: &str| Policy::fixed(1, 1).try_name(name).map(|_| ());
    for good in ["a", "login", "API:v2/search-*", &"n".repeat(64)] {
        assert_eq!(name(good), Ok(()), "{good}");
    }
    let bad = [
        "", " ", "1st", "a b", "a\"b", "a\\b", "a;b", "é", "a\u{7f}", "a\n",
    ];
    for bad in bad.into_iter().chain([&*"n".repeat(65)]) {
        assert!(name(bad).is_err(), "{bad}");
    }
}

#[test]
#[should_panic(expected = "window is 0")]
fn the_short_constructor_panics_on_a_zero_window() {
    let _ = Policy::fixed(3, 0);
}

#[test]
fn policies_say_what_they_allow() {
    let said = [
        (Policy::sliding(5, 60), "p: 5 per 60 s, sliding window"),
        (Policy::token_bucket(5, 1), "p: 5 per 1 s, token bucket"),
        (Policy::hourly(5), "p: 5 per calendar hour, UTC"),
        (Policy::monthly(5), "p: 5 per calendar month, UTC"),
    ];
    for (policy, expected) in said {
        assert_eq!(policy.name("p").to_string(), expected);
    }
}

#[test]
fn a_burst_is_for_token_buckets_and_comes_back_within_ten_years() {
    let burst = |policy: Policy, burst| policy.try_burst(burst).map(|policy| policy.window());
    let day = Policy::token_bucket(1, 86_400);
    assert_eq!(burst(day.clone(), 2), Ok(Duration::from_hours(48)));
    assert_eq!(burst(day.clone(), 3_660), Ok(LONGEST_WINDOW));
    assert_eq!(burst(day, 3_661), Err(PolicyError::BurstTooLarge));
    assert_eq!(
        burst(Policy::token_bucket(0, 1), 1),
        Err(PolicyError::BurstTooLarge)
    );
    assert_eq!(
        burst(Policy::token_bucket(0, 1), 0),
        Ok(Duration::from_secs(1))
    );
    assert_eq!(
        burst(Policy::fixed(1, 1), 1),
        Err(PolicyError::BurstWithoutBucket)
    );
}
