//! Policies that count by keys of their own.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::routing::get as on_get;
use http::{HeaderValue, Request};
use tollgate::key::{self, PeerAddr};
use tollgate::{Decisions, Key, Policy, RateLimitLayer, Store, Verdict};
use tower::Layer;

use super::by_client;
use crate::support::{
    CLIENT, capture_log, clock, from, get, hello, memory, on_the_wire, send, serve, sqlite,
};

const ACCOUNT: &str = "x-account";

/// 3 from one address, whatever the accounts, and 2 on one account, wherever they come from.
fn address_and_account(store: &impl Store) -> RateLimitLayer {
    RateLimitLayer::new(Policy::sliding(3, 60).name("address"))
        .and(Policy::fixed(2, 900).name("account"), key::header(ACCOUNT))
        .store(store)
}

fn by(address: &str, account: &str) -> Request<Body> {
    let mut request = by_address(address);
    let account = HeaderValue::from_str(account).unwrap();
    request.headers_mut().insert(ACCOUNT, account);
    request
}

fn by_address(address: &str) -> Request<Body> {
    let mut request = get("/");
    let peer = SocketAddr::new(address.parse().unwrap(), 52_241);
    request.extensions_mut().insert(PeerAddr(peer));
    request
}

/// The statuses of requests by address and account, one after another.
async fn statuses_of<const N: usize>(
    layer: &RateLimitLayer,
    requests: [(&str, &str); N],
) -> [u16; N] {
    let service = layer.layer(hello());
    let mut statuses = [0; N];
    for (status, (address, account)) in statuses.iter_mut().zip(requests) {
        *status = send(&service, by(address, account)).await.status;
    }
    statuses
}

/// What the address and the account have used.
async fn used(layer: &RateLimitLayer, address: &str, account: &str) -> Vec<u64> {
    let keys = [
        Key::ip(address.parse().unwrap()),
        Key::header(ACCOUNT, account),
    ];
    let seen = layer.limiter().peek(&keys).await.unwrap();
    seen.verdicts().map(Verdict::used).collect()
}

#[tokio::test]
async fn one_address_with_several_accounts_is_limited_by_its_address() {
    let layer = address_and_account(&sqlite(&clock()));
    let requests = ["a", "b", "c", "d"].map(|account| ("192.0.2.1", account));
    assert_eq!(statuses_of(&layer, requests).await, [200, 200, 200, 429]);
    assert_eq!(used(&layer, "192.0.2.1", "d").await, [3, 0]);
}

#[tokio::test]
async fn one_account_from_several_addresses_is_limited_by_its_account() {
    let layer = address_and_account(&sqlite(&clock()));
    let requests = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|address| (address, "a"));
    assert_eq!(statuses_of(&layer, requests).await, [200, 200, 429]);
    assert_eq!(used(&layer, "192.0.2.3", "a").await, [0, 2]);
}

#[tokio::test]
async fn what_one_policy_refuses_leaves_the_room_of_the_other_to_others() {
    let layer = address_and_account(&memory(&clock()));
    let tries = [("192.0.2.1", "a"); 5];
    assert_eq!(statuses_of(&layer, tries).await, [200, 200, 429, 429, 429]);
    // Three were refused by the account: the address has one left.
    let others = [("192.0.2.1", "b"), ("192.0.2.1", "c")];
    assert_eq!(statuses_of(&layer, others).await, [200, 429]);
    let elsewhere = [("192.0.2.2", "c"), ("192.0.2.2", "c"), ("192.0.2.2", "c")];
    assert_eq!(statuses_of(&layer, elsewhere).await, [200, 200, 429]);
}

#[tokio::test]
async fn a_refusal_by_address_and_account_names_both() {
    let layer = address_and_account(&memory(&clock()));
    let requests = [("192.0.2.1", "a"), ("192.0.2.1", "a"), ("192.0.2.1", "b")];
    assert_eq!(statuses_of(&layer, requests).await, [200, 200, 200]);
    let answer = send(&layer.layer(hello()), by("192.0.2.1", "a")).await;
    assert_eq!(answer.status, 429);
    assert_eq!(
        answer.only("ratelimit"),
        "\"address\";r=0;t=60, \"account\";r=0;t=900"
    );
    assert_eq!(answer.only("retry-after"), "900");
    let violated = &answer.json()["violated-policies"];
    assert_eq!(violated, &serde_json::json!(["address", "account"]));
}

#[tokio::test]
async fn each_verdict_has_the_key_of_its_policy() {
    let layer = address_and_account(&memory(&clock()));
    let answer = send(&layer.layer(hello()), by("192.0.2.1", "a")).await;
    let decisions: &Decisions = answer.extensions.get().unwrap();
    let decision = decisions.iter().next().unwrap();
    let keys: Vec<_> = decision
        .verdicts()
        .map(|verdict| verdict.key().clone())
        .collect();
    let address = Key::ip("192.0.2.1".parse().unwrap());
    assert_eq!(keys, [address, Key::header(ACCOUNT, "a")]);
}

