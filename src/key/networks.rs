//! A list of networks.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

/// The length of the prefix of `::ffff:0:0/96`, in which IPv6 maps IPv4.
const MAPPED_PREFIX: u8 = 96;

/// Some networks, of which an address may be in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Networks(Vec<IpNet>);

impl Networks {
    pub(crate) fn parse<N: AsRef<str>>(
        networks: impl IntoIterator<Item = N>,
    ) -> Result<Self, NetworkError> {
        let networks = networks.into_iter().map(|text| network(text.as_ref()));
        networks.collect::<Result<_, _>>().map(Self)
    }

    /// Whether one of them has this address, which counts as IPv4 when it is mapped into IPv6.
    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// A network, or an address as the network of nothing else.
fn network(text: &str) -> Result<IpNet, NetworkError> {
    let error = |problem| NetworkError {
        text: text.to_owned(),
        problem,
    };
    let parsed = match text.trim().parse::<IpAddr>() {
        Ok(address) => Ok(IpNet::from(address.to_canonical())),
        Err(_) => text.trim().parse::<IpNet>().map(without_mapping),
    };
    match parsed {
        Ok(network) if network.prefix_len() == 0 => Err(error(Problem::IsEverything)),
        Ok(network) => Ok(network),
        Err(_) => Err(error(Problem::IsNoNetwork)),
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

/// A text does not name a network that can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkError {
    text: String,
    problem: Problem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    IsNoNetwork,
    IsEverything,
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.text;
        match self.problem {
            Problem::IsNoNetwork => write!(
                f,
                "{text:?} is no network: write an address, or a network like 10.0.0.0/8 or 2001:db8::/32"
            ),
            Problem::IsEverything => write!(
                f,
                "the network {text:?} is everybody: name the networks that are meant"
            ),
        }
    }
}

impl Error for NetworkError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn contain(network: &str, address: &str) -> bool {
        let networks = Networks::parse([network]).unwrap();
        networks.contain(address.parse().unwrap())
    }

    #[test]
    fn a_network_has_its_addresses_and_no_others() {
        assert!(contain("10.0.0.0/8", "10.255.0.1"));
        assert!(!contain("10.0.0.0/8", "11.0.0.0"));
        assert!(contain("2001:db8::/32", "2001:db8:ffff::1"));
        assert!(!contain("2001:db8::/32", "2001:db9::"));
        assert!(
            contain("10.1.2.3/8", "10.255.0.1"),
            "bits of the host are ignored"
        );
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
        assert!(contain("::ffff:10.0.0.0/104", "10.0.0.1"));
        assert!(contain("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(!contain("::ffff:10.0.0.0/104", "11.0.0.1"));
        assert!(!contain("0:0:0:1::/64", "::ffff:10.0.0.1"));
    }

    #[test]
    fn what_is_no_network_or_everybody_is_refused_with_the_cure() {
        for (text, cure) in [
            ("", "write an address"),
            ("10.0.0.0/33", "write an address"),
            ("10.0.0", "write an address"),
            ("localhost", "write an address"),
            ("10.0.0.0/8,192.0.2.1", "write an address"),
            ("fe80::1%eth0", "write an address"),
            ("0.0.0.0/0", "everybody"),
            ("10.0.0.0/0", "everybody"),
            ("::/0", "everybody"),
            ("::ffff:0.0.0.0/96", "everybody"),
        ] {
            let error = Networks::parse([text]).unwrap_err().to_string();
            assert!(error.contains(cure) && error.contains(text), "{error}");
        }
    }
}
