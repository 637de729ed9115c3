//! Requests that do not count.

use std::net::{IpAddr, SocketAddr};

use axum::body::Body;
use http::request::Parts;
use http::{Method, Request};
use tollgate::key::{self, KeyError, KeyExtractor, KeySource, NetworkError, PeerAddr};
use tollgate::{Decisions, Key, Policy, RateLimitLayer};
use tower::Layer;

use super::from_alice_with;
use crate::support::{Answer, clock, from, get, hello, login, login_in_memory, memory, send};

/// `GET /` from this address.
fn by(address: &str) -> Request<Body> {
    let mut request = get("/");
    let peer = SocketAddr::new(address.parse().unwrap(), 52_241);
    request.extensions_mut().insert(PeerAddr(peer));
    request
}

/// Nobody passes, but who is exempt.
fn nobody() -> RateLimitLayer {
    RateLimitLayer::fixed(0, 60).store(&memory(&clock()))
}

async fn is_exempt(layer: &RateLimitLayer, request: Request<Body>) -> bool {
    let answer = send(&layer.layer(hello()), request).await;
    if answer.status == 200 {
        assert_no_trace(&answer);
    }
    answer.status == 200
}

/// Exempt: neither fields nor decisions.
fn assert_no_trace(answer: &Answer) {
    assert!(answer.headers.is_empty(), "{:?}", answer.headers);
    assert!(answer.extensions.get::<Decisions>().is_none());
}

#[tokio::test]
async fn a_skipped_request_is_not_counted_and_has_no_fields() {
    let layer = login(1, 60, &memory(&clock())).skip(|parts| parts.uri.path() == "/health");
    for _ in 0..3 {
        assert!(is_exempt(&layer, get("/health")).await);
    }
    let limiter = layer.limiter();
    let seen = limiter.peek(&Key::header("x-client-key", "alice")).await;
    assert_eq!(seen.unwrap().attempts(), 0);
}

#[tokio::test]
async fn any_of_several_skips_says_so() {
    let layer = nobody()
        .skip(|parts| parts.uri.path() == "/health")
        .skip(|parts| parts.method == Method::HEAD);
    assert!(is_exempt(&layer, get("/health")).await);
    let mut head = by("192.0.2.1");
    *head.method_mut() = Method::HEAD;
    assert!(is_exempt(&layer, head).await);
    assert!(!is_exempt(&layer, by("192.0.2.1")).await);
}

#[tokio::test]
async fn what_is_not_skipped_counts() {
    let service = login_in_memory(1, 60)
        .skip(|parts| parts.headers.contains_key("x-free"))
        .layer(hello());
    let mut statuses = Vec::new();
    for request in [
        from_alice_with("x-free", "1"),
        from("alice"),
        from_alice_with("x-free", "1"),
        from("alice"),
    ] {
        statuses.push(send(&service, request).await.status);
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
}

#[tokio::test]
async fn a_true_preflight_is_free_and_a_bare_options_counts() {
    let service = login_in_memory(1, 60).skip_preflights().layer(hello());
    let options = |names: &[&'static str]| {
        let mut request = from("alice");
        *request.method_mut() = Method::OPTIONS;
        for name in names {
            request.headers_mut().insert(*name, "x".parse().unwrap());
        }
        request
    };
    for _ in 0..3 {
        let preflight = options(&["origin", "access-control-request-method"]);
        let answer = send(&service, preflight).await;
        assert_eq!(answer.status, 200);
        assert_no_trace(&answer);
    }
    assert_eq!(send(&service, options(&[])).await.status, 200);
    for names in [&[][..], &["origin"], &["access-control-request-method"]] {
        assert_eq!(
            send(&service, options(names)).await.status,
            429,
            "{names:?}"
        );
    }
    let get = from_alice_with("access-control-request-method", "GET");
    assert_eq!(send(&service, get).await.status, 429);
}

#[tokio::test]
async fn a_preflight_counts_unless_it_is_free() {
    let service = login_in_memory(1, 60).layer(hello());
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let mut preflight = from_alice_with("access-control-request-method", "GET");
        *preflight.method_mut() = Method::OPTIONS;
        preflight
            .headers_mut()
            .insert("origin", "https://app.example".parse().unwrap());
        statuses.push(send(&service, preflight).await.status);
    }
    assert_eq!(statuses, [200, 429]);
}