#[tokio::test]
async fn a_missing_header_of_the_second_policy_is_a_400_and_charges_nothing() {
    let layer = address_and_account(&sqlite(&clock()));
    let service = layer.layer(hello());
    for _ in 0..5 {
        let answer = send(&service, by_address("192.0.2.1")).await;
        assert_eq!(answer.status, 400);
        assert_eq!(
            answer.json()["detail"],
            "the header x-account is missing or empty: send it"
        );
        assert_eq!(
            answer.header("ratelimit") + &answer.header("ratelimit-policy"),
            ""
        );
        assert_eq!(answer.header("retry-after"), "");
    }
    assert_eq!(used(&layer, "192.0.2.1", "a").await, [0, 0]);
}

#[derive(Clone)]
struct User(u64);

fn address_and_user(store: &impl Store) -> RateLimitLayer {
    let user = key::extension(|user: &User| Key::new("user", user.0));
    RateLimitLayer::new(Policy::sliding(3, 60).name("address"))
        .and(Policy::daily(2).name("account"), user)
        .store(store)
}

#[tokio::test]
async fn a_missing_extension_of_the_second_policy_is_a_500_and_charges_nothing() {
    let layer = address_and_user(&sqlite(&clock()));
    let service = layer.layer(hello());
    for _ in 0..5 {
        let answer = send(&service, by_address("192.0.2.1")).await;
        assert_eq!(answer.status, 500);
        let problem = answer.json();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("no key from a User"), "{detail}");
        assert_eq!(
            answer.header("ratelimit") + &answer.header("ratelimit-policy"),
            ""
        );
    }
    let keys = [Key::ip("192.0.2.1".parse().unwrap()), Key::new("user", 1)];
    let seen = layer.limiter().peek(&keys).await.unwrap();
    assert!(seen.verdicts().all(|verdict| verdict.attempts() == 0));
}

#[tokio::test]
async fn a_user_that_an_outer_layer_has_found_is_a_key_of_its_own() {
    let service = address_and_user(&memory(&clock())).layer(hello());
    let mut statuses = Vec::new();
    for user in [1, 1, 1, 2, 2] {
        let mut request = by_address("192.0.2.1");
        request.extensions_mut().insert(User(user));
        statuses.push(send(&service, request).await.status);
    }
    assert_eq!(statuses, [200, 200, 429, 200, 429]);
}

#[tokio::test]
async fn the_log_line_of_a_missing_key_names_the_policy_that_has_none() {
    let log = capture_log();
    let service = address_and_user(&memory(&clock())).layer(hello());
    send(&service, by_address("192.0.2.1")).await;
    let lines = log.lines_with("ERROR");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains("the rate limit account has no key"),
        "{}",
        lines[0]
    );
}

#[tokio::test]
async fn a_missing_key_of_the_first_policy_is_answered_as_its_source_says() {
    let layer = RateLimitLayer::new(Policy::sliding(3, 60).name("client"))
        .key(key::header(CLIENT))
        .and(Policy::daily(2).name("all"), key::constant("all"))
        .store(&memory(&clock()));
    let service = layer.layer(hello());
    let answer = send(&service, get("/")).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains(CLIENT));
    let answer = send(&service, from("alice")).await;
    assert_eq!(
        answer.only("ratelimit"),
        "\"client\";r=2;t=60, \"all\";r=1;t=72000"
    );
}

#[tokio::test]
async fn an_or_of_the_second_source_is_followed() {
    let layer = RateLimitLayer::new(Policy::sliding(3, 60).name("address"))
        .and(
            Policy::daily(1).name("account"),
            key::header(ACCOUNT).or_value("nobody"),
        )
        .store(&memory(&clock()));
    let service = layer.layer(hello());
    for (address, status) in [("192.0.2.1", 200), ("192.0.2.2", 429)] {
        let answer = send(&service, by_address(address)).await;
        assert_eq!(answer.status, status);
    }
    assert_eq!(send(&service, by("192.0.2.2", "a")).await.status, 200);
}

#[tokio::test]
async fn each_further_policy_has_its_own_key_and_the_first_share_that_of_the_layer() {
    let layer = by_client(
        [
            Policy::sliding(9, 60).name("burst"),
            Policy::daily(9).name("daily"),
        ],
        &memory(&clock()),
    );
    let layer = layer
        .and(Policy::hourly(9).name("account"), key::header(ACCOUNT))
        .and(Policy::monthly(9).name("all"), key::constant("all"));
    let service = layer.layer(hello());
    for (client, account) in [("alice", "a"), ("alice", "b"), ("bob", "a")] {
        let mut request = from(client);
        let account = HeaderValue::from_static(account);
        request.headers_mut().insert(ACCOUNT, account);
        assert_eq!(send(&service, request).await.status, 200);
    }
    let client = |name: &str| Key::header(CLIENT, name);
    let keys = |name, account: &str| {
        let account = Key::header(ACCOUNT, account);
        [client(name), client(name), account, Key::constant("all")]
    };
    for (keys, expected) in [
        (keys("alice", "a"), [2, 2, 2, 3]),
        (keys("bob", "b"), [1, 1, 1, 3]),
    ] {
        let seen = layer.limiter().peek(&keys).await.unwrap();
        let used: Vec<_> = seen.verdicts().map(Verdict::used).collect();
        assert_eq!(used, expected);
    }
}

