//! Lists of networks.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use super::NetworkError;

/// The length of the prefix of `::ffff:0:0/96`, in which IPv6 maps IPv4.
const MAPPED_PREFIX: u8 = 96;

/// The most characters of a text that an error repeats.
const TOLD_CHARS: usize = 80;

/// Some networks, of which an address may be in one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Networks(Vec<IpNet>);

impl Networks {
    pub(crate) fn parse(
        networks: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, NetworkError> {
        let networks = networks.into_iter().map(|text| network(text.as_ref()));
        networks.collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them has this address, which counts as IPv4 when it is mapped into IPv6.
    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// A network, or an address as the network of nothing else.
fn network(text: &str) -> Result<IpNet, NetworkError> {
    let told = || text.chars().take(TOLD_CHARS).collect();
    let parsed = match text.trim().parse::<IpAddr>() {
        Ok(address) => Ok(IpNet::from(address.to_canonical())),
        Err(_) => text.trim().parse::<IpNet>().map(without_mapping),
    };
    match parsed {
        Err(_) => Err(NetworkError::Invalid(told())),
        // First, or its network would be proposed in place of an address with more bits.
        Ok(network) if network.prefix_len() == 0 => Err(NetworkError::Everything(told())),
        Ok(network) if network.addr() != network.network() => {
            Err(NetworkError::HostBits(network.trunc().to_string()))
        }
        Ok(network) => Ok(network),
    }
}

/// A network of mapped addresses as the IPv4 network that it is.
fn without_mapping(network: IpNet) -> IpNet {
    let IpAddr::V4(address) = network.addr().to_canonical() else {
        return network;
    };
    let prefix = network.prefix_len().checked_sub(MAPPED_PREFIX);
    match (network, prefix.map(|prefix| Ipv4Net::new(address, prefix))) {
        (IpNet::V6(_), Some(Ok(mapped))) => IpNet::V4(mapped),
        _ => network,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contain(network: &str, address: &str) -> bool {
        let networks = Networks::parse([network]).unwrap();
        networks.contain(address.parse().unwrap())
    }

    fn error(network: &str) -> NetworkError {
        Networks::parse([network]).unwrap_err()
    }

    #[test]
    fn a_network_has_its_addresses_and_no_others() {
        assert!(contain("10.0.0.0/8", "10.255.0.1"));
        assert!(!contain("10.0.0.0/8", "11.0.0.0"));
        assert!(contain("2001:db8::/32", "2001:DB8:ffff::1"));
        assert!(!contain("2001:db8::/32", "2001:db9::"));
    }

    #[test]
    fn an_address_is_the_network_of_nothing_else() {
        assert!(contain("192.0.2.1", "192.0.2.1"));
        assert!(!contain("192.0.2.1", "192.0.2.2"));
        assert!(contain("2001:db8::1", "2001:db8::1"));
        assert!(!contain("2001:db8::1", "2001:db8::2"));
    }

    #[test]
    fn mapped_addresses_and_networks_are_the_ipv4_that_they_are() {
        assert!(contain("10.0.0.0/8", "::ffff:10.0.0.1"));
        assert!(contain("10.0.0.0/8", "::ffff:a01:203"));
        assert!(!contain("10.0.0.0/8", "::10.0.0.1"));
        assert!(contain("::ffff:10.0.0.0/104", "10.0.0.1"));
        assert!(contain("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(!contain("::ffff:10.0.0.0/104", "11.0.0.1"));
    }

    #[test]
    fn a_network_around_the_mapped_addresses_holds_none_of_ipv4() {
        assert!(contain("::/64", "::1"));
        assert!(!contain("::/64", "10.1.2.3"));
        assert!(!contain("::/64", "::ffff:10.1.2.3"));
    }

    #[test]
    fn spaces_around_a_network_are_not_a_part_of_it() {
        assert!(contain(" 10.0.0.0/8\n", "10.0.0.1"));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in [
            "",
            " ",
            "*",
            "localhost",
            "10.0.0",
            "10.0.0/8",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0 /8",
            "10.0.0.0/8,192.0.2.1",
            "::/129",
            "fe80::1%eth0",
        ] {
            assert_eq!(error(text), NetworkError::Invalid(text.to_owned()));
        }
        assert_eq!(
            error(&"x".repeat(100)),
            NetworkError::Invalid("x".repeat(80))
        );
    }

    #[test]
    fn everybody_is_refused_in_each_spelling() {
        for text in [
            "0.0.0.0/0",
            "10.0.0.0/0",
            "::/0",
            "::1/0",
            "::ffff:0.0.0.0/96",
            "::ffff:0:0/96",
        ] {
            assert_eq!(error(text), NetworkError::Everything(text.to_owned()));
        }
    }

    #[test]
    fn bits_beyond_the_prefix_are_refused_with_the_network_that_is_meant() {
        for (text, meant) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("2001:db8::1/32", "2001:db8::/32"),
            ("::ffff:10.1.2.3/104", "10.0.0.0/8"),
            ("::ffff:10.0.0.0/64", "::/64"),
        ] {
            assert_eq!(error(text), NetworkError::HostBits(meant.to_owned()));
        }
    }
}
