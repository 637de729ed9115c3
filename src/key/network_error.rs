//! Why networks can't be used.

use std::error::Error;
use std::fmt;

use crate::limit::Mistake;

/// Why networks can't be [trusted](crate::key::TrustedProxies::try_networks), or
/// [exempt](crate::RateLimitLayer::try_exempt_networks) from a limit.
///
/// [`fmt::Debug`] says the same as [`fmt::Display`]: it is what `main` and `unwrap` print. Both end with the mistake's
/// [name](Self::name) in brackets.
///
/// # Examples
///
/// ```
/// use tollgate::key::{NetworkError, TrustedProxies};
///
/// let error = TrustedProxies::try_networks(["10.1.2.3/8"]).unwrap_err();
/// assert_eq!(error, NetworkError::HostBits("10.0.0.0/8".to_owned()));
/// ```
#[derive(Clone, PartialEq, Eq)]
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

impl NetworkError {
    /// The stable name of the mistake, under which the page `docs/errors.md` tells the cure.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimitLayer;
    ///
    /// let error = RateLimitLayer::fixed(100, 60).try_exempt_networks(["10.0.0.0/33"]).unwrap_err();
    /// assert_eq!(error.name(), "invalid-network");
    /// ```
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.mistake().0
    }

    fn mistake(&self) -> Mistake {
        match self {
            Self::Invalid(_) => Mistake("invalid-network"),
            Self::HostBits(_) => Mistake("network-host-bits"),
            Self::Everything(_) => Mistake("network-of-everybody"),
            Self::NoAddress(_) => Mistake("key-without-address"),
        }
    }
}

impl fmt::Debug for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(text) => write!(
                f,
                "{text:?} is no network: write an address, or an address and a prefix, like 10.0.0.0/8 or 2001:db8::/32"
            ),
            Self::HostBits(network) => write!(
                f,
                "a network's address has bits beyond its prefix: write {network}, or the address alone"
            ),
            Self::Everything(text) => write!(
                f,
                "the network {text} is everybody: name the networks that are meant"
            ),
            Self::NoAddress(source) => write!(
                f,
                "networks can't be exempt from a rate limit by {source}, which has no address: key it on one with \
                 .key(key::peer_ip()), or exempt requests with .skip(…)"
            ),
        }?;
        write!(f, " {}", self.mistake())
    }
}

impl Error for NetworkError {}
