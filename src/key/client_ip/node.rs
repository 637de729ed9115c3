//! An address as proxies write it.

use std::net::IpAddr;

/// The most digits of a port (RFC 7239, 6).
const PORT_DIGITS: usize = 5;

/// The address of a node: `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:4711`. Nothing
/// else is one: no name, no zone, no `unknown`. IPv4 that is mapped into IPv6 is the IPv4 address.
pub(super) fn address(node: &[u8]) -> Option<IpAddr> {
    let node = str::from_utf8(node).ok()?;
    let address = match node.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']')?;
            if !(rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port)) {
                return None;
            }
            address.parse().ok().map(IpAddr::V6)?
        }
        None => match node.parse() {
            Ok(address) => address,
            Err(_) => {
                let (address, port) = node.split_once(':')?;
                if !is_port(port) {
                    return None;
                }
                address.parse().ok().map(IpAddr::V4)?
            }
        },
    };
    Some(address.to_canonical())
}

/// A port, or one that a proxy has obfuscated.
fn is_port(port: &str) -> bool {
    match port.strip_prefix('_') {
        Some(name) => {
            let is_in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !name.is_empty() && name.bytes().all(is_in_name)
        }
        None => {
            (1..=PORT_DIGITS).contains(&port.len())
                && port.bytes().all(|byte| byte.is_ascii_digit())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_brackets_and_ports() {
        for (node, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:4711", "192.0.2.1"),
            ("192.0.2.1:_port", "192.0.2.1"),
            ("2001:DB8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("[::ffff:c000:201]:1", "192.0.2.1"),
        ] {
            assert_eq!(address(node.as_bytes()), expected.parse().ok(), "{node}");
        }
    }

    #[test]
    fn nothing_else_is_an_address() {
        for node in [
            "",
            "unknown",
            "_gazonk",
            "localhost",
            "1.2.3",
            "01.2.3.4",
            "1.2.3.4#a",
            "1.2.3.4 ",
            "1.2.3.4:",
            "1.2.3.4:123456",
            "1.2.3.4:x",
            "1.2.3.4:_",
            "1.2.3.4:_a b",
            "[1.2.3.4]",
            "[2001:db8::1",
            "[2001:db8::1]443",
            "[2001:db8::1]:",
            "[fe80::1%eth0]",
            "fe80::1%3",
            "<script>",
            "unix:",
        ] {
            assert_eq!(address(node.as_bytes()), None, "{node}");
        }
        assert_eq!(address(b"1.2.3.4\xff"), None);
    }
}
