//! `X-Forwarded-For`: addresses with commas between them.

use std::net::IpAddr;

use super::node;

/// Parts a line before its last element.
pub(super) fn split_last(line: &[u8]) -> (Option<&[u8]>, &[u8]) {
    match line.iter().rposition(|byte| *byte == b',') {
        Some(comma) => (Some(&line[..comma]), &line[comma + 1..]),
        None => (None, line),
    }
}

/// The address of an element, or `None` when it is something else.
pub(super) fn address(element: &[u8]) -> Option<IpAddr> {
    node::address(element.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_element_stands_behind_the_last_comma() {
        assert_eq!(split_last(b"a, b,c"), (Some(&b"a, b"[..]), &b"c"[..]));
        assert_eq!(split_last(b"a"), (None, &b"a"[..]));
        assert_eq!(split_last(b","), (Some(&b""[..]), &b""[..]));
    }

    #[test]
    fn blanks_around_an_address_are_none_of_it() {
        assert_eq!(address(b" \t192.0.2.1 "), "192.0.2.1".parse().ok());
        assert_eq!(address(b"192.0.2.1 192.0.2.2"), None);
        assert_eq!(address(b" "), None);
    }
}
