//! How a key is written: text that an operator can read and type, and that no two different keys share.
//!
//! A part is `kind:value`, or `kind/qualifier:value`; parts are joined by `|`. Delimiters, `%`, `#`, control characters
//! and bytes that are no UTF-8 become `%XX`. A value over 64 bytes is written as `#` and a hash of all of it. Since a
//! plain value never holds a bare `#`, and a kind never holds a bare `:`, the text says which parts it was made of.
//!
//! Stored counters hang on every byte of this.

use std::borrow::Cow;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayString;
use sha2::{Digest, Sha256};

use super::text::Text;

/// Longer parts are hashed whole: a client's header of 64 KB must not become a row of 64 KB.
const LONGEST_PART: usize = 64;
/// Half of SHA-256: 128 bits, so that finding another value with the hash of a given one takes 2^128 tries.
const HASH_BYTES: usize = 16;

/// Parts are joined by it.
pub(super) const BETWEEN_PARTS: char = '|';
/// It ends the kind.
pub(super) const BEFORE_VALUE: char = ':';
/// It separates the kind from what qualifies it.
pub(super) const BEFORE_QUALIFIER: char = '/';
/// It announces the hash of a long part.
pub(super) const BEFORE_HASH: char = '#';

/// What can be the value of a part: text, bytes, a number, or an address.
///
/// Implemented for the types that have one obvious spelling. For others, convert: `id.to_string()`.
pub trait KeyValue {
    /// Hands the value's bytes to `write`, which must be called once.
    #[doc(hidden)]
    fn with_bytes(&self, write: &mut dyn FnMut(&[u8]));
}

macro_rules! key_value_as_bytes {
    ($($type:ty),*) => { $(
        impl KeyValue for $type {
            fn with_bytes(&self, write: &mut dyn FnMut(&[u8])) {
                write(self.as_ref());
            }
        }
    )* };
}

macro_rules! key_value_as_text {
    ($($type:ty),*) => { $(
        impl KeyValue for $type {
            fn with_bytes(&self, write: &mut dyn FnMut(&[u8])) {
                let mut text = Text::new();
                // Writing into a `Text` can't fail.
                let _ = write!(text, "{self}");
                write(text.as_str().as_bytes());
            }
        }
    )* };
}

macro_rules! key_value_as_number {
    ($($type:ty),*) => { $(
        impl KeyValue for $type {
            fn with_bytes(&self, write: &mut dyn FnMut(&[u8])) {
                write(itoa::Buffer::new().format(*self).as_bytes());
            }
        }
    )* };
}

impl KeyValue for Ipv4Addr {
    fn with_bytes(&self, write: &mut dyn FnMut(&[u8])) {
        write(ipv4_text(*self).as_bytes());
    }
}

impl KeyValue for IpAddr {
    fn with_bytes(&self, write: &mut dyn FnMut(&[u8])) {
        match self {
            Self::V4(address) => address.with_bytes(write),
            Self::V6(address) => address.with_bytes(write),
        }
    }
}

/// What `Display` writes, in a fraction of the time: it is the key of most requests.
pub(super) fn ipv4_text(address: Ipv4Addr) -> ArrayString<15> {
    let mut text = ArrayString::new();
    for (index, octet) in address.octets().into_iter().enumerate() {
        // Four times three digits and three dots have room.
        if index > 0 {
            let _ = text.try_push('.');
        }
        let _ = text.try_push_str(itoa::Buffer::new().format(octet));
    }
    text
}

key_value_as_bytes!(str, String, [u8], Vec<u8>, bytes::Bytes);
key_value_as_number!(
    u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize
);
key_value_as_text!(bool, char, Ipv6Addr);

impl KeyValue for Cow<'_, str> {
    fn with_bytes(&self, write: &mut dyn FnMut(&[u8])) {
        write(self.as_bytes());
    }
}

impl<T: KeyValue + ?Sized> KeyValue for &T {
    fn with_bytes(&self, write: &mut dyn FnMut(&[u8])) {
        (**self).with_bytes(write);
    }
}

/// Where in a part the bytes stand: a kind has more delimiters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Kind,
    Value,
}

/// Writes a kind, a qualifier or a value.
pub(super) fn write_component(text: &mut Text, bytes: &[u8], place: Place) {
    if bytes.len() > LONGEST_PART {
        write_hash(text, &Sha256::digest(bytes));
        return;
    }
    if let Ok(plain) = str::from_utf8(bytes)
        && plain.bytes().all(|byte| is_plain(byte, place))
    {
        text.push_str(plain);
        return;
    }
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            if must_escape(char, place) {
                write_escaped(text, char.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                text.push(char);
            }
        }
        write_escaped(text, chunk.invalid());
    }
}

/// Writes the first half of a hash of 256 bits, as it stands for a value.
pub(super) fn write_hash(text: &mut Text, hash: &[u8]) {
    text.push(BEFORE_HASH);
    for byte in hash.iter().take(HASH_BYTES) {
        let _ = write!(text, "{byte:02x}");
    }
}

/// Whether a byte is visible ASCII, or a blank, that stands for itself: so are nearly all.
fn is_plain(byte: u8, place: Place) -> bool {
    (b' '..=b'~').contains(&byte) && !must_escape(char::from(byte), place)
}

fn must_escape(char: char, place: Place) -> bool {
    let in_any = char == '%' || char == BETWEEN_PARTS || char == BEFORE_HASH || char.is_control();
    let in_kind = char == BEFORE_VALUE || char == BEFORE_QUALIFIER;
    in_any || (in_kind && place == Place::Kind)
}

fn write_escaped(text: &mut Text, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "%{byte:02X}");
    }
}

/// Whether a stored component is the hash of a long one.
pub(super) fn is_hash(component: &str) -> bool {
    component.strip_prefix(BEFORE_HASH).is_some_and(|digits| {
        digits.len() == 2 * HASH_BYTES
            && digits
                .bytes()
                .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

/// Takes the escapes back: the bytes that were written, or `None` when this is no text that was written here.
pub(super) fn read_component(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = if *first == b'%' {
            let (digits, tail) = tail.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?);
            tail
        } else {
            bytes.push(*first);
            tail
        };
    }
    Some(bytes)
}
