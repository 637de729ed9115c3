//! `RateLimit` and `RateLimit-Policy`.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use proptest::prelude::*;
use sfv::{List, ListEntry, Parser};
use tollgate::{Policy, RateLimitLayer, key};
use tower::Layer;

use crate::support::{clock, from, get, hello, login, login_in_memory, memory, send, sqlite};

/// A list field as an independent parser of RFC 9651 reads it: names, and their parameters as integers.
pub(crate) fn parsed(field: &str) -> Vec<(String, Vec<(String, i64)>)> {
    let list: List = Parser::new(field).parse().unwrap();
    let member = |entry: &ListEntry| {
        let ListEntry::Item(item) = entry else {
            panic!("an inner list in {field}");
        };
        let name = item.bare_item.as_string().expect("a string");
        let params = item.params.iter().map(|(key, value)| {
            let value = value.as_integer().expect("an integer");
            (key.as_str().to_owned(), i64::from(value))
        });
        (name.as_str().to_owned(), params.collect())
    };
    list.iter().map(member).collect()
}

#[tokio::test]
async fn an_allowed_answer_has_both_fields_byte_for_byte() {
    let clock = clock();
    let service = login(5, 900, &memory(&clock)).layer(hello());
    clock.advance(Duration::from_millis(1_500));
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.only("ratelimit-policy"), "\"login\";q=5;w=900");
    assert_eq!(answer.only("ratelimit"), "\"login\";r=4;t=899");
}

#[tokio::test]
async fn a_refusal_has_both_fields_byte_for_byte() {
    let clock = clock();
    let service = login(1, 900, &sqlite(&clock)).layer(hello());
    send(&service, from("alice")).await;
    clock.advance(Duration::from_secs(899));
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.only("ratelimit-policy"), "\"login\";q=1;w=900");
    assert_eq!(answer.only("ratelimit"), "\"login\";r=0;t=1");
}

#[tokio::test]
async fn no_other_dialect_is_sent_unasked() {
    let service = login_in_memory(1, 60).layer(hello());
    for _ in 0..2 {
        let answer = send(&service, from("alice")).await;
        for name in [
            "ratelimit-limit",
            "ratelimit-remaining",
            "ratelimit-reset",
            "ratelimit-partition",
            "x-ratelimit-limit",
        ] {
            assert!(!answer.headers.contains_key(name), "{name}");
        }
        let fields = answer.header("ratelimit") + &answer.header("ratelimit-policy");
        assert!(
            !fields.contains("a=") && !fields.contains("pk="),
            "{fields}"
        );
    }
}

#[tokio::test]
async fn a_policy_without_a_name_is_told_by_its_numbers() {
    let layer = RateLimitLayer::fixed(5, 60)
        .key(key::constant("all"))
        .store(&memory(&clock()));
    let answer = send(&layer.layer(hello()), get("/")).await;
    assert_eq!(answer.only("ratelimit-policy"), "\"fixed-5-60s\";q=5;w=60");
}

#[tokio::test]
async fn the_fields_are_on_every_status() {
    let status = |request: Request<Body>| {
        let status: u16 = request.uri().path()[1..].parse().unwrap();
        let response = Response::builder()
            .status(status)
            .body(Full::<Bytes>::default());
        std::future::ready(Ok::<_, Infallible>(response.unwrap()))
    };
    let service = login_in_memory(100, 60).layer(tower::service_fn(status));
    for status in [200, 204, 301, 304, 404, 405, 422, 500, 503] {
        let mut request = from("alice");
        *request.uri_mut() = format!("/{status}").parse().unwrap();
        let answer = send(&service, request).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.only("ratelimit-policy"), "\"login\";q=100;w=60");
        assert!(answer.only("ratelimit").starts_with("\"login\";r="));
    }
}

#[tokio::test]
async fn what_is_left_falls_by_one_per_request_and_stays_at_0() {
    let service = login(3, 60, &sqlite(&clock())).layer(hello());
    for left in [2, 1, 0, 0, 0] {
        let answer = send(&service, from("alice")).await;
        assert_eq!(answer.only("ratelimit"), format!("\"login\";r={left};t=60"));
    }
}

#[tokio::test]
async fn a_limit_of_1_leaves_0_and_then_refuses() {
    let service = login(1, 60, &sqlite(&clock())).layer(hello());
    let first = send(&service, from("alice")).await;
    assert_eq!(
        (first.status, first.only("ratelimit")),
        (200, "\"login\";r=0;t=60")
    );
    assert_eq!(send(&service, from("alice")).await.status, 429);
}

