//! `tower_governor`, beside ours.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderName, Request};
use tollgate::key::{self, ForwardedHeader, TrustedProxies};
use tollgate::{ManualClock, RateLimitLayer, Timestamp};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::{GlobalKeyExtractor, SmartIpKeyExtractor};

use crate::{before, behind, hello, request, send, statuses};

const PEER: &str = "203.0.113.9:1";

/// One at once, and another one after this period; for each peer.
fn governed(period: Duration) -> Router {
    let config = GovernorConfigBuilder::default()
        .period(period)
        .burst_size(1)
        .finish()
        .unwrap();
    hello().layer(GovernorLayer::new(config))
}

/// What the second request is told of its wait.
async fn second_wait(app: &Router) -> String {
    assert_eq!(send(app, request(PEER, &[])).await.status(), 200);
    let refused = send(app, request(PEER, &[])).await;
    assert_eq!(refused.status(), 429);
    refused.headers()["retry-after"]
        .to_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn its_app_of_the_page_lets_ten_pass_at_once() {
    let app = before::tower_governor::app();
    let log_in = || {
        let mut request = request(PEER, &[]);
        *request.method_mut() = axum::http::Method::POST;
        *request.uri_mut() = "/login".parse().unwrap();
        request
    };
    let answers = statuses(&app, (0..11).map(|_| log_in())).await;
    assert_eq!(
        answers,
        [200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 429]
    );
    let refused = send(&app, log_in()).await;
    let names: Vec<_> = refused.headers().keys().map(HeaderName::as_str).collect();
    for name in [
        "retry-after",
        "x-ratelimit-after",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(!names.contains(&"ratelimit"));
}

#[tokio::test]
async fn per_second_is_the_number_of_seconds_between_two() {
    let config = GovernorConfigBuilder::default()
        .per_second(60)
        .burst_size(1)
        .finish()
        .unwrap();
    let app = hello().layer(GovernorLayer::new(config));
    let told: u64 = second_wait(&app).await.parse().unwrap();
    assert!((50..60).contains(&told), "{told}");
}

#[tokio::test]
async fn retry_after_is_rounded_down_there_and_up_here() {
    assert_eq!(
        second_wait(&governed(Duration::from_millis(900))).await,
        "0"
    );

    let clock = ManualClock::new(Timestamp::from_unix_millis(0));
    let ours = hello().layer(RateLimitLayer::token_bucket(1, 1).burst(1).clock(&clock));
    assert_eq!(send(&ours, request(PEER, &[])).await.status(), 200);
    clock.advance(Duration::from_millis(100));
    let refused = send(&ours, request(PEER, &[])).await;
    assert_eq!(refused.headers()["retry-after"], "1");
}

/// Requests through one proxy, from one client that sends an address of its own making each time.
fn spoofed() -> impl Iterator<Item = Request<Body>> {
    (1..=3).map(|n| {
        let forwarded = format!("1.2.3.{n}, 203.0.113.9");
        request("10.0.0.1:1", &[("x-forwarded-for", &forwarded)])
    })
}

#[tokio::test]
async fn smart_ip_takes_the_first_address_which_the_client_writes() {
    let config = GovernorConfigBuilder::default()
        .per_second(3_600)
        .burst_size(1)
        .key_extractor(SmartIpKeyExtractor)
        .finish()
        .unwrap();
    let app = hello().layer(GovernorLayer::new(config));
    assert_eq!(statuses(&app, spoofed()).await, [200, 200, 200]);

    let client_ip = key::client_ip(
        ForwardedHeader::x_forwarded_for(),
        TrustedProxies::networks(["10.0.0.0/8"]),
    );
    let ours = behind(RateLimitLayer::fixed(1, 3_600).key(client_ip));
    assert_eq!(statuses(&ours, spoofed()).await, [200, 429, 429]);
}

#[tokio::test]
async fn smart_ip_believes_whoever_connects() {
    let config = GovernorConfigBuilder::default()
        .per_second(3_600)
        .burst_size(1)
        .key_extractor(SmartIpKeyExtractor)
        .finish()
        .unwrap();
    let app = hello().layer(GovernorLayer::new(config));
    let direct = (1..=3).map(|n| request(PEER, &[("x-real-ip", &format!("1.2.3.{n}"))]));
    assert_eq!(statuses(&app, direct).await, [200, 200, 200]);
}

#[tokio::test]
async fn each_ipv6_address_has_a_quota_there_and_each_64_here() {
    let neighbours = || (1..=3).map(|n| request(&format!("[2001:db8::{n}]:1"), &[]));
    let theirs = governed(Duration::from_hours(1));
    assert_eq!(statuses(&theirs, neighbours()).await, [200, 200, 200]);
    let ours = behind(RateLimitLayer::fixed(1, 3_600));
    assert_eq!(statuses(&ours, neighbours()).await, [200, 429, 429]);
}

#[tokio::test]
async fn keys_stay_in_memory_until_somebody_clears_them() {
    let config = GovernorConfigBuilder::default()
        .per_nanosecond(1)
        .burst_size(1)
        .finish()
        .unwrap();
    let limiter = config.limiter().clone();
    let app = hello().layer(GovernorLayer::new(config));
    let peers = (0..100).map(|n| request(&format!("192.0.2.{n}:1"), &[]));
    statuses(&app, peers).await;
    assert_eq!(limiter.len(), 100);
    limiter.retain_recent();
    assert_eq!(limiter.len(), 0);
}

#[tokio::test]
async fn without_an_address_both_answer_500() {
    let theirs = governed(Duration::from_secs(1));
    assert_eq!(
        send(&theirs, Request::new(Body::empty())).await.status(),
        500
    );
    let ours = behind(RateLimitLayer::fixed(1, 1));
    assert_eq!(send(&ours, Request::new(Body::empty())).await.status(), 500);
}

#[tokio::test]
async fn the_global_key_is_a_constant() {
    let config = GovernorConfigBuilder::default()
        .per_second(3_600)
        .burst_size(1)
        .key_extractor(GlobalKeyExtractor)
        .finish()
        .unwrap();
    let theirs = hello().layer(GovernorLayer::new(config));
    let ours = behind(RateLimitLayer::fixed(1, 3_600).key(key::constant("all")));
    for app in [theirs, ours] {
        let two = ["192.0.2.1:1", "192.0.2.2:1"].map(|peer| request(peer, &[]));
        assert_eq!(statuses(&app, two).await, [200, 429]);
    }
}
