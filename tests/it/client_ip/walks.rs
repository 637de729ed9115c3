//! Which of a header's addresses is the client.

use tollgate::key::{self, ForwardedHeader, TrustedProxies};

use super::{by_forwarded, by_x_forwarded_for, forwarded, forwarded_for, key_of};

const PROXY: &str = "10.0.0.2";

#[test]
fn a_peer_that_is_no_proxy_is_the_client_whatever_it_sends() {
    for spoof in ["1.2.3.4", "1.2.3.5", "10.0.0.1", ""] {
        assert_eq!(forwarded_for("203.0.113.9", &[spoof]), "ip:203.0.113.9");
        let element = format!("for={spoof}");
        assert_eq!(forwarded("203.0.113.9", &[&element]), "ip:203.0.113.9");
    }
}

#[test]
fn the_walk_is_from_the_right_to_the_first_that_is_no_proxy() {
    let line = "6.6.6.6, 198.51.100.7, 10.0.0.1";
    assert_eq!(forwarded_for(PROXY, &[line]), "ip:198.51.100.7");
    let line = "for=6.6.6.6, for=198.51.100.7;proto=https, for=10.0.0.1";
    assert_eq!(forwarded(PROXY, &[line]), "ip:198.51.100.7");
}

#[test]
fn a_list_of_proxies_alone_gives_the_leftmost() {
    assert_eq!(forwarded_for(PROXY, &["10.0.0.9, 10.0.0.1"]), "ip:10.0.0.9");
}

#[test]
fn without_the_header_it_is_the_peer() {
    assert_eq!(forwarded_for(PROXY, &[]), "ip:10.0.0.2");
    assert_eq!(forwarded_for(PROXY, &[""]), "ip:10.0.0.2");
    assert_eq!(forwarded(PROXY, &[]), "ip:10.0.0.2");
}

#[test]
fn all_lines_are_one_list_in_their_order() {
    assert_eq!(
        forwarded_for(PROXY, &["10.0.0.5", "198.51.100.7"]),
        "ip:198.51.100.7"
    );
    assert_eq!(
        forwarded_for(PROXY, &["6.6.6.6, 198.51.100.7", "10.0.0.5, 10.0.0.6"]),
        "ip:198.51.100.7"
    );
    assert_eq!(
        forwarded(PROXY, &["for=6.6.6.6", "for=198.51.100.7", "for=10.0.0.5"]),
        "ip:198.51.100.7"
    );
}

#[test]
fn ports_brackets_and_quotes_are_no_part_of_the_key() {
    for (line, expected) in [
        ("1.2.3.4:52241", "ip:1.2.3.4"),
        ("1.2.3.4:52242", "ip:1.2.3.4"),
        ("[2001:db8::1]:443", "ip:2001:db8::/64"),
        ("2001:db8::1", "ip:2001:db8::/64"),
        ("[2001:db8::1]", "ip:2001:db8::/64"),
        ("\t1.2.3.4 ", "ip:1.2.3.4"),
    ] {
        assert_eq!(forwarded_for(PROXY, &[line]), expected, "{line}");
    }
    for (line, expected) in [
        ("For=\"[2001:db8:cafe::17]:4711\"", "ip:2001:db8:cafe::/64"),
        ("for=192.0.2.60;proto=http", "ip:192.0.2.60"),
        ("For=192.0.2.1", "ip:192.0.2.1"),
        ("for=\"192.0.2.1:80\"", "ip:192.0.2.1"),
        (
            "proto=http;host=\"a,b;for=6.6.6.6\";FOR=192.0.2.1",
            "ip:192.0.2.1",
        ),
    ] {
        assert_eq!(forwarded(PROXY, &[line]), expected, "{line}");
    }
}

#[test]
fn a_comma_in_quotes_does_not_part_elements() {
    let line = "for=198.51.100.7, for=10.0.0.1;host=\"a, for=6.6.6.6\"";
    assert_eq!(forwarded(PROXY, &[line]), "ip:198.51.100.7");
    assert_eq!(
        forwarded(PROXY, &["for=6.6.6.6, for=\"a,b\""]),
        "ip:10.0.0.2"
    );
}

#[test]
fn what_is_no_address_ends_the_walk_at_the_nearest_known_hop() {
    let long = "A".repeat(8 * 1024);
    let texts = [
        "unknown",
        "_gazonk",
        "1.2.3.4#a",
        &long,
        "<script>",
        "fe80::1%eth0",
        "::1%",
        "",
        "01.2.3.4",
        "1.2.3.4, ",
    ];
    for text in texts {
        let line = format!("6.6.6.6, {text}");
        assert_eq!(forwarded_for(PROXY, &[&line]), "ip:10.0.0.2", "{text}");
        let line = format!("6.6.6.6, {text}, 10.0.0.1");
        assert_eq!(forwarded_for(PROXY, &[&line]), "ip:10.0.0.1", "{text}");
        let line = format!("for=6.6.6.6, for={text}, for=10.0.0.1");
        assert_eq!(forwarded(PROXY, &[&line]), "ip:10.0.0.1", "{text}");
    }
}

