//! How addresses become keys.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::limit::key::DEFAULT_IPV6_PREFIX;
use crate::limit::{Key, Mistake};

/// How many leading bits of IPv6 addresses make a client.
#[derive(Clone, Copy)]
pub(super) struct Grouping {
    ipv6_prefix: u8,
}

impl Grouping {
    pub(super) const DEFAULT: Self = Self {
        ipv6_prefix: DEFAULT_IPV6_PREFIX,
    };

    /// Panics when the prefix is 0 or more than 128 bits.
    #[track_caller]
    pub(super) fn by(ipv6_prefix: u8) -> Self {
        assert!(
            (1..=128).contains(&ipv6_prefix),
            "an IPv6 prefix has 1 to 128 bits, not {ipv6_prefix}: 64 is the usual one {}",
            Mistake("ipv6-prefix")
        );
        Self { ipv6_prefix }
    }

    pub(super) fn key(self, address: IpAddr) -> Key {
        Key::ip_by_prefix(address, self.ipv6_prefix)
    }

    /// The key of a value that may be an address, or one that stands in for it.
    pub(super) fn key_of(self, value: &[u8]) -> Key {
        let address = str::from_utf8(value).ok();
        match address.and_then(|address| address.parse().ok()) {
            Some(address) => self.key(address),
            None => Key::new("ip", value),
        }
    }

    /// The name of a source, with its prefix when that is not the usual one.
    pub(super) fn describe(self, source: impl Into<Cow<'static, str>>) -> Cow<'static, str> {
        let source = source.into();
        if self.ipv6_prefix == DEFAULT_IPV6_PREFIX {
            source
        } else {
            Cow::Owned(format!("{source} (IPv6 by /{})", self.ipv6_prefix))
        }
    }
}
