//! Which proxies are believed.

use std::net::IpAddr;

use crate::key::{NetworkError, Networks};
use crate::limit::Mistake;

/// The most hops: no more elements of a header are read.
const MOST_HOPS: usize = 32;

/// The proxies between the clients and this server, by their addresses or by their number. There is no way to believe
/// everybody: a client could write any address.
///
/// # Examples
///
/// ```
/// use tollgate::key::TrustedProxies;
///
/// // The load balancers' network, and one more proxy.
/// let proxies = TrustedProxies::networks(["10.0.0.0/8", "192.0.2.7"]);
/// // One proxy whose address is not known, and no other way to this server.
/// let proxies = TrustedProxies::hops(1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedProxies(Trusted);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Trusted {
    Networks(Networks),
    Hops(usize),
}

impl TrustedProxies {
    /// The proxies with these addresses: networks like `10.0.0.0/8` and `2001:db8::/32`, or single addresses. An empty
    /// list believes nobody, and the client is the peer.
    ///
    /// The client is the first address from the right that is none of them. What others have written is not read, so a
    /// client that reaches this server around the proxies is counted by its own address.
    ///
    /// # Panics
    ///
    /// When one of them is no network, has bits beyond its prefix (`10.1.2.3/8`), or is everybody (`0.0.0.0/0`, `::/0`). For
    /// networks from configuration use [`try_networks`](Self::try_networks).
    #[must_use]
    #[track_caller]
    pub fn networks<N: AsRef<str>>(networks: impl IntoIterator<Item = N>) -> Self {
        match Self::try_networks(networks) {
            Ok(proxies) => proxies,
            Err(error) => panic!("{error}"),
        }
    }

    /// The proxies with these addresses; see [`networks`](Self::networks).
    ///
    /// # Errors
    ///
    /// [`NetworkError`] when one of them is no network, has bits beyond its prefix, or is everybody.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::{NetworkError, TrustedProxies};
    ///
    /// # let configured = "10.0.0.0/8 192.0.2.7";
    /// let proxies = TrustedProxies::try_networks(configured.split_whitespace())?;
    /// # Ok::<(), NetworkError>(())
    /// ```
    pub fn try_networks<N: AsRef<str>>(
        networks: impl IntoIterator<Item = N>,
    ) -> Result<Self, NetworkError> {
        Ok(Self(Trusted::Networks(Networks::parse(networks)?)))
    }

    /// This many proxies, 1 to 32, each of which adds one element to the header: the client is that many elements from the
    /// right. A shorter list is not believed, and the client is the peer.
    ///
    /// It is for proxies whose addresses are not known. Whoever connects is taken for the last of them, so nothing else
    /// may reach this server: a client that gets around the proxies chooses its address. A header with a single address
    /// has no list, so it is believed whatever the number is.
    ///
    /// # Panics
    ///
    /// When `hops` is 0 or more than 32.
    #[must_use]
    #[track_caller]
    pub fn hops(hops: usize) -> Self {
        assert!(
            (1..=MOST_HOPS).contains(&hops),
            "there are 1 to {MOST_HOPS} proxies to count, not {hops}: without a proxy use key::peer_ip() {}",
            Mistake("proxy-hops")
        );
        Self(Trusted::Hops(hops))
    }

    /// Whether this peer of the server is one of them.
    pub(super) fn have(&self, peer: IpAddr) -> bool {
        match &self.0 {
            Trusted::Networks(networks) => networks.contain(peer),
            Trusted::Hops(_) => true,
        }
    }

    /// The client, when `peer` has connected and the header has these elements, the last one first. `None` when there are
    /// fewer elements than hops.
    pub(super) fn client(
        &self,
        peer: IpAddr,
        elements: impl Iterator<Item = Option<IpAddr>>,
    ) -> Option<IpAddr> {
        match &self.0 {
            Trusted::Networks(networks) => {
                let mut client = peer;
                for element in elements {
                    if !networks.contain(client) {
                        break;
                    }
                    // What is no address was not told by whom it came from, so it is the last known one's own.
                    let Some(address) = element else {
                        break;
                    };
                    client = address;
                }
                Some(client)
            }
            Trusted::Hops(hops) => {
                let mut client = peer;
                let mut count = 0;
                for element in elements.take(*hops) {
                    client = element.unwrap_or(client);
                    count += 1;
                }
                (count == *hops).then_some(client)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The client by these elements, of which `-` is none, in the order of the header.
    fn client(proxies: &TrustedProxies, peer: &str, elements: &str) -> Option<String> {
        let elements = elements.split(' ').filter(|element| !element.is_empty());
        let elements = elements.rev().map(|element| element.parse().ok());
        let client = proxies.client(peer.parse().unwrap(), elements);
        client.map(|client| client.to_string())
    }

    #[test]
    fn the_client_is_the_first_from_the_right_that_is_no_proxy() {
        let proxies = TrustedProxies::networks(["10.0.0.0/8"]);
        for (peer, elements, expected) in [
            ("203.0.113.9", "1.2.3.4", "203.0.113.9"),
            ("10.0.0.2", "", "10.0.0.2"),
            ("10.0.0.2", "6.6.6.6 198.51.100.7 10.0.0.1", "198.51.100.7"),
            ("10.0.0.2", "10.0.0.9 10.0.0.1", "10.0.0.9"),
            ("10.0.0.2", "6.6.6.6 -", "10.0.0.2"),
            ("10.0.0.2", "6.6.6.6 - 10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.2", "198.51.100.7", "198.51.100.7"),
        ] {
            let client = client(&proxies, peer, elements);
            assert_eq!(client.as_deref(), Some(expected), "{peer} {elements}");
        }
    }

    #[test]
    fn hops_are_counted_from_the_right() {
        for (hops, elements, expected) in [
            (1, "6.6.6.6 198.51.100.7", Some("198.51.100.7")),
            (2, "6.6.6.6 198.51.100.7 10.0.0.1", Some("198.51.100.7")),
            (2, "198.51.100.7 -", Some("198.51.100.7")),
            (2, "6.6.6.6 - 10.0.0.1", Some("10.0.0.1")),
            (1, "6.6.6.6 -", Some("10.0.0.2")),
            (1, "", None),
            (3, "6.6.6.6 198.51.100.7", None),
        ] {
            let client = client(&TrustedProxies::hops(hops), "10.0.0.2", elements);
            assert_eq!(client.as_deref(), expected, "{hops} {elements}");
        }
    }

    #[test]
    fn an_empty_list_believes_nobody() {
        let proxies = TrustedProxies::networks([""; 0]);
        assert_eq!(
            client(&proxies, "10.0.0.2", "1.2.3.4").as_deref(),
            Some("10.0.0.2")
        );
    }

    #[test]
    #[should_panic(expected = "everybody")]
    fn everybody_is_refused() {
        let _ = TrustedProxies::networks(["10.0.0.0/8", "0.0.0.0/0"]);
    }

    #[test]
    #[should_panic(expected = "1 to 32 proxies")]
    fn no_hops_are_refused() {
        let _ = TrustedProxies::hops(0);
    }
}