#[tokio::test]
async fn requests_from_exempt_networks_are_not_counted_and_have_no_fields() {
    let layer = nobody().exempt_networks(["10.0.0.0/8", "2001:db8::/32"]);
    for (address, expected) in [
        ("10.1.2.3", true),
        ("::ffff:10.1.2.3", true),
        ("2001:db8:1::1", true),
        ("11.1.2.3", false),
        ("::ffff:11.1.2.3", false),
        ("2001:db9::1", false),
    ] {
        assert_eq!(is_exempt(&layer, by(address)).await, expected, "{address}");
    }
}

#[tokio::test]
async fn exempt_networks_add_up() {
    let layer = nobody()
        .exempt_networks(["10.0.0.0/8"])
        .exempt_networks(vec![String::from("192.0.2.1")]);
    assert!(is_exempt(&layer, by("10.1.2.3")).await);
    assert!(is_exempt(&layer, by("192.0.2.1")).await);
    assert!(!is_exempt(&layer, by("192.0.2.2")).await);
}

#[tokio::test]
async fn an_exempt_request_is_exempt_from_policies_with_keys_of_their_own_too() {
    let layer = nobody()
        .and(Policy::daily(0).name("all"), key::constant("all"))
        .exempt_networks(["10.0.0.0/8"]);
    assert!(is_exempt(&layer, by("10.1.2.3")).await);
}

#[tokio::test]
async fn in_a_chain_the_address_counts_when_the_key_is_made_of_it() {
    let layer = nobody()
        .key(key::header("x-client-key").or(key::peer_ip()))
        .exempt_networks(["10.0.0.0/8"]);
    assert!(is_exempt(&layer, by("10.1.2.3")).await);
    let mut with_key = by("10.1.2.3");
    with_key
        .headers_mut()
        .insert("x-client-key", "alice".parse().unwrap());
    assert!(!is_exempt(&layer, with_key).await);
}

#[tokio::test]
async fn a_source_of_ones_own_may_have_an_address() {
    struct Believed;

    impl KeyExtractor for Believed {
        fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
            Ok(self.address(parts).map(Key::ip))
        }

        fn address(&self, parts: &Parts) -> Option<IpAddr> {
            let address = parts.headers.get("x-believed")?;
            address.to_str().ok()?.parse().ok()
        }

        fn has_address(&self) -> bool {
            true
        }
    }

    let layer = nobody()
        .exempt_networks(["10.0.0.0/8"])
        .key(KeySource::new(Believed));
    assert!(is_exempt(&layer, from_alice_with("x-believed", "10.1.2.3")).await);
    assert!(!is_exempt(&layer, from_alice_with("x-believed", "11.1.2.3")).await);
}

#[tokio::test]
async fn a_request_without_an_address_is_not_exempt() {
    let layer = nobody().exempt_networks(["10.0.0.0/8"]);
    let answer = send(&layer.layer(hello()), get("/")).await;
    assert_eq!(answer.status, 500);
}

#[test]
#[should_panic(expected = "\"10.0.0.0/33\" is no network: write an address")]
fn a_network_that_is_none_panics() {
    let _ = nobody().exempt_networks(["10.0.0.0/33"]);
}

#[test]
#[should_panic(expected = "the network 0.0.0.0/0 is everybody: name the networks")]
fn a_network_that_is_everything_panics() {
    let _ = nobody().exempt_networks(["0.0.0.0/0"]);
}

#[test]
#[should_panic(expected = "by header x-api-key, which has no address: key it on one")]
fn networks_after_a_key_without_an_address_panic() {
    let _ = nobody()
        .key(key::header("x-api-key"))
        .exempt_networks(["10.0.0.0/8"]);
}

#[test]
#[should_panic(expected = "by header x-api-key, which has no address: key it on one")]
fn a_key_without_an_address_after_networks_panics() {
    let _ = nobody()
        .exempt_networks(["10.0.0.0/8"])
        .key(key::header("x-api-key"));
}

#[test]
fn networks_from_configuration_are_an_error_instead() {
    let refused =
        |layer: RateLimitLayer, network: &str| layer.try_exempt_networks([network]).err().unwrap();
    assert_eq!(
        refused(nobody(), "10.1.2.3/8"),
        NetworkError::HostBits("10.0.0.0/8".to_owned())
    );
    assert_eq!(
        refused(nobody(), "::/0"),
        NetworkError::Everything("::/0".to_owned())
    );
    assert_eq!(
        refused(nobody().key(key::constant("all")), "10.0.0.0/8"),
        NetworkError::NoAddress("constant".to_owned())
    );
}
