//! The client's address behind proxies.

mod properties;
mod recipes;
mod sources;
mod walks;

use std::net::{IpAddr, SocketAddr};

use http::request::Parts;
use http::{HeaderValue, Request};
use tollgate::key::{self, ForwardedHeader, KeySource, PeerAddr, TrustedProxies};

/// The proxies of the tests.
const PROXIES: [&str; 2] = ["10.0.0.0/8", "2001:db8:ffff::/48"];

fn by_x_forwarded_for() -> KeySource {
    let proxies = TrustedProxies::networks(PROXIES);
    key::client_ip(ForwardedHeader::x_forwarded_for(), proxies)
}

fn by_forwarded() -> KeySource {
    let proxies = TrustedProxies::networks(PROXIES);
    key::client_ip(ForwardedHeader::forwarded(), proxies)
}

fn by_real_ip() -> KeySource {
    let proxies = TrustedProxies::networks(PROXIES);
    key::client_ip(ForwardedHeader::single("x-real-ip"), proxies)
}

/// The head of a request that this peer has sent, with these lines of headers.
fn head<V: AsRef<[u8]>>(peer: &str, lines: &[(&str, V)]) -> Parts {
    let mut request = Request::new(());
    let peer: IpAddr = peer.parse().unwrap();
    request
        .extensions_mut()
        .insert(PeerAddr(SocketAddr::new(peer, 52_241)));
    for (name, value) in lines {
        let name: http::HeaderName = name.parse().unwrap();
        let value = HeaderValue::from_bytes(value.as_ref()).unwrap();
        request.headers_mut().append(name, value);
    }
    request.into_parts().0
}

/// The text of the key that the source makes of such a request.
fn key_of(source: &KeySource, peer: &str, lines: &[(&str, &str)]) -> String {
    let key = source.extract(&head(peer, lines)).unwrap();
    key.as_str().to_owned()
}

/// The same for lines of `X-Forwarded-For` alone.
fn forwarded_for(peer: &str, lines: &[&str]) -> String {
    let lines: Vec<_> = lines
        .iter()
        .map(|line| ("x-forwarded-for", *line))
        .collect();
    key_of(&by_x_forwarded_for(), peer, &lines)
}

/// The same for lines of `Forwarded` alone.
fn forwarded(peer: &str, lines: &[&str]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| ("forwarded", *line)).collect();
    key_of(&by_forwarded(), peer, &lines)
}
