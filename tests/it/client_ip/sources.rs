//! Headers with one address, and the client's address as a source among others.

use std::net::IpAddr;

use axum::body::Body;
use http::Request;
use tollgate::key::{self, ForwardedHeader, TrustedProxies};
use tollgate::{Key, RateLimitLayer};
use tower::Layer;

use super::{PROXIES, by_real_ip, by_x_forwarded_for, head, key_of};
use crate::support::{CLIENT, capture_log, clock, get, hello, memory, send};

#[test]
fn a_single_address_is_believed_from_a_proxy_only() {
    let line = [("x-real-ip", "5.5.5.5")];
    assert_eq!(key_of(&by_real_ip(), "10.0.0.2", &line), "ip:5.5.5.5");
    assert_eq!(
        key_of(&by_real_ip(), "203.0.113.9", &line),
        "ip:203.0.113.9"
    );
}

#[test]
fn a_single_address_is_parsed_and_grouped_like_any_other() {
    for (value, expected) in [
        ("1.2.3.4:52241", "ip:1.2.3.4"),
        ("[2001:db8::1]:443", "ip:2001:db8::/64"),
        ("2001:DB8:0:0::ffff", "ip:2001:db8::/64"),
        ("::ffff:102:304", "ip:1.2.3.4"),
    ] {
        let key = key_of(&by_real_ip(), "10.0.0.2", &[("X-Real-IP", value)]);
        assert_eq!(key, expected, "{value}");
    }
}

#[test]
fn more_than_one_line_or_value_or_nonsense_is_as_if_absent() {
    for values in [
        &["5.5.5.5", "6.6.6.6"][..],
        &["5.5.5.5", "5.5.5.5"],
        &["", "5.5.5.5"],
        &["5.5.5.5, 6.6.6.6"],
        &["unknown"],
        &["<script>"],
        &[""],
        &[],
    ] {
        let lines: Vec<_> = values.iter().map(|value| ("x-real-ip", *value)).collect();
        assert_eq!(
            key_of(&by_real_ip(), "10.0.0.2", &lines),
            "ip:10.0.0.2",
            "{values:?}"
        );
    }
}

#[test]
fn by_hops_a_single_address_is_believed_whoever_connects() {
    let header = ForwardedHeader::single("fly-client-ip");
    let source = key::client_ip(header, TrustedProxies::hops(2));
    let line = [("fly-client-ip", "198.51.100.7")];
    assert_eq!(key_of(&source, "203.0.113.9", &line), "ip:198.51.100.7");
    assert_eq!(key_of(&source, "203.0.113.9", &[]), "ip:203.0.113.9");
}

#[test]
#[should_panic(expected = "can't be a header's name")]
fn a_name_that_no_header_can_have_is_refused_when_it_is_built() {
    let _ = ForwardedHeader::single("x real ip");
}

#[test]
fn a_network_from_configuration_that_is_none_is_an_error_with_the_cure() {
    let error = TrustedProxies::try_networks(["10.0.0.0/8", "10.0.0/8"]).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("\"10.0.0/8\" is no network: write"),
        "{message}"
    );
    for everybody in ["0.0.0.0/0", "::/0", "::ffff:0:0/96"] {
        let error = TrustedProxies::try_networks([everybody]).unwrap_err();
        assert!(error.to_string().contains("everybody"), "{error}");
    }
}

#[tokio::test]
async fn no_peer_address_is_a_500_that_says_what_to_add() {
    let layer = RateLimitLayer::fixed(1, 60)
        .key(by_x_forwarded_for())
        .store(&memory(&clock()));
    let service = layer.layer(hello());
    let mut request: Request<Body> = get("/");
    let client = "198.51.100.7".parse().unwrap();
    request.headers_mut().insert("x-forwarded-for", client);
    let answer = send(&service, request).await;
    assert_eq!(answer.status, 500);
    assert!(answer.text().contains("PeerAddr"), "{}", answer.text());
}

#[tokio::test]
async fn made_up_addresses_of_one_client_share_its_counter() {
    let layer = RateLimitLayer::fixed(2, 60)
        .key(by_x_forwarded_for())
        .store(&memory(&clock()));
    let service = layer.layer(hello());
    let mut statuses = Vec::new();
    for spoof in ["1.2.3.1", "1.2.3.2, 1.2.3.3", "unknown", ""] {
        let line = format!("{spoof}, 198.51.100.7");
        let parts = head("10.0.0.2", &[("x-forwarded-for", line)]);
        let request = Request::from_parts(parts, Body::empty());
        statuses.push(send(&service, request).await.status);
    }
    assert_eq!(statuses, [200, 200, 429, 429]);
}

