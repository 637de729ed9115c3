//! Whose counter it is.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;
use std::sync::OnceLock;

use super::key_encoding::{
    BEFORE_HASH, BEFORE_QUALIFIER, BEFORE_VALUE, BETWEEN_PARTS, KeyValue, Place, ipv4_text,
    is_hash, read_component, write_component,
};
use super::text::Text;

/// What one subscriber holds at least, and rotates within by design (RFC 8981).
pub(crate) const DEFAULT_IPV6_PREFIX: u8 = 64;

/// More of the last character than any kind begins with: a kind over 64 bytes is stored as a hash.
const BEYOND_KINDS: usize = 64 / char::MAX.len_utf8() + 1;

/// Whose counter it is: one or more parts, each a kind and a value.
///
/// The kind is part of the key, so the user `127.0.0.1` is not the address 127.0.0.1, and every sequence of parts is a
/// key of its own: (`a`, `bc`) is not (`ab`, `c`). Any bytes will do as a value.
///
/// A key is stored as text that can be read and typed, like `ip:203.0.113.7`, `header/x-api-key:4f2a` or
/// `user:42|route:/login`. In it `|`, `%`, `#`, control characters and bytes that are no UTF-8 are written as `%XX`, and
/// a value over 64 bytes as a hash of the whole. The leading parts of a key are a prefix of it, so everything of one
/// user can be reset at once. [`Key::from_str`] reads such a text.
///
/// Keys are personal data: [`fmt::Debug`] shows a hash that is good for one process only, and there is no
/// [`fmt::Display`].
///
/// # Examples
///
/// ```
/// use tollgate::Key;
///
/// let key = Key::new("user", 42).and("route", "/login");
/// assert_eq!(key.as_str(), "user:42|route:/login");
/// assert_eq!("user:42|route:/login".parse(), Ok(key));
///
/// // IPv6 addresses of one /64 are one client; IPv4 stays exact, also when mapped into IPv6.
/// assert_eq!(Key::ip("2001:db8::1".parse()?).as_str(), "ip:2001:db8::/64");
/// assert_eq!(Key::ip("::ffff:192.0.2.1".parse()?).as_str(), "ip:192.0.2.1");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub(super) Text);

impl Key {
    /// A key of one part. The kind says what the value is: `user`, `tenant`, `route`.
    #[must_use]
    pub fn new(kind: &str, value: impl KeyValue) -> Self {
        Kind::new(kind).key(value)
    }

    /// A key of one part whose kind has a qualifier, like the `x-api-key` in `header/x-api-key`.
    #[must_use]
    pub fn qualified(kind: &str, qualifier: &str, value: impl KeyValue) -> Self {
        Kind::qualified(kind, qualifier).key(value)
    }

    /// The key of an address, as [`key::peer_ip`](crate::key::peer_ip) makes it: IPv4-mapped IPv6 as the IPv4 address
    /// that it is, other IPv6 by its /64.
    #[must_use]
    pub fn ip(address: IpAddr) -> Self {
        Self::ip_by_prefix(address, DEFAULT_IPV6_PREFIX)
    }

