//! Whose counter it is: a value that becomes readable text, one text for each key.

#[expect(
    clippy::module_inception,
    reason = "a file is named after its one public type"
)]
mod key;
mod key_encoding;
mod rewriting;
mod text;

pub(crate) use self::key::{DEFAULT_IPV6_PREFIX, Kind};
pub use self::key::{Key, KeyPart, ParseKeyError};
pub use self::key_encoding::KeyValue;
pub(crate) use self::rewriting::StoredValue;
