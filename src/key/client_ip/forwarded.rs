//! `Forwarded` (RFC 7239): elements with commas between them, pairs with semicolons between them, values in quotes.

use std::borrow::Cow;
use std::net::IpAddr;

use super::node;

/// Parts a line before its last element: a comma in quotes does not count.
///
/// It is read from the right, so that a quote which a client has left open ends before what the proxies have added.
pub(super) fn split_last(line: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let mut is_in_quotes = false;
    for (index, byte) in line.iter().enumerate().rev() {
        match byte {
            b'"' if !is_in_quotes => is_in_quotes = true,
            b'"' if !is_escaped(&line[..index]) => is_in_quotes = false,
            b',' if !is_in_quotes => return (Some(&line[..index]), &line[index + 1..]),
            _ => {}
        }
    }
    (None, line)
}

/// Whether what follows this is escaped: by the last of an odd number of backslashes.
fn is_escaped(before: &[u8]) -> bool {
    let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\');
    backslashes.count() % 2 == 1
}

/// The address in the `for` of an element. `None` when there is no `for`, or several (section 4), or it is `unknown`, an
/// obfuscated name or no address (section 6), or the element is malformed.
pub(super) fn address(element: &[u8]) -> Option<IpAddr> {
    let mut rest = element.trim_ascii();
    let mut found = None;
    while !rest.is_empty() {
        let (pair, after) = pair(rest)?;
        if let Some((name, value)) = pair
            && name.eq_ignore_ascii_case(b"for")
            && found.replace(value).is_some()
        {
            return None;
        }
        rest = after;
    }
    node::address(&found?)
}

type Pair<'a> = (&'a [u8], Cow<'a, [u8]>);

/// The first pair, if there is one in front of the first semicolon, and what follows that. `None` when it is malformed.
fn pair(text: &[u8]) -> Option<(Option<Pair<'_>>, &[u8])> {
    let text = text.trim_ascii_start();
    if let Some(after) = text.strip_prefix(b";") {
        return Some((None, after));
    }
    let name_end = text.iter().position(|byte| !is_token(*byte))?;
    let (name, value) = text.split_at(name_end);
    let value = value.strip_prefix(b"=")?;
    let (value, after) = match value.strip_prefix(b"\"") {
        Some(quoted) => {
            let (value, after) = unquoted(quoted)?;
            (Cow::Owned(value), after)
        }
        None => {
            // Some proxies leave out the quotes around brackets and ports.
            let is_value = |byte: u8| is_token(byte) || b"[]:".contains(&byte);
            let end = value.iter().position(|byte| !is_value(*byte));
            let (value, after) = value.split_at(end.unwrap_or(value.len()));
            (Cow::Borrowed(value), after)
        }
    };
    let after = after.trim_ascii_start();
    let is_well_formed = !name.is_empty() && (after.is_empty() || after.starts_with(b";"));
    let after = after.strip_prefix(b";").unwrap_or(after);
    is_well_formed.then_some((Some((name, value)), after))
}

/// What is in quotes, without escapes, and what follows the closing one. `None` without a closing one.
fn unquoted(quoted: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::new();
    let mut rest = quoted;
    loop {
        match rest {
            [b'"', after @ ..] => return Some((value, after)),
            [b'\\', escaped, after @ ..] => {
                value.push(*escaped);
                rest = after;
            }
            [byte, after @ ..] => {
                value.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

/// Whether a byte may be in a token (RFC 9110, 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_for_of_an_element_is_read_with_its_quotes_brackets_and_port() {
        for (element, expected) in [
            ("for=192.0.2.60", "192.0.2.60"),
            ("For=192.0.2.1", "192.0.2.1"),
            ("FOR=\"192.0.2.1:80\"", "192.0.2.1"),
            ("for=192.0.2.1:80", "192.0.2.1"),
            ("for=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
            ("for=\"[2001:db8:cafe::17]:_port\"", "2001:db8:cafe::17"),
            ("for=[2001:db8::1]", "2001:db8::1"),
            (" for=192.0.2.60;proto=http;by=203.0.113.43 ", "192.0.2.60"),
            ("proto=http ; for=192.0.2.60", "192.0.2.60"),
            ("host=\"a;for=6.6.6.6, b\";for=192.0.2.60", "192.0.2.60"),
            (
                "host=\"a\\\";for=6.6.6.6;x=\\\"\";for=192.0.2.60",
                "192.0.2.60",
            ),
            ("for=\"192.0.2.\\6\\0\"", "192.0.2.60"),
            (";;for=192.0.2.60;", "192.0.2.60"),
            ("for=\"[::ffff:192.0.2.1]\"", "192.0.2.1"),
        ] {
            assert_eq!(
                address(element.as_bytes()),
                expected.parse().ok(),
                "{element}"
            );
        }
    }

    #[test]
    fn names_and_malformed_elements_have_no_address() {
        for element in [
            "",
            "for",
            "for=",
            "for=unknown",
            "for=_gazonk",
            "for=\"_gazonk:80\"",
            "for=\"a,b\"",
            "for=\"192.0.2.1",
            "for=\"192.0.2.1\"x",
            "for = 192.0.2.1",
            "for=192.0.2.1 192.0.2.2",
            "for=192.0.2.1;for=192.0.2.2",
            "for=192.0.2.1;For=192.0.2.1",
            "=192.0.2.1",
            "by=192.0.2.1;proto=http",
            "192.0.2.1",
            "for=\"192.0.2.1\\",
            "for=\"\"",
        ] {
            assert_eq!(address(element.as_bytes()), None, "{element}");
        }
    }

    #[test]
    fn commas_in_quotes_do_not_part_elements() {
        let line = br#"for="a,b";by=x, for="c,\",d\\""#;
        let (before, element) = split_last(line);
        assert_eq!(element, br#" for="c,\",d\\""#);
        assert_eq!(
            split_last(before.unwrap()),
            (None, &br#"for="a,b";by=x"#[..])
        );
    }

    #[test]
    fn a_quote_that_is_left_open_does_not_reach_what_follows() {
        for spoof in ["for=\"", "for=6.6.6.6;by=\"", "\\", "\"\\", "for=\"a\\\""] {
            let line = format!("{spoof}, for=\"[2001:db8::1]:80\"");
            let (before, element) = split_last(line.as_bytes());
            assert_eq!(before, Some(spoof.as_bytes()));
            assert_eq!(address(element), "2001:db8::1".parse().ok());
        }
    }
}