    /// The key of an address, IPv6 by its leading `ipv6_prefix` bits (more than 128 count as 128). IPv4 stays exact.
    #[must_use]
    pub fn ip_by_prefix(address: IpAddr, ipv6_prefix: u8) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let mut text = Text::new();
                text.push_str("ip");
                text.push(BEFORE_VALUE);
                // Digits and dots need no escapes.
                text.push_str(&ipv4_text(address));
                Self(text)
            }
            IpAddr::V6(address) => {
                let prefix = ipv6_prefix.min(128);
                let mask = u128::MAX.checked_shl(u32::from(128 - prefix)).unwrap_or(0);
                let network = Ipv6Addr::from_bits(address.to_bits() & mask);
                Self::new("ip", format_args!("{network}/{prefix}").to_string())
            }
        }
    }

    /// The key of a header's value, as [`key::header`](crate::key::header) makes it. The name is taken in lower case.
    #[must_use]
    pub fn header(name: &str, value: impl KeyValue) -> Self {
        Kind::of_header(name).key(value)
    }

    /// The key of a constant, as [`key::constant`](crate::key::constant) makes it.
    #[must_use]
    pub fn constant(value: impl KeyValue) -> Self {
        Self::new("constant", value)
    }

    /// This key with one more part behind it.
    #[must_use]
    pub fn and(mut self, kind: &str, value: impl KeyValue) -> Self {
        self.0.push(BETWEEN_PARTS);
        self.0.push_str(Self::new(kind, value).as_str());
        self
    }

    /// The key as it is stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The parts, first to last.
    pub fn parts(&self) -> impl Iterator<Item = KeyPart<'_>> {
        self.as_str().split(BETWEEN_PARTS).map(KeyPart)
    }

    /// The key without parts, which is a prefix of every key. Nothing is stored under it.
    pub(crate) fn prefix_of_all() -> Self {
        Self(Text::new())
    }

    /// The two texts between which the keys that start with this one are stored; the key itself is outside.
    pub(crate) fn under(&self) -> (String, String) {
        if self.as_str().is_empty() {
            return (String::new(), char::MAX.to_string().repeat(BEYOND_KINDS));
        }
        // `}` comes right after the `|` that joins parts.
        (
            format!("{}|", self.as_str()),
            format!("{}}}", self.as_str()),
        )
    }
}

/// The kind of a part, as it is stored in front of the value: a source writes it once, not for each request.
#[derive(Clone)]
pub(crate) struct Kind(Text);

impl Kind {
    pub(crate) fn new(kind: &str) -> Self {
        let mut text = Text::new();
        write_component(&mut text, kind.as_bytes(), Place::Kind);
        text.push(BEFORE_VALUE);
        Self(text)
    }

    pub(crate) fn qualified(kind: &str, qualifier: &str) -> Self {
        let mut text = Text::new();
        write_component(&mut text, kind.as_bytes(), Place::Kind);
        text.push(BEFORE_QUALIFIER);
        write_component(&mut text, qualifier.as_bytes(), Place::Kind);
        text.push(BEFORE_VALUE);
        Self(text)
    }

    pub(crate) fn of_header(name: &str) -> Self {
        Self::qualified("header", &name.to_ascii_lowercase())
    }

    /// The key of one part, of this kind.
    pub(crate) fn key(&self, value: impl KeyValue) -> Key {
        let mut text = self.0.clone();
        value.with_bytes(&mut |bytes| write_component(&mut text, bytes, Place::Value));
        Key(text)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut hasher = debug_hasher();
        self.as_str().hash(&mut hasher);
        write!(f, "Key(#{:08x})", hasher.finish() & 0xffff_ffff)
    }
}

impl FromStr for Key {
    type Err = ParseKeyError;

    /// Reads a key as it is stored.
    ///
    /// # Errors
    ///
    /// [`ParseKeyError`] when no key is stored as this text.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut key = Text::new();
        for (index, part) in text.split(BETWEEN_PARTS).enumerate() {
            if index > 0 {
                key.push(BETWEEN_PARTS);
            }
            let (kind, value) = part.split_once(BEFORE_VALUE).ok_or(ParseKeyError)?;
            for (index, component) in kind.splitn(2, BEFORE_QUALIFIER).enumerate() {
                if index > 0 {
                    key.push(BEFORE_QUALIFIER);
                }
                rewrite_component(&mut key, component, Place::Kind)?;
            }
            key.push(BEFORE_VALUE);
            rewrite_component(&mut key, value, Place::Value)?;
        }
        if key.as_str() == text {
            Ok(Self(key))
        } else {
            Err(ParseKeyError)
        }
    }
}

/// One part of a [`Key`].
#[derive(Clone, Copy)]
pub struct KeyPart<'a>(&'a str);

