//! Any lines of a header with one address.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::key::ForwardedHeader;
use tollgate_fuzz::{by_hops, by_network, key, lines};

fuzz_target!(|input: &[u8]| {
    let name = "x-real-ip";
    let lines = lines(input);
    let header = ForwardedHeader::single(name);
    for source in [by_network(header.clone()), by_hops(header)] {
        let key = key(&source, name, &lines);
        if lines.len() != 1 {
            // It is not known which line is the proxy's.
            assert_eq!(key.as_str(), "ip:10.0.0.2");
        }
    }
});
