//! Keys of several parts, normalized and hashed values, and the keys that operators make.

use http::request::Parts;
use http::{HeaderValue, Request};
use proptest::prelude::*;
use tollgate::key::{self, KeyError, KeyExtractor, KeySource};
use tollgate::{Key, Policy, RateLimitLayer, SqliteStore};
use tower::Layer;

use crate::support::{CLIENT, clock, from, get, hello, memory, send};

const EMAIL: &str = "x-email";

#[derive(Clone)]
struct User(String);

fn head(lines: &[(&'static str, &[u8])]) -> Parts {
    let mut request = Request::new(());
    for (name, value) in lines {
        let value = HeaderValue::from_bytes(value).unwrap();
        request.headers_mut().append(*name, value);
    }
    request.into_parts().0
}

fn by_email(source: &KeySource, email: &str) -> Result<Key, KeyError> {
    source.extract(&head(&[(EMAIL, email.as_bytes())]))
}

fn trimmed_lower(source: KeySource) -> KeySource {
    source.normalized(|email| email.trim().to_lowercase())
}

#[test]
fn parts_stand_in_the_order_of_their_sources() {
    let source = key::header(CLIENT)
        .and(key::constant("all"))
        .and(key::method());
    let key = source.extract(&head(&[(CLIENT, b"42")])).unwrap();
    assert_eq!(
        key.as_str(),
        "header/x-client-key:42|constant:all|method:GET"
    );
}

#[test]
fn a_delimiter_in_a_value_moves_no_boundary_between_parts() {
    let source = key::header("x-a").and(key::header("x-b"));
    let key = |a: &'static str, b: &'static str| {
        let parts = head(&[("x-a", a.as_bytes()), ("x-b", b.as_bytes())]);
        source.extract(&parts).unwrap()
    };
    assert_ne!(key("aa", "b"), key("a", "ab"));
    assert_ne!(key("a:b", "c"), key("a", "b:c"));
    assert_ne!(key("a|header/x-b:b", "c"), key("a", "b|header/x-b:c"));
}

#[test]
fn the_error_is_that_of_the_part_that_is_missing() {
    let user = || key::extension(|user: &User| user.0.clone());
    let message = |source: KeySource, lines: &[(&'static str, &[u8])]| {
        source.extract(&head(lines)).unwrap_err()
    };
    let source = || key::header(CLIENT).and(user());
    let first = message(source(), &[]);
    assert!(
        first.is_client() && first.to_string().contains(CLIENT),
        "{first}"
    );
    let second = message(source(), &[(CLIENT, b"alice")]);
    assert!(
        second.is_server() && second.to_string().contains("User"),
        "{second}"
    );
    let twice = message(source(), &[(CLIENT, b"alice"), (CLIENT, b"bob")]);
    assert!(twice.to_string().contains("more than once"), "{twice}");
    let nested = message(source().and(key::header(EMAIL)), &[(CLIENT, b"alice")]);
    assert!(nested.to_string().contains("User"), "{nested}");
    let hashed = message(
        source().hashed("s").normalized(str::to_owned),
        &[(CLIENT, b"alice")],
    );
    assert!(hashed.to_string().contains("User"), "{hashed}");
    let emptied = message(
        source().normalized(|_| String::new()),
        &[(CLIENT, b"alice")],
    );
    assert!(emptied.to_string().contains(CLIENT), "{emptied}");
}

#[test]
fn when_a_part_is_missing_the_next_of_the_chain_is_asked() {
    let source = key::header(CLIENT)
        .and(key::header(EMAIL))
        .or(key::constant("all"));
    let key = |lines| source.extract(&head(lines)).unwrap();
    assert_eq!(key(&[(CLIENT, b"alice")]), Key::constant("all"));
    let both = key(&[(CLIENT, b"alice"), (EMAIL, b"a@b")]);
    assert_eq!(
        both.as_str(),
        "header/x-client-key:alice|header/x-email:a@b"
    );
}

#[test]
fn a_chain_may_be_a_part() {
    let source = key::method().and(
        key::header(CLIENT)
            .or(key::header(EMAIL))
            .or_value("nobody"),
    );
    for (lines, expected) in [
        (
            &[(CLIENT, &b"a"[..])][..],
            "method:GET|header/x-client-key:a",
        ),
        (&[(EMAIL, b"b")], "method:GET|header/x-email:b"),
        (&[], "method:GET|header/x-email:nobody"),
    ] {
        assert_eq!(source.extract(&head(lines)).unwrap().as_str(), expected);
    }
}

#[tokio::test]
async fn everything_of_the_first_part_is_reset_by_its_key() {
    let source = key::header(CLIENT).hashed("sesame").and(key::method());
    let layer = RateLimitLayer::fixed(1, 60)
        .key(source.clone())
        .store(&memory(&clock()));
    let service = layer.layer(hello());
    for client in ["alice", "bob"] {
        assert_eq!(send(&service, from(client)).await.status, 200);
    }
    let alice = source.key_for("alice");
    layer.limiter().reset_under(&alice).await.unwrap();
    assert_eq!(send(&service, from("alice")).await.status, 200);
    assert_eq!(send(&service, from("bob")).await.status, 429);
}

#[test]
fn a_hashed_value_is_in_no_key_and_its_kind_is() {
    let source = key::header("x-api-key").hashed("sesame").and(key::method());
    for secret in ["4f2a", "k4f2a", &"4f2a".repeat(100)] {
        let key = source
            .extract(&head(&[("x-api-key", secret.as_bytes())]))
            .unwrap();
        let text = key.as_str();
        assert!(!text.contains("4f2a"), "{text}");
        let (hash, method) = text.split_once('|').unwrap();
        assert_eq!(method, "method:GET");
        let digits = hash.strip_prefix("header/x-api-key:#").unwrap();
        assert!(digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        assert_eq!(text.parse(), Ok(key.clone()));
        assert!(key.parts().next().unwrap().value().is_none());
    }
}

#[tokio::test]
async fn no_row_of_the_table_and_no_debug_has_a_hashed_value_or_the_secret() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let store = SqliteStore::open(&path).await.unwrap().clock(&clock());
    let source = key::header(CLIENT).hashed("open-sesame");
    let layer = RateLimitLayer::new(Policy::fixed(1, 60).leases(false))
        .and(Policy::sliding(1, 60), source.clone())
        .key(source.clone())
        .store(&store);
    let _ = send(&layer.layer(hello()), from("my-api-key")).await;
    let debug = format!("{source:?} {layer:?}");
    assert!(
        !debug.contains("sesame") && !debug.contains("my-api-key"),
        "{debug}"
    );
    store.close().await.unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let has = |text: &str| {
        bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    assert!(has("header/x-client-key:#"));
    assert!(!has("my-api-key") && !has("sesame"));
}

#[test]
fn another_secret_or_another_kind_is_another_hash() {
    let hash = |source: KeySource| {
        source
            .key_for("4f2a")
            .as_str()
            .split_once('#')
            .unwrap()
            .1
            .to_owned()
    };
    let one = hash(key::header("x-api-key").hashed("one"));
    assert_eq!(one, hash(key::header("x-api-key").hashed(*b"one")));
    assert_ne!(one, hash(key::header("x-api-key").hashed("two")));
    assert_ne!(one, hash(key::header("x-token").hashed("one")));
}

#[test]
#[should_panic(expected = "give 32 random bytes")]
fn an_empty_secret_is_refused_when_it_is_built() {
    let _ = key::header("x-api-key").hashed("");
}

#[test]
fn spellings_that_normalize_alike_are_one_key() {
    let source = trimmed_lower(key::header(EMAIL));
    for email in [
        "Alice@Example.com",
        "alice@example.COM",
        "alice@example.com",
    ] {
        assert_eq!(
            by_email(&source, email),
            Ok(Key::header(EMAIL, "alice@example.com"))
        );
    }
}

#[test]
fn the_hook_sees_the_whole_of_a_long_value() {
    let (long, upper) = ("a".repeat(100), "A".repeat(100));
    let sources = [
        trimmed_lower(key::header(EMAIL)),
        trimmed_lower(key::header(EMAIL).hashed("sesame")),
        trimmed_lower(key::header(EMAIL)).hashed("sesame"),
        trimmed_lower(
            key::header("x-none")
                .or(key::header(EMAIL))
                .and(key::method()),
        ),
        trimmed_lower(key::from_fn(|parts: &Parts| {
            let email = parts.headers.get(EMAIL)?;
            Some(email.to_str().ok()?.to_owned())
        })),
    ];
    for source in sources {
        assert_eq!(
            by_email(&source, &upper),
            by_email(&source, &long),
            "{source:?}"
        );
        let cut = source
            .clone()
            .normalized(|value| value[..value.len().min(3)].to_owned());
        assert_eq!(by_email(&cut, &upper), by_email(&cut, "aaab"), "{source:?}");
    }
    let plain = trimmed_lower(key::header(EMAIL));
    assert_eq!(by_email(&plain, &upper), Ok(Key::header(EMAIL, long)));
}

#[test]
fn a_long_constant_and_a_long_fallback_are_normalized_too() {
    let (long, upper) = ("a".repeat(100), "A".repeat(100));
    let parts = head(&[]);
    let constant = trimmed_lower(key::constant(upper.clone()));
    assert_eq!(constant.extract(&parts), Ok(Key::constant(long.clone())));
    let fallback = trimmed_lower(key::header(EMAIL).or_value(upper));
    assert_eq!(fallback.extract(&parts), Ok(Key::header(EMAIL, long)));
}

#[test]
fn hooks_run_in_their_order_and_before_the_hash() {
    let source = key::header(EMAIL)
        .normalized(|value| format!("{value}1"))
        .hashed("sesame")
        .normalized(|value| format!("{value}2"));
    let plain = key::header(EMAIL).hashed("sesame");
    assert_eq!(by_email(&source, "a").unwrap(), plain.key_for("a12"));
    assert_eq!(source.key_for("a"), plain.key_for("a12"));
}

#[test]
fn a_value_that_becomes_empty_is_as_missing() {
    let stripped = || key::header(EMAIL).normalized(|value| value.replace('-', ""));
    let error = by_email(&stripped(), "--").unwrap_err();
    assert!(
        error.is_client() && error.to_string().contains(EMAIL),
        "{error}"
    );
    let chain = stripped().or_value("nobody");
    assert_eq!(by_email(&chain, "--"), Ok(Key::header(EMAIL, "nobody")));
    let of_key =
        key::from_fn(|_: &Parts| Key::new("user", "--")).normalized(|value| value.replace('-', ""));
    assert!(by_email(&of_key, "a").unwrap_err().is_client());
}

#[test]
fn bytes_that_are_no_utf8_are_not_merged() {
    let source = trimmed_lower(key::header(EMAIL));
    let key = |value: &[u8]| source.extract(&head(&[(EMAIL, value)])).unwrap();
    assert_ne!(key(b"\xa1\xb1"), key(b"\xa1\xb2"));
    assert_eq!(key(b"\xa1\xb1"), source.key_for([0xa1, 0xb1].as_slice()));
}

#[test]
fn keys_that_a_closure_makes_are_normalized_by_their_parts() {
    let user = |name: &str| {
        let name = name.to_owned();
        let source =
            key::from_fn(move |_: &Parts| Key::new("user", name.as_str()).and("Route", "/A"));
        trimmed_lower(source).extract(&head(&[]))
    };
    assert_eq!(
        user("Al|ice%"),
        Ok(Key::new("user", "al|ice%").and("Route", "/a"))
    );
    let error = user(&"A".repeat(65)).unwrap_err();
    assert!(
        error.is_server() && error.to_string().contains("return the value itself"),
        "{error}"
    );
}

#[test]
fn a_key_for_a_value_is_that_of_a_request_with_it() {
    let long = "K".repeat(70);
    let sources = [
        key::header(EMAIL),
        key::header(EMAIL).or(key::constant("all")),
        key::header(EMAIL).or_value("anonymous"),
        trimmed_lower(key::header(EMAIL)),
        key::header(EMAIL).hashed("sesame"),
        trimmed_lower(key::header(EMAIL))
            .hashed("sesame")
            .or(key::peer_ip()),
    ];
    for source in sources {
        for value in ["Alice", "a|b:c#d", "%41", &long] {
            assert_eq!(
                by_email(&source, value),
                Ok(source.key_for(value)),
                "{source:?}"
            );
        }
    }
    assert_eq!(
        key::constant("all").key_for("other"),
        Key::constant("other")
    );
    let user = key::extension(|user: &User| user.0.clone());
    assert_eq!(
        user.key_for("bob"),
        Key::qualified("extension", "User", "bob")
    );
    assert_eq!(user.key_for(42), Key::qualified("extension", "User", 42));
}

#[test]
fn a_missing_value_after_a_hash_has_the_hash_of_its_fallback() {
    for source in [
        key::header(EMAIL).hashed("sesame").or_value("nobody"),
        key::header(EMAIL).or_value("nobody").hashed("sesame"),
    ] {
        assert_eq!(
            source.extract(&head(&[])).unwrap(),
            source.key_for("nobody")
        );
        assert_eq!(
            by_email(&source, "nobody").unwrap(),
            source.key_for("nobody")
        );
    }
}

#[tokio::test]
async fn a_source_of_ones_own_is_taken_as_it_is() {
    #[derive(Clone)]
    struct Tenant;
    impl KeyExtractor for Tenant {
        fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
            Ok(parts.uri.host().map(|host| Key::new("tenant", host)))
        }
    }
    let layer = RateLimitLayer::fixed(1, 60)
        .key(Tenant)
        .and(Policy::daily(9), key::method().and(Tenant).or(Tenant))
        .store(&memory(&clock()));
    let service = layer.layer(hello());
    assert_eq!(send(&service, get("http://a.example/")).await.status, 200);
    assert_eq!(send(&service, get("http://a.example/x")).await.status, 429);
    assert_eq!(send(&service, get("http://b.example/")).await.status, 200);
    assert_eq!(send(&service, get("/")).await.status, 400);
}

#[test]
fn log_lines_say_how_a_source_is_put_together() {
    let source = key::header(CLIENT)
        .or(key::peer_ip_by_prefix(56))
        .and(
            key::header(EMAIL)
                .normalized(str::to_lowercase)
                .hashed("sesame"),
        )
        .and(key::matched_route());
    assert_eq!(
        format!("{source:?}"),
        "KeySource(\"(header x-client-key or peer ip (IPv6 by /56)) and \
         hashed normalized header x-email and matched route\")"
    );
}

proptest! {
    #[test]
    fn hashed_keys_are_equal_when_the_values_are_and_parse(one in "[ -~]{1,80}", two in "[ -~]{1,80}") {
        prop_assume!(!one.trim().is_empty() && !two.trim().is_empty());
        let source = key::header(EMAIL).hashed("sesame");
        let (first, second) = (by_email(&source, &one).unwrap(), by_email(&source, &two).unwrap());
        prop_assert_eq!(first == second, one == two);
        prop_assert_eq!(first.as_str().parse(), Ok(first.clone()));
        prop_assert_eq!(first, source.key_for(one.as_str()));
    }
}
