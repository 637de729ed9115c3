//! The address of the peer.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::request::Parts;

use super::grouping::Grouping;
use super::{KeyError, KeyExtractor, KeySource};
use crate::limit::{Key, Mistake};

/// What a server lacks that does not say who the peer is.
const NO_PEER: &str = if cfg!(feature = "axum") {
    "the peer's address is not known: serve the router with \
     into_make_service_with_connect_info::<SocketAddr>(), or put a tollgate::key::PeerAddr into the request's \
     extensions (hyper), or add .or(…) for requests without an address"
} else {
    "the peer's address is not known: put a tollgate::key::PeerAddr into the request's extensions, or add .or(…) for \
     requests without an address"
};

/// The peer's address, as the server accepted the connection: `ip:203.0.113.7`, `ip:2001:db8::/64`.
///
/// IPv4 addresses are exact, also when they arrive mapped into IPv6 on a dual-stack listener. IPv6 addresses are grouped
/// by /64, what one subscriber holds at least; [`peer_ip_by_prefix`] groups otherwise. The port is no part of it.
///
/// It is read from [`PeerAddr`], or else, with the feature `axum`, from axum's `ConnectInfo<SocketAddr>` or
/// `MockConnectInfo<SocketAddr>`, or with the feature `tonic` from tonic's `TcpConnectInfo`. Without any of them the answer
/// is a 500 that says what to add.
///
/// Behind a proxy this is the proxy's address, the same for all clients: see [`client_ip`](super::client_ip).
///
/// # Examples
///
/// ```
/// use tollgate::{RateLimitLayer, key};
///
/// let layer = RateLimitLayer::fixed(100, 60).key(key::peer_ip());
/// ```
#[must_use]
pub fn peer_ip() -> KeySource {
    KeySource::new(PeerIp(Grouping::DEFAULT))
}

/// The peer's address, with IPv6 addresses grouped by their leading `ipv6_prefix` bits.
///
/// # Panics
///
/// When the prefix is 0 or more than 128 bits.
///
/// # Examples
///
/// ```
/// use tollgate::{RateLimitLayer, key};
///
/// // Providers often give a subscriber a /56.
/// let layer = RateLimitLayer::fixed(100, 60).key(key::peer_ip_by_prefix(56));
/// ```
#[must_use]
#[track_caller]
pub fn peer_ip_by_prefix(ipv6_prefix: u8) -> KeySource {
    KeySource::new(PeerIp(Grouping::by(ipv6_prefix)))
}

/// The peer's address, for servers without a framework: put it into the request's extensions where the connection is
/// accepted.
///
/// # Examples
///
/// ```
/// use std::net::SocketAddr;
/// use tollgate::key::PeerAddr;
///
/// let mut request = http::Request::new(());
/// let peer: SocketAddr = "203.0.113.7:52241".parse().unwrap();
/// request.extensions_mut().insert(PeerAddr(peer));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

struct PeerIp(Grouping);

impl KeyExtractor for PeerIp {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        Ok(peer(parts).map(|address| self.0.key(address)))
    }

    fn missing(&self) -> KeyError {
        no_peer()
    }

    fn describe(&self) -> Cow<'static, str> {
        self.0.describe("peer ip")
    }

    fn key_of(&self, value: &[u8]) -> Key {
        self.0.key_of(value)
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        peer(parts)
    }

    fn has_address(&self) -> bool {
        true
    }
}

/// The error of every source that needs the peer.
pub(super) fn no_peer() -> KeyError {
    KeyError::server(NO_PEER).named(Mistake("no-peer-address"))
}

/// The peer's address, IPv4 also when it is mapped into IPv6.
pub(super) fn peer(parts: &Parts) -> Option<IpAddr> {
    connected(parts).map(|address| address.ip().to_canonical())
}

fn connected(parts: &Parts) -> Option<SocketAddr> {
    let extensions = &parts.extensions;
    if let Some(PeerAddr(address)) = extensions.get() {
        return Some(*address);
    }
    #[cfg(feature = "axum")]
    {
        use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

        if let Some(ConnectInfo(address)) = extensions.get::<ConnectInfo<SocketAddr>>() {
            return Some(*address);
        }
        if let Some(MockConnectInfo(address)) = extensions.get::<MockConnectInfo<SocketAddr>>() {
            return Some(*address);
        }
    }
    #[cfg(feature = "tonic")]
    {
        use tonic::transport::server::TcpConnectInfo;

        if let Some(info) = extensions.get::<TcpConnectInfo>() {
            return info.remote_addr();
        }
    }
    None
}
