//! `axum-governor`, beside ours.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderName, Request};
use axum_governor::extractor::{Global, Header, PeerIp, SmartIp};
use axum_governor::{GovernorConfigBuilder, GovernorLayer, Quota, nz};
use tollgate::key::{self, ForwardedHeader, TrustedProxies};
use tollgate::{Policy, RateLimitLayer};

use crate::before::axum_governor::{UserId, app};
use crate::{behind, hello, request, send, statuses};

const PEER: &str = "203.0.113.9:1";
const PROXY: &str = "10.0.0.1:1";

/// One at once, and another one after an hour.
fn hourly() -> Quota {
    Quota::requests_per_hour(nz!(1u32)).burst(nz!(1u32))
}

fn by_peer() -> Router {
    let config = GovernorConfigBuilder::default()
        .with_extractor(PeerIp::default())
        .expect_connect_info()
        .quota_default(hourly())
        .finish()
        .unwrap();
    hello().layer(GovernorLayer::new(config))
}

fn by_smart_ip() -> Router {
    let proxies = SmartIp::new().with_trusted_proxies(["10.0.0.0/8".parse().unwrap()]);
    let config = GovernorConfigBuilder::default()
        .with_extractor(proxies)
        .expect_connect_info()
        .quota_default(hourly())
        .finish()
        .unwrap();
    hello().layer(GovernorLayer::new(config))
}

fn ours_behind_proxies(header: ForwardedHeader) -> Router {
    let proxies = TrustedProxies::networks(["10.0.0.0/8"]);
    behind(RateLimitLayer::fixed(1, 3_600).key(key::client_ip(header, proxies)))
}

#[tokio::test]
async fn its_app_of_the_page_works() {
    let app = app().unwrap();
    let mut known = request(PEER, &[]);
    known.extensions_mut().insert(UserId(42));
    let answer = send(&app, known).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(
        answer.headers()["ratelimit-policy"],
        "\"default\";q=100;w=60, \"user\";q=1000;w=3600"
    );
    assert!(answer.headers().contains_key("x-ratelimit-limit"));
    assert_eq!(send(&app, request(PEER, &[])).await.status(), 500);
}

