//! The peer's address as the key.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
use axum::routing::get as on_get;
use tollgate::key::{self, PeerAddr};
use tollgate::{Key, Limiter, Policy, RateLimitLayer};
use tower::Layer;

use crate::support::{capture_log, clock, get, hello, memory, send, serve};

/// The status of one request of each peer, on a limit of 1.
async fn statuses_of<const N: usize>(layer: &RateLimitLayer, peers: [&str; N]) -> [u16; N] {
    let service = layer.layer(hello());
    let mut statuses = [0; N];
    for (status, peer) in statuses.iter_mut().zip(peers) {
        let mut request = get("/");
        let address = SocketAddr::new(peer.parse().unwrap(), 52_241);
        request.extensions_mut().insert(PeerAddr(address));
        *status = send(&service, request).await.status;
    }
    statuses
}

fn one_each(source: key::KeySource) -> RateLimitLayer {
    RateLimitLayer::fixed(1, 60)
        .key(source)
        .store(&memory(&clock()))
}

#[tokio::test]
async fn addresses_of_one_64_share_a_counter_and_neighbours_do_not() {
    let peers = [
        "2001:db8:1:2::1",
        "2001:db8:1:2::ffff",
        "2001:db8:1:2:ffff:ffff:ffff:ffff",
        "2001:db8:1:3::1",
        "2001:db8:1:1::1",
    ];
    let statuses = statuses_of(&one_each(key::peer_ip()), peers).await;
    assert_eq!(statuses, [200, 429, 429, 200, 200]);
}

#[tokio::test]
async fn a_prefix_of_128_bits_tells_all_addresses_apart() {
    let peers = ["2001:db8::1", "2001:db8::2", "2001:db8::1"];
    let statuses = statuses_of(&one_each(key::peer_ip_by_prefix(128)), peers).await;
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn a_prefix_of_56_bits_joins_256_networks() {
    let peers = ["2001:db8:0:0::1", "2001:db8:0:ff::1", "2001:db8:0:100::1"];
    let statuses = statuses_of(&one_each(key::peer_ip_by_prefix(56)), peers).await;
    assert_eq!(statuses, [200, 429, 200]);
}

#[tokio::test]
async fn mapped_ipv4_addresses_are_the_ipv4_addresses_that_they_are() {
    let peers = [
        "::ffff:192.0.2.1",
        "192.0.2.1",
        "::ffff:198.51.100.1",
        "::ffff:102:304",
        "1.2.3.4",
    ];
    let statuses = statuses_of(&one_each(key::peer_ip()), peers).await;
    assert_eq!(statuses, [200, 429, 200, 200, 429]);
}

#[tokio::test]
async fn mapped_addresses_stay_apart_whatever_the_prefix() {
    let peers = ["::ffff:192.0.2.1", "::ffff:198.51.100.1"];
    for prefix in [1, 56, 64, 128] {
        let layer = one_each(key::peer_ip_by_prefix(prefix));
        assert_eq!(statuses_of(&layer, peers).await, [200, 200], "/{prefix}");
    }
}

#[tokio::test]
async fn two_spellings_of_an_address_are_one_key() {
    let peers = [
        "2001:DB8:0:0::1",
        "2001:db8::1",
        "2001:0db8:0000:0000:0000:0000:0000:0001",
    ];
    let statuses = statuses_of(&one_each(key::peer_ip_by_prefix(128)), peers).await;
    assert_eq!(statuses, [200, 429, 429]);
}

#[tokio::test]
async fn a_zone_id_and_the_port_are_no_part_of_the_key() {
    let service = one_each(key::peer_ip()).layer(hello());
    let mut statuses = Vec::new();
    for peer in ["[fe80::1%3]:80", "[fe80::1%4]:81", "[fe80::1]:82"] {
        let mut request = get("/");
        let address: SocketAddr = peer.parse().unwrap();
        request.extensions_mut().insert(PeerAddr(address));
        statuses.push(send(&service, request).await.status);
    }
    assert_eq!(statuses, [200, 429, 429]);
}

#[tokio::test]
async fn a_user_named_like_an_address_is_not_that_address() {
    let store = memory(&clock());
    let limiter = Limiter::new(Policy::fixed(1, 60)).store(&store);
    assert!(
        limiter
            .check(&Key::new("user", "127.0.0.1"))
            .await
            .unwrap()
            .is_allowed()
    );
    let address = Key::ip("127.0.0.1".parse().unwrap());
    assert!(limiter.check(&address).await.unwrap().is_allowed());
}

#[tokio::test]
async fn no_peer_address_is_a_500_that_says_what_to_add() {
    let service = one_each(key::peer_ip()).layer(hello());
    let answer = send(&service, get("/")).await;
    assert_eq!(answer.status, 500);
    assert_eq!(answer.only("content-type"), "application/problem+json");
    assert_eq!(answer.only("cache-control"), "no-store");
    let problem = answer.json();
    assert_eq!(problem["status"], 500);
    assert_eq!(problem["title"], "Internal Server Error");
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.contains("into_make_service_with_connect_info"),
        "{detail}"
    );
    assert!(detail.contains("PeerAddr"), "{detail}");
}