impl<'a> KeyPart<'a> {
    /// What the value is, as it is stored: `ip`, `user`, `header/x-api-key`.
    #[must_use]
    pub fn kind(&self) -> &'a str {
        self.0
            .split_once(BEFORE_VALUE)
            .map_or(self.0, |(kind, _)| kind)
    }

    /// The value, or `None` when it was so long that only its hash is stored. What is no UTF-8 in it is replaced.
    #[must_use]
    pub fn value(&self) -> Option<Cow<'a, str>> {
        let (_, value) = self.0.split_once(BEFORE_VALUE)?;
        if value.starts_with(BEFORE_HASH) {
            return None;
        }
        if !value.contains('%') {
            return Some(Cow::Borrowed(value));
        }
        let bytes = read_component(value)?;
        Some(Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

impl fmt::Debug for KeyPart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPart")
            .field("kind", &self.kind())
            .finish_non_exhaustive()
    }
}

/// The text is no stored key.
///
/// [`fmt::Debug`] says the same as [`fmt::Display`]: it is what `main` and `unwrap` print.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ParseKeyError;

impl fmt::Debug for ParseKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for ParseKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "this is no stored key: write kind:value, parts joined by |, and %7C for | and %25 for % in a value, \
             like user:42|route:/login",
        )
    }
}

impl Error for ParseKeyError {}

/// Takes a component of a stored key apart and writes it again, so that only what is written here is read.
fn rewrite_component(text: &mut Text, component: &str, place: Place) -> Result<(), ParseKeyError> {
    if is_hash(component) {
        text.push_str(component);
    } else {
        let bytes = read_component(component).ok_or(ParseKeyError)?;
        write_component(text, &bytes, place);
    }
    Ok(())
}