#[tokio::test]
async fn retry_after_is_rounded_down_to_1_at_least() {
    let config = GovernorConfigBuilder::default()
        .with_extractor(Global)
        .quota_default(Quota::seconds_per_request(nz!(60u32)))
        .finish()
        .unwrap();
    let app = hello().layer(GovernorLayer::new(config));
    assert_eq!(send(&app, request(PEER, &[])).await.status(), 200);
    let refused = send(&app, request(PEER, &[])).await;
    let told: u64 = refused.headers()["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((50..60).contains(&told), "{told}");

    let config = GovernorConfigBuilder::default()
        .with_extractor(Global)
        .quota_default(Quota::requests_per_second(nz!(1u32)))
        .finish()
        .unwrap();
    let app = hello().layer(GovernorLayer::new(config));
    assert_eq!(send(&app, request(PEER, &[])).await.status(), 200);
    let refused = send(&app, request(PEER, &[])).await;
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(refused.headers()["ratelimit"], "\"default\";r=0;t=0");
}

#[tokio::test]
async fn what_one_of_a_stack_refuses_has_used_the_ones_before_there_and_nothing_here() {
    static CLIENT: HeaderName = HeaderName::from_static("x-client-key");
    let config = GovernorConfigBuilder::default()
        .with_extractor(Global)
        .quota_default(Quota::requests_per_hour(nz!(3u32)))
        .stack("client", Header(&CLIENT), hourly())
        .finish()
        .unwrap();
    let theirs = hello().layer(GovernorLayer::new(config));
    let ours = RateLimitLayer::new(Policy::fixed(3, 3_600).name("all"))
        .key(key::constant("all"))
        .and(
            Policy::fixed(1, 3_600).name("client"),
            key::header("x-client-key"),
        );
    let ours = behind(ours);
    let requests = || {
        let clients = ["alice", "alice", "alice", "bob"];
        clients.map(|client| request(PEER, &[("x-client-key", client)]))
    };
    assert_eq!(statuses(&theirs, requests()).await, [200, 429, 429, 429]);
    assert_eq!(statuses(&ours, requests()).await, [200, 429, 429, 200]);
}

#[tokio::test]
async fn smart_ip_reads_x_forwarded_for_from_a_proxy_that_writes_forwarded() {
    let spoofed = || {
        (1..=3).map(|n| {
            let made_up = format!("1.2.3.{n}");
            request(
                PROXY,
                &[
                    ("x-forwarded-for", &made_up),
                    ("forwarded", "for=203.0.113.9"),
                ],
            )
        })
    };
    assert_eq!(statuses(&by_smart_ip(), spoofed()).await, [200, 200, 200]);
    let ours = ours_behind_proxies(ForwardedHeader::forwarded());
    assert_eq!(statuses(&ours, spoofed()).await, [200, 429, 429]);
}

#[tokio::test]
async fn smart_ip_passes_over_an_address_with_a_port_to_one_that_the_client_made_up() {
    let spoofed = || {
        (1..=3).map(|n| {
            let forwarded = format!("1.2.3.{n}, 203.0.113.9:52241");
            request(PROXY, &[("x-forwarded-for", &forwarded)])
        })
    };
    assert_eq!(statuses(&by_smart_ip(), spoofed()).await, [200, 200, 200]);
    let ours = ours_behind_proxies(ForwardedHeader::x_forwarded_for());
    assert_eq!(statuses(&ours, spoofed()).await, [200, 429, 429]);
}

#[tokio::test]
async fn a_stranger_with_a_forwarding_header_is_refused_there_and_counted_here() {
    let direct = || [request(PEER, &[("x-forwarded-for", "1.2.3.4")])];
    assert_eq!(statuses(&by_smart_ip(), direct()).await, [400]);
    let ours = ours_behind_proxies(ForwardedHeader::x_forwarded_for());
    assert_eq!(statuses(&ours, direct()).await, [200]);
}

#[tokio::test]
async fn on_a_listener_for_both_all_ipv4_is_one_key_there() {
    let mapped =
        || ["[::ffff:192.0.2.1]:1", "[::ffff:198.51.100.1]:1"].map(|peer| request(peer, &[]));
    assert_eq!(statuses(&by_peer(), mapped()).await, [200, 429]);
    let ours = behind(RateLimitLayer::fixed(1, 3_600));
    assert_eq!(statuses(&ours, mapped()).await, [200, 200]);
}

#[tokio::test]
async fn white_listed_networks_are_of_the_peer_there_and_of_the_client_here() {
    let client = |n: u8| request(PROXY, &[("x-forwarded-for", &format!("203.0.113.{n}"))]);
    let proxies = SmartIp::new().with_trusted_proxies(["10.0.0.0/8".parse().unwrap()]);
    let config = GovernorConfigBuilder::default()
        .with_extractor(proxies)
        .expect_connect_info()
        .quota_default(hourly())
        .whitelist_ips(["203.0.113.7/32".parse().unwrap()])
        .finish()
        .unwrap();
    let theirs = hello().layer(GovernorLayer::new(config));
    assert_eq!(statuses(&theirs, [client(7), client(7)]).await, [200, 429]);

    let client_ip = key::client_ip(
        ForwardedHeader::x_forwarded_for(),
        TrustedProxies::networks(["10.0.0.0/8"]),
    );
    let ours = RateLimitLayer::fixed(1, 3_600)
        .key(client_ip)
        .exempt_networks(["203.0.113.7"]);
    let ours = behind(ours);
    assert_eq!(statuses(&ours, [client(7), client(7)]).await, [200, 200]);
    assert_eq!(statuses(&ours, [client(8), client(8)]).await, [200, 429]);
}

#[tokio::test]
async fn the_body_is_plain_text_there_and_a_problem_document_here() {
    let theirs = by_peer();
    let ours = behind(RateLimitLayer::fixed(1, 3_600));
    let mut types = Vec::new();
    for app in [theirs, ours] {
        send(&app, request(PEER, &[])).await;
        let refused = send(&app, request(PEER, &[])).await;
        types.push(
            refused.headers()["content-type"]
                .to_str()
                .unwrap()
                .to_owned(),
        );
        assert!(
            !to_bytes(refused.into_body(), 1_000)
                .await
                .unwrap()
                .is_empty()
        );
    }
    assert_eq!(
        types,
        ["text/plain; charset=utf-8", "application/problem+json"]
    );
}

#[tokio::test]
async fn without_an_address_both_answer_500() {
    assert_eq!(
        send(&by_peer(), Request::new(Body::empty())).await.status(),
        500
    );
    let ours = behind(RateLimitLayer::fixed(1, 1));
    assert_eq!(send(&ours, Request::new(Body::empty())).await.status(), 500);
}