#[tokio::test]
async fn a_new_window_has_the_whole_limit_again() {
    let clock = clock();
    let service = login(2, 60, &sqlite(&clock)).layer(hello());
    for _ in 0..3 {
        send(&service, from("alice")).await;
    }
    clock.advance(Duration::from_mins(1));
    let answer = send(&service, from("alice")).await;
    assert_eq!(
        (answer.status, answer.only("ratelimit")),
        (200, "\"login\";r=1;t=60")
    );
}

#[tokio::test]
async fn a_raised_limit_keeps_what_was_used() {
    let store = sqlite(&clock());
    let hundred = login(100, 60, &store).layer(hello());
    for _ in 0..80 {
        send(&hundred, from("alice")).await;
    }
    let two_hundred = login(200, 60, &store).layer(hello());
    let answer = send(&two_hundred, from("alice")).await;
    assert_eq!(
        (answer.status, answer.only("ratelimit")),
        (200, "\"login\";r=119;t=60")
    );
}

#[tokio::test]
async fn a_limit_lowered_below_what_was_used_refuses_until_the_reset_and_leaves_0() {
    let clock = clock();
    let store = sqlite(&clock);
    let hundred = login(100, 60, &store).layer(hello());
    for _ in 0..80 {
        send(&hundred, from("alice")).await;
    }
    let fifty = login(50, 60, &store).layer(hello());
    let answer = send(&fifty, from("alice")).await;
    assert_eq!(
        (answer.status, answer.only("ratelimit")),
        (429, "\"login\";r=0;t=60")
    );
    clock.advance(Duration::from_mins(1));
    let answer = send(&fifty, from("alice")).await;
    assert_eq!(
        (answer.status, answer.only("ratelimit")),
        (200, "\"login\";r=49;t=60")
    );
}

#[tokio::test]
async fn a_window_below_a_second_is_told_as_one_second() {
    let policy = Policy::try_fixed(5, Duration::from_millis(100)).unwrap();
    let layer = RateLimitLayer::new(policy.name("burst"))
        .key(key::constant("all"))
        .store(&memory(&clock()));
    let answer = send(&layer.layer(hello()), get("/")).await;
    assert_eq!(answer.only("ratelimit-policy"), "\"burst\";q=5;w=1");
    assert_eq!(answer.only("ratelimit"), "\"burst\";r=4;t=1");
}

#[tokio::test]
async fn a_switched_off_limit_sends_no_fields() {
    let service = login_in_memory(0, 60).enabled(false).layer(hello());
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.status, 200);
    assert!(answer.headers.is_empty(), "{:?}", answer.headers);
}

#[tokio::test]
async fn retry_after_is_never_before_the_end_of_what_ratelimit_tells() {
    let clock = clock();
    let service = login(1, 60, &memory(&clock)).layer(hello());
    assert_eq!(send(&service, from("alice")).await.status, 200);
    for step in [0, 1, 999, 30_000, 28_500, 499] {
        clock.advance(Duration::from_millis(step));
        let answer = send(&service, from("alice")).await;
        assert_eq!(answer.status, 429);
        let told = parsed(answer.only("ratelimit"))[0].1[1].1;
        assert!(answer.only("retry-after").parse::<i64>().unwrap() >= told);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn an_independent_parser_reads_the_fields_of_any_policy(
        name in "[A-Za-z][A-Za-z0-9_.:/*-]{0,63}",
        limit in prop_oneof![Just(0), Just(1), Just(u32::MAX), any::<u32>()],
        window in prop_oneof![Just(1), Just(10 * 366 * 86_400_000), 1..=10 * 366 * 86_400_000_i64],
        elapsed in 0..1_000_000_u64,
    ) {
        let seconds = (window + 999) / 1_000;
        let window = Duration::from_millis(window.unsigned_abs());
        let policy = Policy::try_fixed(limit, window).unwrap().try_name(&name).unwrap();
        let clock = clock();
        clock.advance(Duration::from_millis(elapsed));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = runtime.block_on(async {
            let layer = RateLimitLayer::new(policy).key(key::constant("all")).store(&memory(&clock));
            send(&layer.layer(hello()), get("/")).await
        });
        let q = i64::from(limit);
        let expected = vec![(name.clone(), vec![("q".to_owned(), q), ("w".to_owned(), seconds)])];
        prop_assert_eq!(parsed(answer.only("ratelimit-policy")), expected);
        let told = parsed(answer.only("ratelimit"));
        prop_assert_eq!(told.len(), 1);
        prop_assert_eq!(&told[0].0, &name);
        let [(r, left), (t, reset)] = &told[0].1[..] else { panic!("{told:?}") };
        prop_assert_eq!((r.as_str(), t.as_str()), ("r", "t"));
        prop_assert_eq!(*left, (q - 1).max(0));
        prop_assert!((1..=seconds).contains(reset));
    }
}
