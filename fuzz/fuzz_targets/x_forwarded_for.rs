//! Any lines of `X-Forwarded-For`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::key::ForwardedHeader;
use tollgate_fuzz::{by_hops, by_network, check_left_hand, check_more_on_the_left, key, lines};

fuzz_target!(|input: &[u8]| {
    let (name, real) = ("x-forwarded-for", "198.51.100.7, 10.0.0.1");
    let lines = lines(input);
    let by_network = by_network(ForwardedHeader::x_forwarded_for());
    key(&by_network, name, &lines);
    check_left_hand(&by_network, name, &lines, real);
    check_more_on_the_left(&by_network, name, &lines, "6.6.6.6");
    let by_hops = by_hops(ForwardedHeader::x_forwarded_for());
    key(&by_hops, name, &lines);
    check_left_hand(&by_hops, name, &lines, real);
});