#[test]
fn an_open_quote_of_the_client_does_not_reach_what_the_proxy_adds() {
    for spoof in ["for=\"", "for=6.6.6.6;by=\"", "for=\"6.6.6.6\\", "\"\"\""] {
        let line = format!("{spoof}, for=198.51.100.7");
        assert_eq!(forwarded(PROXY, &[&line]), "ip:198.51.100.7", "{spoof}");
        let lines = [spoof, "for=198.51.100.7"];
        assert_eq!(forwarded(PROXY, &lines), "ip:198.51.100.7", "{spoof}");
    }
}

#[test]
fn a_list_without_end_is_read_from_the_right_only_so_far() {
    let spoofs = "6.6.6.6, ".repeat(7_000);
    assert_eq!(
        forwarded_for(PROXY, &[&format!("{spoofs}198.51.100.7")]),
        "ip:198.51.100.7"
    );
    let proxies = "10.0.0.1, ".repeat(31);
    assert_eq!(
        forwarded_for(PROXY, &[&format!("198.51.100.7, {proxies}10.0.0.3")]),
        "ip:10.0.0.1",
        "32 elements are read, and the client is the 33rd"
    );
    let blanks = " ".repeat(9 * 1024);
    assert_eq!(
        forwarded_for(PROXY, &[&format!("198.51.100.7,{blanks}10.0.0.3")]),
        "ip:10.0.0.2"
    );
}

#[test]
fn hops_are_counted_from_the_right_and_a_short_list_is_the_peer() {
    let by_hops = |hops| {
        key::client_ip(
            ForwardedHeader::x_forwarded_for(),
            TrustedProxies::hops(hops),
        )
    };
    for (hops, line, expected) in [
        (1, "6.6.6.6, 198.51.100.7", "ip:198.51.100.7"),
        (2, "6.6.6.6, 198.51.100.7, 192.0.2.1", "ip:198.51.100.7"),
        (2, "6.6.6.6, unknown, 192.0.2.1", "ip:192.0.2.1"),
        (1, "6.6.6.6, unknown", "ip:203.0.113.9"),
        (3, "6.6.6.6, 198.51.100.7", "ip:203.0.113.9"),
        (2, "6.6.6.6", "ip:203.0.113.9"),
    ] {
        let key = key_of(&by_hops(hops), "203.0.113.9", &[("x-forwarded-for", line)]);
        assert_eq!(key, expected, "{hops} {line}");
    }
    assert_eq!(key_of(&by_hops(1), "203.0.113.9", &[]), "ip:203.0.113.9");
}

#[test]
fn mapped_addresses_are_ipv4_as_peers_as_proxies_and_as_clients() {
    assert_eq!(
        forwarded_for("::ffff:10.0.0.2", &["198.51.100.7"]),
        "ip:198.51.100.7"
    );
    assert_eq!(
        forwarded_for("::ffff:192.0.2.1", &["198.51.100.7"]),
        "ip:192.0.2.1"
    );
    for (line, expected) in [
        ("::ffff:192.0.2.1", "ip:192.0.2.1"),
        ("::ffff:198.51.100.1", "ip:198.51.100.1"),
        ("::ffff:102:304", "ip:1.2.3.4"),
        ("192.0.2.1, ::ffff:a00:1", "ip:192.0.2.1"),
    ] {
        assert_eq!(forwarded_for(PROXY, &[line]), expected, "{line}");
    }
    let mapped = TrustedProxies::networks(["::ffff:10.0.0.0/104"]);
    let source = key::client_ip(ForwardedHeader::x_forwarded_for(), mapped);
    let line = [("x-forwarded-for", "198.51.100.7")];
    assert_eq!(key_of(&source, PROXY, &line), "ip:198.51.100.7");
}

#[test]
fn clients_of_one_64_share_a_key_and_neighbours_do_not() {
    let keys = |prefix| {
        let proxies = TrustedProxies::networks(["10.0.0.2"]);
        let header = ForwardedHeader::x_forwarded_for();
        let source = key::client_ip_by_prefix(header, proxies, prefix);
        ["2001:db8:1:2::1", "2001:DB8:1:2::ffff", "2001:db8:1:3::1"]
            .map(|client| key_of(&source, PROXY, &[("x-forwarded-for", client)]))
    };
    let [one, two, neighbour] = keys(64);
    assert!(one == two && two != neighbour);
    let [one, two, neighbour] = keys(56);
    assert!(one == two && two == neighbour);
    let [one, two, neighbour] = keys(128);
    assert!(one != two && two != neighbour);
}

#[test]
fn only_the_configured_header_is_read() {
    let others = [
        ("forwarded", "for=6.6.6.6"),
        ("x-real-ip", "6.6.6.6"),
        ("cf-connecting-ip", "6.6.6.6"),
        ("true-client-ip", "6.6.6.6"),
        ("fly-client-ip", "6.6.6.6"),
        ("x-client-ip", "6.6.6.6"),
    ];
    let real = ("x-forwarded-for", "198.51.100.7");
    let with_real: Vec<_> = others.into_iter().chain([real]).collect();
    assert_eq!(key_of(&by_x_forwarded_for(), PROXY, &others), "ip:10.0.0.2");
    assert_eq!(
        key_of(&by_x_forwarded_for(), PROXY, &with_real),
        "ip:198.51.100.7"
    );
    let spoof = [
        ("x-forwarded-for", "6.6.6.6"),
        ("forwarded", "for=198.51.100.7"),
    ];
    assert_eq!(key_of(&by_forwarded(), PROXY, &spoof), "ip:198.51.100.7");
}
