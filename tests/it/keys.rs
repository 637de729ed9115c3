//! Headers as keys, and chains of sources.

use http::{HeaderValue, Request};
use proptest::prelude::*;
use tollgate::{Key, Limiter, Policy, RateLimitLayer, key};
use tower::Layer;

use crate::support::{
    CLIENT, clock, from, get, hello, login, login_in_memory, memory, send, sqlite, statuses,
};

#[tokio::test]
async fn each_value_of_the_header_has_a_counter_of_its_own() {
    let service = login_in_memory(1, 60).layer(hello());
    assert_eq!(statuses(&service, "alice", 2).await, [200, 429]);
    assert_eq!(statuses(&service, "bob", 2).await, [200, 429]);
}

#[tokio::test]
async fn a_missing_empty_or_blank_header_is_a_400_that_names_it() {
    let service = login_in_memory(1, 60).layer(hello());
    for request in [get("/"), from(""), from(" "), from(" \t ")] {
        let answer = send(&service, request).await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.only("content-type"), "application/problem+json");
        assert_eq!(answer.only("cache-control"), "no-store");
        assert_eq!(answer.header("retry-after"), "");
        let problem = answer.json();
        assert_eq!(problem["status"], 400);
        assert_eq!(problem["type"], "about:blank");
        assert_eq!(problem["title"], "Bad Request");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("x-client-key"), "{detail}");
    }
}

#[tokio::test]
async fn a_request_without_a_key_charges_nobody_and_has_no_fields() {
    let layer = login_in_memory(1, 60);
    let service = layer.layer(hello());
    let answer = send(&service, get("/")).await;
    assert_eq!(answer.header("ratelimit"), "");
    assert_eq!(answer.header("ratelimit-policy"), "");
    assert_eq!(statuses(&service, "alice", 1).await, [200]);
}

#[tokio::test]
async fn a_header_sent_twice_is_a_400_even_when_both_agree_or_a_fallback_follows() {
    let layer = RateLimitLayer::fixed(9, 60)
        .key(key::header(CLIENT).or_value("anonymous"))
        .store(&memory(&clock()));
    let service = layer.layer(hello());
    for second in ["alice", "bob", ""] {
        let mut request = from("alice");
        let second = HeaderValue::from_static(second);
        request.headers_mut().append(CLIENT, second);
        let answer = send(&service, request).await;
        assert_eq!(answer.status, 400);
        assert!(answer.text().contains("x-client-key"));
    }
}

#[tokio::test]
async fn the_name_of_the_header_has_no_case() {
    let layer = RateLimitLayer::fixed(1, 60)
        .key(key::header("X-Client-Key"))
        .store(&memory(&clock()));
    assert_eq!(
        statuses(&layer.layer(hello()), "alice", 2).await,
        [200, 429]
    );
}

#[tokio::test]
async fn values_that_are_no_utf8_are_keys_like_any_other() {
    let service = login(1, 60, &sqlite(&clock())).layer(hello());
    let values: [&[u8]; 5] = [
        b"\xa1\xb1",
        b"\xa1\xb2",
        b"\xa1",
        b"\xef\xbf\xbd",
        b"%A1%B1",
    ];
    for value in values {
        assert_eq!(send(&service, from(value)).await.status, 200, "{value:x?}");
    }
    for value in values {
        assert_eq!(send(&service, from(value)).await.status, 429, "{value:x?}");
    }
}

#[tokio::test]
async fn values_of_64_kb_that_differ_in_one_byte_are_different_keys() {
    let service = login(1, 60, &sqlite(&clock())).layer(hello());
    let long = vec![b'k'; 64 * 1024];
    for place in [0, 64, long.len() / 2, long.len() - 1] {
        let mut other = long.clone();
        other[place] = b'j';
        assert_eq!(
            send(&service, from(&other)).await.status,
            200,
            "byte {place}"
        );
        assert_eq!(
            send(&service, from(&other)).await.status,
            429,
            "byte {place}"
        );
    }
    assert_eq!(send(&service, from(&long)).await.status, 200);
}

#[tokio::test]
async fn values_with_quotes_percent_signs_and_sql_are_bound_as_text() {
    let service = login(1, 60, &sqlite(&clock())).layer(hello());
    let values = [
        "'",
        "''",
        "\"",
        "%",
        "%25",
        "|",
        "#",
        "\\",
        "a:b",
        "[1,2]",
        "{}",
        "null",
        "x'); DROP TABLE rate_limit_windows; --",
        "🦀",
        "e\u{301}",
        "\u{e9}",
    ];
    for value in values {
        assert_eq!(send(&service, from(value)).await.status, 200, "{value}");
    }
    for value in values {
        assert_eq!(send(&service, from(value)).await.status, 429, "{value}");
    }
}

