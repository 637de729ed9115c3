//! Networks that a limit is not for.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

/// Of IPv4 addresses that are mapped into IPv6: `::ffff:0:0/96`.
const MAPPED_PREFIX: u8 = 96;

/// Networks, told apart by their bits: IPv4 that is mapped into IPv6 is IPv4.
#[derive(Clone, Debug, Default)]
pub(super) struct Networks(Vec<IpNet>);

impl Networks {
    /// Adds a network like `10.0.0.0/8`, or a single address.
    pub(super) fn add(&mut self, text: &str) -> Result<(), NetworkError> {
        let told = || text.chars().take(80).collect();
        let network = match text.parse::<IpNet>() {
            Ok(network) => network,
            Err(_) => match text.parse::<IpAddr>() {
                Ok(address) => address.into(),
                Err(_) => return Err(NetworkError::Invalid(told())),
            },
        };
        if network.addr() != network.network() {
            return Err(NetworkError::HostBits(network.trunc().to_string()));
        }
        let network = canonical(network);
        if network.prefix_len() == 0 {
            return Err(NetworkError::Everything(told()));
        }
        self.0.push(network);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// A network inside `::ffff:0:0/96` as the one of IPv4 that it is.
fn canonical(network: IpNet) -> IpNet {
    let of_ipv4 = |address: Ipv6Addr, prefix: u8| {
        let prefix = prefix.checked_sub(MAPPED_PREFIX)?;
        Ipv4Net::new(address.to_ipv4_mapped()?, prefix).ok()
    };
    match network {
        IpNet::V6(mapped) => of_ipv4(mapped.addr(), mapped.prefix_len()).map_or(network, IpNet::V4),
        IpNet::V4(_) => network,
    }
}

/// Why networks can't be exempt from a limit; see
/// [`RateLimitLayer::try_exempt_networks`](crate::RateLimitLayer::try_exempt_networks).
///
/// # Examples
///
/// ```
/// use tollgate::{NetworkError, RateLimitLayer};
///
/// let error = RateLimitLayer::fixed(100, 60).try_exempt_networks(["10.0.0.0/33"]).unwrap_err();
/// assert_eq!(error, NetworkError::Invalid("10.0.0.0/33".to_owned()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetworkError {
    /// The text, shortened to 80 characters, is neither a network nor an address.
    Invalid(String),
    /// The address has bits beyond its prefix: this is the network that it is in.
    HostBits(String),
    /// The network is all of IPv4 or of IPv6.
    Everything(String),
    /// The layer's key, described here, is not made of an address.
    NoAddress(String),
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(text) => write!(
                f,
                "{text:?} is no network: write an address and a prefix, like 10.0.0.0/8 or 2001:db8::/32, or an address"
            ),
            Self::HostBits(network) => write!(
                f,
                "a network's address has bits beyond its prefix: write {network}, or the address alone"
            ),
            Self::Everything(text) => write!(
                f,
                "{text} exempts everybody from the rate limit: switch it off with .enabled(false) if that is meant"
            ),
            Self::NoAddress(source) => write!(
                f,
                "networks can't be exempt from a rate limit by {source}, which has no address: key it on one with \
                 .key(key::peer_ip()), or exempt requests with .skip(…)"
            ),
        }
    }
}

impl Error for NetworkError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Result<Networks, NetworkError> {
        let mut networks = Networks::default();
        for text in texts {
            networks.add(text)?;
        }
        Ok(networks)
    }

    #[test]
    fn addresses_are_told_by_their_bits_and_not_by_their_spelling() {
        let networks = networks(&["10.0.0.0/8", "2001:db8::/32", "192.0.2.1"]).unwrap();
        for (address, is_inside) in [
            ("10.255.0.1", true),
            ("11.0.0.1", false),
            ("::ffff:10.1.2.3", true),
            ("::ffff:a01:203", true),
            ("::ffff:11.1.2.3", false),
            ("2001:DB8:0::1", true),
            ("2001:db9::1", false),
            ("192.0.2.1", true),
            ("192.0.2.2", false),
            ("::10.1.2.3", false),
        ] {
            assert_eq!(
                networks.contain(address.parse().unwrap()),
                is_inside,
                "{address}"
            );
        }
    }

    #[test]
    fn a_mapped_network_is_the_network_of_ipv4() {
        let networks = networks(&["::ffff:10.0.0.0/104", "::ffff:192.0.2.1"]).unwrap();
        for address in ["10.1.2.3", "::ffff:10.1.2.3", "192.0.2.1"] {
            assert!(networks.contain(address.parse().unwrap()), "{address}");
        }
        assert!(!networks.contain("192.0.2.2".parse().unwrap()));
    }

    #[test]
    fn a_network_around_the_mapped_addresses_holds_none_of_ipv4() {
        let networks = networks(&["::/64"]).unwrap();
        assert!(networks.contain("::1".parse().unwrap()));
        assert!(!networks.contain("10.1.2.3".parse().unwrap()));
        assert!(!networks.contain("::ffff:10.1.2.3".parse().unwrap()));
    }

    #[test]
    fn nonsense_is_an_error() {
        for text in [
            "",
            " ",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0/8",
            "::/129",
            "localhost",
            "10.0.0.0/-1",
            "10.0.0.0 /8",
            "fe80::1%eth0",
            "*",
        ] {
            assert!(
                matches!(networks(&[text]), Err(NetworkError::Invalid(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn everything_is_refused_in_each_spelling() {
        for text in ["0.0.0.0/0", "::/0", "::ffff:0:0/96"] {
            let error = networks(&[text]).unwrap_err();
            assert_eq!(error, NetworkError::Everything(text.to_owned()));
        }
    }

    #[test]
    fn bits_beyond_the_prefix_are_refused_with_the_network_that_is_meant() {
        let error = networks(&["10.1.2.3/8"]).unwrap_err();
        assert_eq!(error, NetworkError::HostBits("10.0.0.0/8".to_owned()));
    }
}
