//! The address of the client, behind proxies.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use http::request::Parts;
use tracing::Level;

use super::{ForwardedHeader, TrustedProxies};
use crate::key::grouping::Grouping;
use crate::key::peer_ip::{no_peer, peer};
use crate::key::{KeyError, KeyExtractor, KeySource};
use crate::limit::Key;

/// The client's address, as trusted proxies tell it in one header: `ip:203.0.113.7`, `ip:2001:db8::/64`.
///
/// All lines of the header are one list, read from the right, where the proxies add to it: what a client puts in front
/// changes nothing. The first address that is none of the [`TrustedProxies`] is the client's. An element that is no
/// address (`unknown`, an obfuscated name, nonsense) ends the search, and the nearest known hop is the client, the peer
/// itself at last. At most 32 elements and 8 KiB are read. No other header is, and nothing of the header's text is stored.
///
/// When the peer is no trusted proxy, or the header is absent, it is the peer's address, as [`peer_ip`](crate::key::peer_ip)
/// makes it known; without that the answer is a 500. Ports are dropped; IPv4 is exact, also when it is mapped into IPv6;
/// IPv6 is grouped by /64, [`client_ip_by_prefix`] groups otherwise.
///
/// # Examples
///
/// ```
/// use std::net::IpAddr;
/// use http::Request;
/// use tollgate::{RateLimitLayer, key};
/// use tollgate::key::{ForwardedHeader, PeerAddr, TrustedProxies};
///
/// let client_ip = key::client_ip(
///     ForwardedHeader::x_forwarded_for(),
///     TrustedProxies::networks(["10.0.0.0/8"]),
/// );
///
/// let request = Request::get("/")
///     .header("x-forwarded-for", "6.6.6.6, 198.51.100.7, 10.0.0.1")
///     .extension(PeerAddr("10.0.0.2:52241".parse()?));
/// let (parts, ()) = request.body(())?.into_parts();
/// let client: IpAddr = "198.51.100.7".parse()?;
/// assert_eq!(client_ip.extract(&parts)?, client_ip.key_for(client));
///
/// let layer = RateLimitLayer::fixed(100, 60).key(client_ip);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn client_ip(header: ForwardedHeader, proxies: TrustedProxies) -> KeySource {
    KeySource::new(ClientIp::new(header, proxies, Grouping::DEFAULT))
}

/// The client's address, as [`client_ip`], with IPv6 addresses grouped by their leading `ipv6_prefix` bits.
///
/// # Panics
///
/// When the prefix is 0 or more than 128 bits.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, ForwardedHeader, TrustedProxies};
///
/// // Providers often give a subscriber a /56.
/// let client_ip = key::client_ip_by_prefix(
///     ForwardedHeader::single("cf-connecting-ip"),
///     TrustedProxies::networks(["173.245.48.0/20", "2400:cb00::/32"]),
///     56,
/// );
/// ```
#[must_use]
#[track_caller]
pub fn client_ip_by_prefix(
    header: ForwardedHeader,
    proxies: TrustedProxies,
    ipv6_prefix: u8,
) -> KeySource {
    KeySource::new(ClientIp::new(header, proxies, Grouping::by(ipv6_prefix)))
}

struct ClientIp {
    header: ForwardedHeader,
    proxies: TrustedProxies,
    grouping: Grouping,
    /// Whether it was told that a list was too short.
    has_told: AtomicBool,
}

impl ClientIp {
    fn new(header: ForwardedHeader, proxies: TrustedProxies, grouping: Grouping) -> Self {
        Self {
            header,
            proxies,
            grouping,
            has_told: AtomicBool::new(false),
        }
    }
}

impl KeyExtractor for ClientIp {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        let address = self.address(parts);
        Ok(address.map(|address| self.grouping.key(address)))
    }

    fn missing(&self) -> KeyError {
        no_peer()
    }

    fn describe(&self) -> Cow<'static, str> {
        self.grouping
            .describe(format!("client ip by {}", self.header))
    }

    fn key_of(&self, value: &[u8]) -> Key {
        self.grouping.key_of(value)
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        let peer = peer(parts)?;
        let client = self.header.client(&parts.headers, peer, &self.proxies);
        if client.is_none() && !self.has_told.swap(true, Ordering::Relaxed) {
            let header = &self.header;
            tracing::event!(
                name: "tollgate.proxies_missed",
                target: "tollgate",
                Level::WARN,
                "a request has fewer addresses in {header} than there are hops, so its peer is counted: \
                 it came around the proxies, or TrustedProxies::hops is too high"
            );
        }
        Some(client.unwrap_or(peer))
    }

    fn has_address(&self) -> bool {
        true
    }
}