#[tokio::test]
async fn a_missing_peer_address_is_logged_once() {
    let log = capture_log();
    let service = one_each(key::peer_ip()).layer(hello());
    for _ in 0..3 {
        assert_eq!(send(&service, get("/")).await.status, 500);
    }
    let lines = log.lines_with("into_make_service_with_connect_info");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("ERROR"), "{}", lines[0]);
}

#[tokio::test]
async fn forwarding_headers_change_nothing() {
    let service = one_each(key::peer_ip()).layer(hello());
    let headers = [
        "x-forwarded-for",
        "forwarded",
        "x-real-ip",
        "cf-connecting-ip",
        "true-client-ip",
        "x-client-ip",
        "fly-client-ip",
    ];
    let mut statuses = Vec::new();
    for (index, header) in headers.into_iter().enumerate() {
        let mut request = get("/");
        let address: SocketAddr = "203.0.113.9:1".parse().unwrap();
        request.extensions_mut().insert(PeerAddr(address));
        let forged = format!("1.2.3.{index}").parse().unwrap();
        request.headers_mut().insert(header, forged);
        statuses.push(send(&service, request).await.status);
    }
    assert_eq!(statuses, [200, 429, 429, 429, 429, 429, 429]);
}

#[tokio::test]
async fn an_axum_server_makes_the_peer_known_through_connect_info() {
    let layer = one_each(key::peer_ip());
    let limiter = layer.limiter();
    let router = Router::new()
        .route("/", on_get(|| async { "hello" }))
        .layer(layer);
    let address = serve(router).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{address}/");
    assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
    assert_eq!(client.get(&url).send().await.unwrap().status(), 429);
    let decision = limiter.peek(&Key::ip("127.0.0.1".parse().unwrap())).await;
    assert_eq!(decision.unwrap().used(), 1);
}

#[tokio::test]
async fn a_router_served_without_connect_info_answers_500_over_the_wire() {
    let router = Router::new()
        .route("/", on_get(|| async { "hello" }))
        .layer(one_each(key::peer_ip()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client
        .get(format!("http://{address}/"))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 500);
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
}

#[tokio::test]
async fn tests_of_users_may_mock_connect_info() {
    let router = Router::new()
        .route("/", on_get(|| async { "hello" }))
        .layer(one_each(key::peer_ip()))
        .layer(MockConnectInfo(SocketAddr::from(([203, 0, 113, 7], 1))));
    assert_eq!(send(&router, get("/")).await.status, 200);
    assert_eq!(send(&router, get("/")).await.status, 429);
}

#[tokio::test]
async fn a_real_connection_goes_before_a_mocked_one() {
    let layer = one_each(key::peer_ip());
    let limiter = layer.limiter();
    let mut request = get("/");
    let real = SocketAddr::from(([203, 0, 113, 7], 1));
    let mocked = SocketAddr::from(([198, 51, 100, 1], 1));
    request.extensions_mut().insert(ConnectInfo(real));
    request.extensions_mut().insert(MockConnectInfo(mocked));
    send(&layer.layer(hello()), request).await;
    let used = limiter.peek(&Key::ip(real.ip())).await.unwrap().used();
    assert_eq!(used, 1);
}

#[test]
#[should_panic(expected = "1 to 128 bits")]
fn a_prefix_of_no_bits_is_refused_when_it_is_built() {
    let _ = key::peer_ip_by_prefix(0);
}
