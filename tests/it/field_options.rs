//! The fields as they are on request: another dialect, partition keys, none on redirects; and the names for CORS.

use std::collections::HashSet;

use axum::Router;
use axum::response::Redirect;
use axum::routing::get as on_get;
use http::{HeaderName, HeaderValue};
use sfv::{List, ListEntry, Parser};
use tollgate::{Dialect, RateLimitLayer, ResetFormat, key};
use tower::Layer;
use tower_http::cors::CorsLayer;

use crate::support::{
    Answer, clock, from, get, hello, login, login_in_memory, memory, send, serve,
};

#[tokio::test]
async fn the_dialect_of_2026_has_the_same_values_under_other_letters() {
    let service = login_in_memory(1, 900)
        .dialect(Dialect::Editors2026)
        .layer(hello());
    for _ in 0..2 {
        let answer = send(&service, from("alice")).await;
        assert_eq!(answer.only("ratelimit-policy"), "\"login\";q=1;w=900");
        assert_eq!(answer.only("ratelimit"), "\"login\";a=0;w=900");
    }
}

/// The partition key of the only member, as an independent parser reads it.
fn partition_key(answer: &Answer) -> Vec<u8> {
    let list: List = Parser::new(answer.only("ratelimit")).parse().unwrap();
    let [ListEntry::Item(item)] = &list[..] else {
        panic!("{list:?}");
    };
    let partition_key = item.params.get("pk").unwrap();
    partition_key.as_byte_sequence().unwrap().to_vec()
}

#[tokio::test]
async fn a_partition_key_tells_keys_apart_and_is_none_of_them() {
    let service = login_in_memory(1, 900)
        .partition_key("secret")
        .layer(hello());
    let alice = partition_key(&send(&service, from("alice")).await);
    let again = partition_key(&send(&service, from("alice")).await);
    let bob = partition_key(&send(&service, from("bob")).await);
    assert_eq!(alice, again, "also on a refusal");
    assert_ne!(alice, bob);
    assert_eq!(alice.len(), 12);
}

#[tokio::test]
async fn another_secret_makes_other_partition_keys() {
    let mut made = HashSet::new();
    for secret in ["one", "two"] {
        let service = login_in_memory(1, 900).partition_key(secret).layer(hello());
        made.insert(partition_key(&send(&service, from("alice")).await));
    }
    assert_eq!(made.len(), 2);
}

#[tokio::test]
async fn the_longest_member_has_room_for_its_partition_key() {
    let service = RateLimitLayer::fixed(u32::MAX, crate::support::LONG)
        .name(&"n".repeat(64))
        .key(key::constant("all"))
        .store(&memory(&clock()))
        .partition_key([7; 64])
        .layer(hello());
    assert_eq!(partition_key(&send(&service, get("/")).await).len(), 12);
}

#[test]
fn the_secret_is_shown_by_no_debug() {
    let layer = login_in_memory(1, 60).partition_key("hunter2");
    let debug = format!("{layer:?}");
    assert!(!debug.contains("hunter2"), "{debug}");
    assert!(!debug.contains("104, 117"), "{debug}");
}

#[test]
#[should_panic(expected = "best 32, the same in each process [empty-secret]")]
fn an_empty_secret_is_refused_when_it_is_set() {
    let _ = login_in_memory(1, 60).partition_key("");
}

#[tokio::test]
async fn redirects_have_no_fields_when_that_is_switched_off() {
    let moved = || async { Redirect::to("/elsewhere") };
    let router = |limit: RateLimitLayer| {
        Router::new()
            .route("/", on_get(|| async { "hello" }))
            .route("/old", on_get(moved))
            .layer(limit.key(key::constant("all")))
    };
    let bare = router(login_in_memory(9, 60).fields_on_redirects(false));
    let answer = send(&bare, get("/old")).await;
    assert_eq!(answer.status, 303);
    assert_eq!(answer.header("ratelimit"), "");
    assert_eq!(answer.header("ratelimit-policy"), "");
    assert_eq!(
        send(&bare, get("/")).await.only("ratelimit"),
        "\"login\";r=7;t=60"
    );
    let by_default = send(&router(login_in_memory(9, 60)), get("/old")).await;
    assert_eq!(by_default.only("ratelimit"), "\"login\";r=8;t=60");
}

/// The names of what a layer's answers have and the inner service's do not, without what every response may have.
async fn emitted(layer: RateLimitLayer) -> HashSet<HeaderName> {
    let service = layer.layer(hello());
    let mut names = HashSet::new();
    for _ in 0..2 {
        let answer = send(&service, from("alice")).await;
        names.extend(answer.headers.keys().cloned());
    }
    // Scripts see these of any response.
    names.remove(&http::header::CONTENT_TYPE);
    names.remove(&http::header::CACHE_CONTROL);
    names
}

#[tokio::test]
async fn the_exposed_names_are_just_those_that_are_emitted() {
    let plain = || login_in_memory(1, 60);
    for layer in [
        plain(),
        plain().x_rate_limit(ResetFormat::EpochSeconds),
        plain()
            .dialect(Dialect::Editors2026)
            .partition_key("secret"),
        plain().enabled(false),
    ] {
        let exposed = layer.exposed_headers();
        let told: HashSet<_> = exposed.iter().cloned().collect();
        assert_eq!(told.len(), exposed.len(), "no name comes twice");
        assert_eq!(told, emitted(layer).await);
    }
}

#[tokio::test]
async fn a_browser_may_read_every_field_of_a_real_refusal() {
    let limit = login(1, 60, &memory(&clock())).x_rate_limit(ResetFormat::DeltaSeconds);
    let cors = CorsLayer::new()
        .allow_origin(HeaderValue::from_static("https://app.example"))
        .expose_headers(limit.exposed_headers());
    let router = Router::new()
        .route("/", on_get(|| async { "hello" }))
        .layer(limit)
        .layer(cors);
    let url = format!("http://{}/", serve(router).await);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for status in [200, 429] {
        let request = client.get(&url).header("origin", "https://app.example");
        let answer = request
            .header("x-client-key", "alice")
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), status);
        let headers = answer.headers();
        assert_eq!(
            headers["access-control-allow-origin"],
            "https://app.example"
        );
        let exposed = headers["access-control-expose-headers"].to_str().unwrap();
        let exposed: Vec<_> = exposed.split(',').collect();
        let ours = headers
            .keys()
            .map(HeaderName::as_str)
            .filter(|name| name.contains("ratelimit") || *name == "retry-after");
        for name in ours {
            assert!(exposed.contains(&name), "{name} is hidden");
        }
    }
}

#[test]
fn a_shadow_sends_no_field() {
    assert!(
        login_in_memory(1, 60)
            .shadow(true)
            .exposed_headers()
            .is_empty()
    );
}