#[tokio::test]
async fn an_operator_resets_an_address_by_the_key_that_the_source_makes_of_it() {
    let source = by_x_forwarded_for();
    let layer = RateLimitLayer::fixed(1, 60)
        .key(source.clone())
        .store(&memory(&clock()));
    let service = layer.layer(hello());
    let request = || {
        let parts = head("10.0.0.2", &[("x-forwarded-for", "2001:db8::1")]);
        Request::from_parts(parts, Body::empty())
    };
    assert_eq!(send(&service, request()).await.status, 200);
    assert_eq!(send(&service, request()).await.status, 429);
    let neighbour: IpAddr = "2001:db8::ffff".parse().unwrap();
    let key = source.key_for(neighbour);
    assert_eq!(layer.limiter().reset(&key).await.unwrap(), 1);
    assert_eq!(send(&service, request()).await.status, 200);
}

#[test]
fn the_key_of_an_address_is_grouped_as_the_source_groups_it() {
    let address: IpAddr = "2001:db8:1:2:3:4:5:6".parse().unwrap();
    let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
    let by_56 = {
        let proxies = TrustedProxies::networks(PROXIES);
        key::client_ip_by_prefix(ForwardedHeader::forwarded(), proxies, 56)
    };
    for (source, expected) in [
        (by_x_forwarded_for(), "ip:2001:db8:1:2::/64"),
        (by_56, "ip:2001:db8:1::/56"),
        (key::peer_ip(), "ip:2001:db8:1:2::/64"),
        (key::peer_ip_by_prefix(128), "ip:2001:db8:1:2:3:4:5:6/128"),
    ] {
        assert_eq!(source.key_for(address).as_str(), expected);
        assert_eq!(source.key_for("2001:db8:1:2:3:4:5:6").as_str(), expected);
        assert_eq!(source.key_for(mapped), Key::ip(mapped));
        assert_eq!(source.key_for("unknown").as_str(), "ip:unknown");
    }
}

#[test]
fn a_source_tells_the_address_before_it_is_grouped() {
    let parts = head("10.0.0.2", &[("x-forwarded-for", "2001:db8::1:2")]);
    let client: IpAddr = "2001:db8::1:2".parse().unwrap();
    assert_eq!(by_x_forwarded_for().address(&parts), Some(client));
    assert_eq!(key::peer_ip().address(&parts), "10.0.0.2".parse().ok());
    assert_eq!(
        key::peer_ip().address(&head::<&str>("::ffff:192.0.2.1", &[])),
        "192.0.2.1".parse().ok()
    );
    let wrapped = by_x_forwarded_for()
        .normalized(str::to_lowercase)
        .hashed("sesame")
        .and(key::method());
    assert_eq!(wrapped.address(&parts), Some(client));
    assert!(wrapped.has_address());
}

#[test]
fn a_chain_tells_the_address_of_the_source_that_gave_the_key() {
    let peer: Option<IpAddr> = "10.0.0.2".parse().ok();
    let with_header = head("10.0.0.2", &[(CLIENT, "alice")]);
    let sent_twice = head("10.0.0.2", &[(CLIENT, "alice"), (CLIENT, "bob")]);
    let without = head::<&str>("10.0.0.2", &[]);
    let chain = key::header(CLIENT).or(key::peer_ip());
    assert_eq!(chain.address(&with_header), None);
    assert_eq!(chain.address(&sent_twice), None);
    assert_eq!(chain.address(&without), peer);
    let parts = key::peer_ip().and(key::header(CLIENT));
    assert_eq!(parts.address(&with_header), peer);
    assert_eq!(parts.address(&without), None, "there is no key");
    let second = parts.or(key::constant("all"));
    assert_eq!(second.address(&without), None);
}

#[test]
fn only_sources_that_take_addresses_have_one() {
    assert!(key::peer_ip().has_address() && by_real_ip().has_address());
    assert!(key::header(CLIENT).or(key::peer_ip()).has_address());
    assert!(!key::header(CLIENT).or_value("anonymous").has_address());
    assert!(!key::constant("all").and(key::method()).has_address());
    let parts = head::<&str>("10.0.0.2", &[]);
    assert_eq!(key::constant("all").address(&parts), None);
}

#[tokio::test]
async fn a_list_shorter_than_the_hops_is_told_once() {
    let log = capture_log();
    let header = ForwardedHeader::x_forwarded_for();
    let source = key::client_ip(header, TrustedProxies::hops(2));
    for _ in 0..3 {
        let key = key_of(
            &source,
            "203.0.113.9",
            &[("x-forwarded-for", "198.51.100.7")],
        );
        assert_eq!(key, "ip:203.0.113.9");
    }
    let lines = log.lines_with("x-forwarded-for");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("WARN") && lines[0].contains("hops is too high"));
    assert!(!lines[0].contains("203.0.113.9") && !lines[0].contains("198.51.100.7"));
}

#[tokio::test]
async fn the_log_line_of_a_policy_names_the_header() {
    let log = capture_log();
    let layer = RateLimitLayer::fixed(1, 60)
        .key(by_x_forwarded_for())
        .store(&memory(&clock()));
    let parts = head("10.0.0.2", &[("x-forwarded-for", "198.51.100.7")]);
    send(
        &layer.layer(hello()),
        Request::from_parts(parts, Body::empty()),
    )
    .await;
    assert_eq!(log.lines_with("key client ip by x-forwarded-for").len(), 1);
}
