//! What the targets for the client's address share: requests made of any bytes, and what must hold for all of them.

use std::net::{IpAddr, SocketAddr};

use http::request::Parts;
use http::{HeaderName, HeaderValue, Request};
use tollgate::Key;
use tollgate::key::{ForwardedHeader, KeySource, PeerAddr, TrustedProxies, client_ip};

/// A peer that is believed, and one that is not.
const PROXY: &str = "10.0.0.2";
const STRANGER: &str = "203.0.113.9";

/// What believes the peers in 10.0.0.0/8.
pub fn by_network(header: ForwardedHeader) -> KeySource {
    client_ip(header, TrustedProxies::networks(["10.0.0.0/8"]))
}

/// What believes two hops.
pub fn by_hops(header: ForwardedHeader) -> KeySource {
    client_ip(header, TrustedProxies::hops(2))
}

/// The lines of the input that HTTP lets through.
pub fn lines(input: &[u8]) -> Vec<Vec<u8>> {
    let lines = input.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| HeaderValue::from_bytes(line).is_ok());
    lines.map(<[u8]>::to_vec).collect()
}

/// The key of a request with these lines of the header. Whatever they are, it is an address and nothing else.
pub fn key(source: &KeySource, name: &str, lines: &[Vec<u8>]) -> Key {
    let stranger = source.address(&head(STRANGER, name, lines)).unwrap();
    let parts = head(PROXY, name, lines);
    let key = source.extract(&parts).unwrap();
    let address = source.address(&parts).unwrap();
    assert_eq!(key, Key::ip(address));
    assert_eq!(key.as_str().parse(), Ok(key.clone()));
    let is_of_the_list = stranger.to_string() != STRANGER;
    assert!(
        !is_of_the_list || stranger == address,
        "only hops believe a stranger, and all of them alike"
    );
    key
}

/// What a client puts in front of what the proxies add does not change the key.
pub fn check_left_hand(source: &KeySource, name: &str, spoofs: &[Vec<u8>], real: &str) {
    let mut on_lines = spoofs.to_vec();
    on_lines.push(real.into());
    assert_eq!(key(source, name, &on_lines).as_str(), "ip:198.51.100.7");
    let mut on_one_line = spoofs.to_vec();
    if let Some(last) = on_one_line.last_mut() {
        last.extend(format!(", {real}").into_bytes());
        assert_eq!(key(source, name, &on_one_line).as_str(), "ip:198.51.100.7");
    }
}

/// A client that was found does not change when more is put in front.
pub fn check_more_on_the_left(source: &KeySource, name: &str, lines: &[Vec<u8>], spoof: &str) {
    let address = source.address(&head(PROXY, name, lines)).unwrap();
    let is_proxy = matches!(address, IpAddr::V4(address) if address.octets()[0] == 10);
    if !is_proxy {
        let mut more = vec![spoof.into()];
        more.extend_from_slice(lines);
        assert_eq!(key(source, name, &more), key(source, name, lines));
    }
}

fn head(peer: &str, name: &str, lines: &[Vec<u8>]) -> Parts {
    let mut request = Request::new(());
    let peer = SocketAddr::new(peer.parse().unwrap(), 1);
    request.extensions_mut().insert(PeerAddr(peer));
    for line in lines {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        let line = HeaderValue::from_bytes(line).unwrap();
        request.headers_mut().append(name, line);
    }
    request.into_parts().0
}