#[tokio::test]
async fn a_key_set_after_further_policies_is_that_of_the_first_ones() {
    let layer = address_and_account(&memory(&clock())).key(key::constant("all"));
    let requests = [
        ("192.0.2.1", "a"),
        ("192.0.2.2", "b"),
        ("192.0.2.3", "c"),
        ("192.0.2.4", "d"),
    ];
    assert_eq!(statuses_of(&layer, requests).await, [200, 200, 200, 429]);
}

#[tokio::test]
async fn two_policies_on_the_same_key_both_count_it() {
    let layer = RateLimitLayer::new(Policy::sliding(9, 60).name("first"))
        .key(key::header(CLIENT))
        .and(Policy::sliding(9, 60).name("second"), key::header(CLIENT))
        .store(&sqlite(&clock()));
    let answer = send(&layer.layer(hello()), from("alice")).await;
    assert_eq!(
        answer.only("ratelimit"),
        "\"first\";r=8;t=60, \"second\";r=8;t=60"
    );
}

#[tokio::test]
async fn a_policy_by_address_and_account_on_a_real_server_answers_byte_for_byte() {
    let layer = RateLimitLayer::new(Policy::fixed(9, 900).name("address"))
        .and(Policy::fixed(1, 900).name("account"), key::header(ACCOUNT))
        .store(&sqlite(&clock()));
    let router = Router::new().route("/", on_get(|| async { "hello" }).layer(layer));
    let address = serve(router).await;
    let request = "GET / HTTP/1.1\r\nhost: a\r\nx-account: a\r\nconnection: close\r\n\r\n";
    let first = on_the_wire(address, request).await;
    let fields = "ratelimit-policy: \"address\";q=9;w=900, \"account\";q=1;w=900\r\n\
        ratelimit: \"address\";r=8;t=900, \"account\";r=0;t=900\r\n";
    assert!(first.starts_with("HTTP/1.1 200 OK\r\n"), "{first}");
    assert!(first.contains(fields), "{first}");
    let second = on_the_wire(address, request).await;
    assert!(
        second.starts_with("HTTP/1.1 429 Too Many Requests\r\n"),
        "{second}"
    );
    let fields = format!("{fields}retry-after: 900\r\ncache-control: no-store\r\n");
    assert!(second.contains(&fields), "{second}");
    let body = "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
        \"title\":\"Quota Exceeded\",\"status\":429,\
        \"detail\":\"The policy account allows 1 request per 900 seconds.\",\
        \"limit\":1,\"window_seconds\":900,\"retry_after\":900,\
        \"violated-policies\":[\"account\"]}";
    assert_eq!(second.split_once("\r\n\r\n").unwrap().1, body);
}

#[tokio::test]
async fn every_policy_says_once_what_it_is_and_by_what_it_counts() {
    let log = capture_log();
    let policies = [
        Policy::sliding(20, 1).name("burst"),
        Policy::daily(10_000).name("daily"),
    ];
    let layer = by_client(policies, &memory(&clock()));
    let bucket = Policy::token_bucket(10, 1).burst(50).name("account");
    let service = layer
        .and(bucket, key::header(ACCOUNT).or_value("nobody"))
        .layer(hello());
    for _ in 0..3 {
        send(&service, from("alice")).await;
    }
    let lines = log.lines_with(" key ");
    let expected = [
        "burst: 20 per 1 s, sliding window, key header x-client-key, store ",
        "daily: 10000 per calendar day, UTC, key header x-client-key, store ",
        "account: 10 per 1 s with bursts of 50, token bucket, key header x-account or a fixed value, store ",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.trim_start().starts_with("INFO"), "{line}");
        assert!(line.contains(expected), "{line}");
    }
}

#[tokio::test]
async fn no_log_line_and_no_answer_holds_a_key_of_any_policy() {
    let log = capture_log();
    let service = address_and_account(&memory(&clock())).layer(hello());
    for _ in 0..3 {
        let answer = send(&service, by("192.0.2.77", "secret-account")).await;
        let told = format!(
            "{:?} {} {:?}",
            answer.headers,
            answer.text(),
            answer.extensions
        );
        assert!(
            !told.contains("192.0.2.77") && !told.contains("secret-account"),
            "{told}"
        );
    }
    assert!(!log.lines_with("account").is_empty());
    for secret in ["192.0.2.77", "secret-account"] {
        assert_eq!(log.lines_with(secret), Vec::<String>::new());
    }
}