/// Random for each process, so that a log line's hash can't be looked up in a table of all addresses.
fn debug_hasher() -> impl Hasher {
    static SEED: OnceLock<RandomState> = OnceLock::new();
    SEED.get_or_init(RandomState::new).build_hasher()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The encoding as it is stored. A line that changes here forgets the counters of every database in use.
    #[test]
    fn the_encoding_is_frozen() {
        let address = |text: &str| Key::ip(text.parse().unwrap());
        let long = "k".repeat(65);
        let golden = [
            (Key::new("user", 42), "user:42"),
            (Key::new("user", "alice"), "user:alice"),
            (Key::new("user", ""), "user:"),
            (address("203.0.113.7"), "ip:203.0.113.7"),
            (address("::ffff:192.0.2.1"), "ip:192.0.2.1"),
            (address("::ffff:102:304"), "ip:1.2.3.4"),
            (address("2001:DB8:0:0::1"), "ip:2001:db8::/64"),
            (address("2001:db8:1:2:3:4:5:6"), "ip:2001:db8:1:2::/64"),
            (
                Key::ip_by_prefix("2001:db8::1".parse().unwrap(), 128),
                "ip:2001:db8::1/128",
            ),
            (
                Key::ip_by_prefix("2001:db8:ffff::1".parse().unwrap(), 36),
                "ip:2001:db8:f000::/36",
            ),
            (
                Key::ip_by_prefix("2001:db8::1".parse().unwrap(), 0),
                "ip:::/0",
            ),
            (Key::header("X-Api-Key", "4f2a"), "header/x-api-key:4f2a"),
            (Key::header("a|b%c", "v"), "header/a%7Cb%25c:v"),
            (Key::header("x", [0xA1, 0xB1].as_slice()), "header/x:%A1%B1"),
            (Key::constant("all"), "constant:all"),
            (Key::new("route", "/user/{id}"), "route:/user/{id}"),
            (Key::new("route", "unmatched"), "route:unmatched"),
            (Key::new("method", "POST"), "method:POST"),
            (
                Key::new("user", 42).and("route", "/login"),
                "user:42|route:/login",
            ),
            (Key::new("a", "b|c:d%e#f/g"), "a:b%7Cc:d%25e%23f/g"),
            (Key::new("a:b/c", "d"), "a%3Ab%2Fc:d"),
            (Key::new("a", "\0\n\u{7f}\u{85}"), "a:%00%0A%7F%C2%85"),
            (Key::new("a", "' é 🦀"), "a:' é 🦀"),
            (
                Key::new("a", "k".repeat(64)),
                &*format!("a:{}", "k".repeat(64)),
            ),
            (Key::new("a", long), "a:#f39cdc2584758c99cf81c1f41d2572f5"),
        ];
        for (key, text) in golden {
            assert_eq!(key.as_str(), text);
            assert_eq!(text.parse(), Ok(key));
        }
    }

    #[test]
    fn a_long_value_is_hashed_whole_and_not_cut() {
        let (one, two) = ("k".repeat(65_536) + "1", "k".repeat(65_536) + "2");
        let (one, two) = (Key::new("a", one), Key::new("a", two));
        assert_ne!(one, two);
        assert!(one.as_str().len() < 64);
        let forged = one.as_str().trim_start_matches("a:");
        assert_ne!(Key::new("a", forged), one, "a value can't pass for a hash");
        assert!(one.parts().next().unwrap().value().is_none());
    }

    #[test]
    fn the_kind_is_part_of_the_key() {
        assert_ne!(
            Key::new("user", "127.0.0.1"),
            Key::ip("127.0.0.1".parse().unwrap())
        );
    }

    #[test]
    fn every_key_lies_under_the_one_without_parts() {
        let (from, to) = Key::prefix_of_all().under();
        let last = |count: usize| char::MAX.to_string().repeat(count);
        for kind in [
            String::new(),
            "user".to_owned(),
            last(1),
            last(16),
            last(17),
            last(99),
        ] {
            let key = Key::qualified(&kind, &last(16), last(16));
            assert!((&*from..&*to).contains(&key.as_str()), "{}", key.as_str());
        }
    }

    #[test]
    fn debug_shows_neither_key_nor_part() {
        let key = Key::new("user", "alice");
        assert!(!format!("{key:?}").contains("alice"));
        let part = key.parts().next().unwrap();
        assert!(!format!("{part:?}").contains("alice"));
    }

    #[test]
    fn text_that_is_no_stored_key_is_refused() {
        for text in [
            "",
            "user",
            "user:a|",
            "|user:a",
            "user:a%7",
            "user:a%7c",
            "user:%41",
            "user:#12",
            "a#:b",
        ] {
            assert_eq!(text.parse::<Key>(), Err(ParseKeyError), "{text}");
        }
    }

    #[test]
    fn parts_are_told_as_they_were_given() {
        let key = Key::header("x", "a|b").and("user", [0xff].as_slice());
        let parts: Vec<_> = key
            .parts()
            .map(|part| (part.kind(), part.value().unwrap()))
            .collect();
        assert_eq!(
            parts,
            [("header/x", "a|b".into()), ("user", "\u{fffd}".into())]
        );
    }

    proptest! {
        #[test]
        fn different_parts_are_different_keys(
            one in proptest::collection::vec((".{0,6}", proptest::collection::vec(any::<u8>(), 0..70)), 1..3),
            two in proptest::collection::vec((".{0,6}", proptest::collection::vec(any::<u8>(), 0..70)), 1..3),
        ) {
            let key = |parts: &[(String, Vec<u8>)]| {
                let first = Key::new(&parts[0].0, &parts[0].1);
                parts[1..].iter().fold(first, |key, part| key.and(&part.0, &part.1))
            };
            prop_assert_eq!(one == two, key(&one) == key(&two));
            prop_assert_eq!(key(&one).as_str().parse(), Ok(key(&one)));
        }

        #[test]
        fn delimiters_do_not_move_between_parts(parts in proptest::collection::vec("[ab:|/%#]{0,3}", 4)) {
            let one = Key::new(&parts[0], &parts[1]).and(&parts[2], &parts[3]);
            let joined = Key::new(&parts[0], format!("{}|{}:{}", parts[1], parts[2], parts[3]));
            prop_assert_ne!(&one, &joined);
            prop_assert!(one.as_str().starts_with(&Key::new(&parts[0], &parts[1]).under().0));
            let (from, to) = Key::prefix_of_all().under();
            prop_assert!((&*from..&*to).contains(&one.as_str()));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,80}") {
            let _ = text.parse::<Key>();
        }
    }
}
