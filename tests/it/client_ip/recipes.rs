//! The recipes of the page on proxies, with the header lines that such proxies send.

use tollgate::key::{self, ForwardedHeader, KeySource, TrustedProxies};

use super::key_of;

/// What one that makes up addresses sends.
const SPOOFS: [&str; 4] = ["6.6.6.6", "127.0.0.1", "unknown", "<script>"];

/// A source, and the client by requests that this peer has sent with these lines.
fn clients<const N: usize>(
    source: &KeySource,
    peer: &str,
    requests: [&[(&str, &str)]; N],
) -> [String; N] {
    requests.map(|lines| key_of(source, peer, lines))
}

#[test]
fn without_a_proxy_no_header_is_read() {
    for spoof in SPOOFS {
        let lines = [
            ("x-forwarded-for", spoof),
            ("x-real-ip", spoof),
            ("forwarded", "for=6.6.6.6"),
        ];
        assert_eq!(
            key_of(&key::peer_ip(), "203.0.113.9", &lines),
            "ip:203.0.113.9"
        );
    }
}

#[test]
fn behind_nginx_the_client_is_what_nginx_adds() {
    let source = key::client_ip(
        ForwardedHeader::x_forwarded_for(),
        TrustedProxies::networks(["127.0.0.1"]),
    );
    let honest = [("x-forwarded-for", "203.0.113.9")];
    let with_lines_joined = [
        ("x-forwarded-for", "6.6.6.1, 6.6.6.2, 203.0.113.9"),
        ("forwarded", "for=1.1.1.1"),
    ];
    let keys = clients(&source, "127.0.0.1", [&honest, &with_lines_joined]);
    assert_eq!(keys, ["ip:203.0.113.9", "ip:203.0.113.9"]);
    for spoof in SPOOFS {
        let line = format!("{spoof}, 203.0.113.9");
        let lines = [("x-forwarded-for", &*line)];
        assert_eq!(
            key_of(&source, "127.0.0.1", &lines),
            "ip:203.0.113.9",
            "{spoof}"
        );
        let around = [("x-forwarded-for", spoof)];
        assert_eq!(
            key_of(&source, "203.0.113.9", &around),
            "ip:203.0.113.9",
            "{spoof}"
        );
    }
}

#[test]
fn behind_nginx_with_x_real_ip_it_is_what_nginx_sets() {
    let source = key::client_ip(
        ForwardedHeader::single("x-real-ip"),
        TrustedProxies::networks(["127.0.0.1"]),
    );
    let lines = [("x-real-ip", "203.0.113.9"), ("x-forwarded-for", "6.6.6.6")];
    assert_eq!(key_of(&source, "127.0.0.1", &lines), "ip:203.0.113.9");
    let around = [("x-real-ip", "6.6.6.6")];
    assert_eq!(key_of(&source, "203.0.113.9", &around), "ip:203.0.113.9");
}

#[test]
fn behind_a_load_balancer_the_client_is_what_it_appends_with_or_without_a_port() {
    let header = ForwardedHeader::x_forwarded_for;
    let by_subnets = TrustedProxies::networks(["10.0.1.0/24", "10.0.2.0/24"]);
    for source in [
        key::client_ip(header(), by_subnets),
        key::client_ip(header(), TrustedProxies::hops(1)),
    ] {
        for lines in [
            &[("x-forwarded-for", "203.0.113.9")][..],
            &[("x-forwarded-for", "203.0.113.9:52241")],
            &[("x-forwarded-for", "6.6.6.6, 203.0.113.9:52242")],
            &[
                ("x-forwarded-for", "6.6.6.6"),
                ("x-forwarded-for", "203.0.113.9"),
            ],
            &[
                ("x-forwarded-for", "6.6.6.6,,203.0.113.9"),
                ("x-forwarded-port", "443"),
            ],
        ] {
            assert_eq!(
                key_of(&source, "10.0.2.77", lines),
                "ip:203.0.113.9",
                "{lines:?}"
            );
        }
        let v6 = [("x-forwarded-for", "6.6.6.6, [2001:db8:1:2::3]:52241")];
        assert_eq!(key_of(&source, "10.0.1.5", &v6), "ip:2001:db8:1:2::/64");
    }
}

#[test]
fn around_a_load_balancer_only_hops_believe_a_client() {
    let lines = [("x-forwarded-for", "6.6.6.6")];
    let header = ForwardedHeader::x_forwarded_for;
    let by_subnets = key::client_ip(header(), TrustedProxies::networks(["10.0.1.0/24"]));
    assert_eq!(key_of(&by_subnets, "203.0.113.9", &lines), "ip:203.0.113.9");
    let by_hops = key::client_ip(header(), TrustedProxies::hops(1));
    assert_eq!(key_of(&by_hops, "203.0.113.9", &lines), "ip:6.6.6.6");
}

#[test]
fn behind_a_cdn_with_a_header_of_its_own_only_that_is_read() {
    let source = key::client_ip(
        ForwardedHeader::single("cf-connecting-ip"),
        TrustedProxies::networks(["173.245.48.0/20", "2400:cb00::/32"]),
    );
    let lines = [
        ("CF-Connecting-IP", "203.0.113.9"),
        ("X-Forwarded-For", "6.6.6.6,203.0.113.9"),
        ("True-Client-IP", "6.6.6.6"),
    ];
    for edge in ["173.245.48.7", "2400:cb00::7", "::ffff:173.245.63.1"] {
        assert_eq!(key_of(&source, edge, &lines), "ip:203.0.113.9", "{edge}");
    }
    let around = [("cf-connecting-ip", "6.6.6.6")];
    assert_eq!(key_of(&source, "203.0.113.9", &around), "ip:203.0.113.9");
}

#[test]
fn behind_nginx_behind_a_cdn_the_walk_passes_both() {
    let source = key::client_ip(
        ForwardedHeader::x_forwarded_for(),
        TrustedProxies::networks(["127.0.0.1", "173.245.48.0/20"]),
    );
    let through_both = [
        ("x-forwarded-for", "6.6.6.6, 203.0.113.9, 173.245.48.7"),
        ("cf-connecting-ip", "203.0.113.9"),
    ];
    let around_the_cdn = [
        ("x-forwarded-for", "6.6.6.6, 203.0.113.9"),
        ("cf-connecting-ip", "6.6.6.6"),
    ];
    let keys = clients(&source, "127.0.0.1", [&through_both, &around_the_cdn]);
    assert_eq!(keys, ["ip:203.0.113.9", "ip:203.0.113.9"]);
}

#[test]
fn on_fly_the_client_is_in_its_header_and_second_from_the_right() {
    let lines = [
        ("fly-client-ip", "203.0.113.9"),
        ("x-forwarded-for", "6.6.6.6, 203.0.113.9, 66.241.124.1"),
    ];
    let by_header = key::client_ip(
        ForwardedHeader::single("fly-client-ip"),
        TrustedProxies::hops(1),
    );
    let by_list = key::client_ip(ForwardedHeader::x_forwarded_for(), TrustedProxies::hops(2));
    for source in [by_header, by_list] {
        assert_eq!(key_of(&source, "172.16.1.2", &lines), "ip:203.0.113.9");
    }
}
