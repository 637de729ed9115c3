//! What no header can do.

use http::HeaderValue;
use proptest::collection::vec;
use proptest::prelude::*;
use tollgate::Key;
use tollgate::key::{self, ForwardedHeader, KeySource, TrustedProxies};

use super::{by_forwarded, by_real_ip, by_x_forwarded_for, head};

/// What may stand in a line: anything that HTTP lets through, often something close to an address.
fn lines() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let near = "[0-9a-f.:,; \"\\\\\\[\\]=for_]{0,40}".prop_map(String::into_bytes);
    let any = vec(any::<u8>(), 0..60);
    let line = prop_oneof![near, any]
        .prop_filter("no header", |bytes| HeaderValue::from_bytes(bytes).is_ok());
    vec(line, 0..4)
}

fn key_of(source: &KeySource, name: &str, lines: &[Vec<u8>]) -> Key {
    let lines: Vec<_> = lines.iter().map(|line| (name, line)).collect();
    source.extract(&head("10.0.0.2", &lines)).unwrap()
}

/// The key is that of an address, and of nothing else.
fn is_address(key: &Key) -> bool {
    let value = key.as_str().strip_prefix("ip:").unwrap_or_default();
    let value = value.strip_suffix("/64").unwrap_or(value);
    key.as_str().parse() == Ok(key.clone())
        && value.parse().is_ok_and(|address| Key::ip(address) == *key)
}

fn by_hops(header: ForwardedHeader) -> KeySource {
    key::client_ip(header, TrustedProxies::hops(2))
}

proptest! {
    #[test]
    fn a_key_is_an_address_whatever_is_sent(lines in lines()) {
        for (source, name) in [
            (by_x_forwarded_for(), "x-forwarded-for"),
            (by_hops(ForwardedHeader::x_forwarded_for()), "x-forwarded-for"),
            (by_forwarded(), "forwarded"),
            (by_hops(ForwardedHeader::forwarded()), "forwarded"),
            (by_real_ip(), "x-real-ip"),
        ] {
            let key = key_of(&source, name, &lines);
            prop_assert!(is_address(&key), "{}", key.as_str());
        }
    }

    #[test]
    fn what_stands_on_the_left_changes_nothing(spoofs in lines(), on_one_line in any::<bool>()) {
        for (source, name, real) in [
            (by_x_forwarded_for(), "x-forwarded-for", "198.51.100.7, 10.0.0.1"),
            (by_hops(ForwardedHeader::x_forwarded_for()), "x-forwarded-for", "198.51.100.7, 10.0.0.1"),
            (by_forwarded(), "forwarded", "for=\"198.51.100.7:80\";host=\"a,b\", for=10.0.0.1"),
            (by_hops(ForwardedHeader::forwarded()), "forwarded", "for=198.51.100.7, for=10.0.0.1"),
        ] {
            let mut lines = spoofs.clone();
            match lines.last_mut() {
                Some(last) if on_one_line => last.extend(format!(", {real}").into_bytes()),
                _ => lines.push(real.into()),
            }
            let key = key_of(&source, name, &lines);
            prop_assert_eq!(key.as_str(), "ip:198.51.100.7");
        }
    }

    #[test]
    fn what_a_stranger_sends_changes_nothing(lines in lines()) {
        for (source, name) in [
            (by_x_forwarded_for(), "x-forwarded-for"),
            (by_forwarded(), "forwarded"),
            (by_real_ip(), "x-real-ip"),
        ] {
            let lines: Vec<_> = lines.iter().map(|line| (name, line)).collect();
            let key = source.extract(&head("203.0.113.9", &lines)).unwrap();
            prop_assert_eq!(key.as_str(), "ip:203.0.113.9");
        }
    }

    #[test]
    fn every_address_that_a_proxy_writes_is_read(address in any::<std::net::IpAddr>(), port in any::<u16>()) {
        let proxies = || TrustedProxies::hops(1);
        let client_ip = |header| key::client_ip(header, proxies());
        let socket = std::net::SocketAddr::new(address, port).to_string();
        for (header, name, line) in [
            (ForwardedHeader::x_forwarded_for(), "x-forwarded-for", address.to_string()),
            (ForwardedHeader::x_forwarded_for(), "x-forwarded-for", socket.clone()),
            (ForwardedHeader::forwarded(), "forwarded", format!("for=\"{socket}\"")),
            (ForwardedHeader::single("x-real-ip"), "x-real-ip", address.to_string()),
        ] {
            let parts = head("10.0.0.2", &[(name, &line)]);
            let source = client_ip(header);
            prop_assert_eq!(source.address(&parts), Some(address.to_canonical()));
            prop_assert_eq!(source.extract(&parts).unwrap(), source.key_for(address));
        }
    }
}
