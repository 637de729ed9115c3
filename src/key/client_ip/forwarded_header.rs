//! Which header the proxies write.

use std::fmt;
use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::elements::from_the_right;
use super::{TrustedProxies, forwarded, single, x_forwarded_for};
use crate::key::header::valid_name;

/// The one header in which the proxies tell the client's address. No other is read: a client may send those.
///
/// # Examples
///
/// ```
/// use tollgate::key::ForwardedHeader;
///
/// let by_most_proxies = ForwardedHeader::x_forwarded_for();
/// let by_the_standard = ForwardedHeader::forwarded();
/// let by_one_provider = ForwardedHeader::single("cf-connecting-ip");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedHeader {
    name: HeaderName,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    XForwardedFor,
    Forwarded,
    Single,
}

impl ForwardedHeader {
    /// `X-Forwarded-For`: a list to which each proxy adds the address of its peer on the right.
    #[must_use]
    pub fn x_forwarded_for() -> Self {
        Self {
            name: HeaderName::from_static("x-forwarded-for"),
            form: Form::XForwardedFor,
        }
    }

    /// `Forwarded` (RFC 7239): a list to which each proxy adds an element with the address of its peer in `for`.
    #[must_use]
    pub fn forwarded() -> Self {
        Self {
            name: FORWARDED,
            form: Form::Forwarded,
        }
    }

    /// A header with one address, which the proxy sets and does not add to: `X-Real-IP`, `CF-Connecting-IP`,
    /// `True-Client-IP`, `Fly-Client-IP`.
    ///
    /// Sent on several lines, with several values or with something that is no address, it is as if absent. Be sure that
    /// the proxy overwrites what a client sends.
    ///
    /// # Panics
    ///
    /// When the name is no valid header name.
    #[must_use]
    #[track_caller]
    pub fn single(name: &str) -> Self {
        Self {
            name: valid_name(name),
            form: Form::Single,
        }
    }

    /// The client's address as the proxies tell it to this server, which `peer` has connected to. `None` when the list is
    /// too short.
    pub(super) fn client(
        &self,
        headers: &HeaderMap,
        peer: IpAddr,
        proxies: &TrustedProxies,
    ) -> Option<IpAddr> {
        let lines = headers
            .get_all(&self.name)
            .iter()
            .map(HeaderValue::as_bytes);
        match self.form {
            Form::XForwardedFor => {
                let elements = from_the_right(lines, x_forwarded_for::split_last);
                proxies.client(peer, elements.map(x_forwarded_for::address))
            }
            Form::Forwarded => {
                let elements = from_the_right(lines, forwarded::split_last);
                proxies.client(peer, elements.map(forwarded::address))
            }
            Form::Single if proxies.have(peer) => {
                Some(single::address(headers, &self.name).unwrap_or(peer))
            }
            Form::Single => Some(peer),
        }
    }
}

impl fmt::Display for ForwardedHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_str())
    }
}