#[tokio::test]
async fn keys_with_nul_and_newlines_are_counted_apart() {
    let limiter = Limiter::new(Policy::fixed(1, 60)).store(&sqlite(&clock()));
    let values = ["a", "a\0", "\0a", "a\0b", "a\n", "a\r\n", "", " "];
    for value in values {
        let key = Key::new("user", value);
        assert!(limiter.check(&key).await.unwrap().is_allowed(), "{value:?}");
        assert!(limiter.check(&key).await.unwrap().is_denied(), "{value:?}");
    }
}

#[tokio::test]
async fn parts_that_join_to_the_same_text_are_different_keys() {
    let keys = [
        Key::new("user", "aa").and("route", "b"),
        Key::new("user", "a").and("route", "ab"),
        Key::new("user", "aa|route:b"),
        Key::new("user", "a:b").and("route", "c"),
        Key::new("user", "a").and("route", "b:c"),
        Key::new("user:a", "b").and("route", "c"),
        Key::new("user", "127.0.0.1"),
        Key::ip("127.0.0.1".parse().unwrap()),
        Key::header(CLIENT, "127.0.0.1"),
        Key::constant("127.0.0.1"),
    ];
    let limiter = Limiter::new(Policy::fixed(1, 60)).store(&sqlite(&clock()));
    for key in &keys {
        assert!(
            limiter.check(key).await.unwrap().is_allowed(),
            "{}",
            key.as_str()
        );
    }
    for key in &keys {
        assert!(
            limiter.check(key).await.unwrap().is_denied(),
            "{}",
            key.as_str()
        );
    }
}

#[tokio::test]
async fn or_value_gives_requests_without_a_key_one_of_the_same_kind() {
    let layer = RateLimitLayer::fixed(2, 60)
        .key(key::header(CLIENT).or_value("anonymous"))
        .store(&memory(&clock()));
    let service = layer.layer(hello());
    assert_eq!(send(&service, get("/")).await.status, 200);
    assert_eq!(send(&service, from(" ")).await.status, 200);
    assert_eq!(send(&service, get("/")).await.status, 429);
    assert_eq!(send(&service, from("anonymous")).await.status, 429);
    assert_eq!(send(&service, from("alice")).await.status, 200);
}

#[tokio::test]
async fn a_chain_believes_the_first_source_that_has_a_key() {
    let layer = RateLimitLayer::fixed(1, 60)
        .key(
            key::header("x-user")
                .or(key::header(CLIENT))
                .or(key::constant("all")),
        )
        .store(&memory(&clock()));
    let limiter = layer.limiter();
    let service = layer.layer(hello());

    let mut both = from("alice");
    both.headers_mut()
        .insert("x-user", HeaderValue::from_static("42"));
    send(&service, both).await;
    send(&service, from("bob")).await;
    send(&service, get("/")).await;

    for (key, used) in [
        (Key::header("x-user", "42"), 1),
        (Key::header(CLIENT, "alice"), 0),
        (Key::header(CLIENT, "bob"), 1),
        (Key::constant("all"), 1),
    ] {
        assert_eq!(
            limiter.peek(&key).await.unwrap().used(),
            used,
            "{}",
            key.as_str()
        );
    }
}

#[tokio::test]
async fn a_chain_that_finds_nothing_answers_as_its_last_source() {
    let with_header_last = RateLimitLayer::fixed(1, 60)
        .key(key::peer_ip().or(key::header(CLIENT)))
        .store(&memory(&clock()));
    let answer = send(&with_header_last.layer(hello()), get("/")).await;
    assert_eq!(answer.status, 400);

    let with_address_last = RateLimitLayer::fixed(1, 60)
        .key(key::header(CLIENT).or(key::peer_ip()))
        .store(&memory(&clock()));
    let answer = send(&with_address_last.layer(hello()), get("/")).await;
    assert_eq!(answer.status, 500);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_header_value_panics_or_fails_the_server(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let Ok(value) = HeaderValue::from_bytes(&bytes) else {
            return Ok(());
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let status = runtime.block_on(async {
            let service = login_in_memory(1, 60).layer(hello());
            let mut request = Request::new(());
            request.headers_mut().insert(CLIENT, value);
            send(&service, request).await.status
        });
        let expected = if bytes.trim_ascii().is_empty() { 400 } else { 200 };
        prop_assert_eq!(status, expected);
    }
}
