//! A header with one address: `X-Real-IP` and those of several providers.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};

use super::node;

/// The address in this header. `None` without one, when there are several lines or several values, since it is not
/// known then which of them the proxy has written, and when it is something else.
pub(super) fn address(headers: &HeaderMap, name: &HeaderName) -> Option<IpAddr> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) => node::address(line.as_bytes().trim_ascii()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&'static str]) -> Option<IpAddr> {
        let name = HeaderName::from_static("x-real-ip");
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(&name, http::HeaderValue::from_static(line));
        }
        address(&headers, &name)
    }

    #[test]
    fn one_address_is_read() {
        assert_eq!(read(&["192.0.2.1"]), "192.0.2.1".parse().ok());
        assert_eq!(read(&[" [2001:db8::1]:443 "]), "2001:db8::1".parse().ok());
    }

    #[test]
    fn more_than_one_line_or_value_is_none() {
        assert_eq!(read(&[]), None);
        assert_eq!(read(&["192.0.2.1", "192.0.2.1"]), None);
        assert_eq!(read(&["192.0.2.1, 192.0.2.1"]), None);
        assert_eq!(read(&["192.0.2.1,"]), None);
        assert_eq!(read(&["", "192.0.2.1"]), None);
    }
}
