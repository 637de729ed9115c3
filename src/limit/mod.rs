//! What is allowed, what was used, and what follows: pure values and functions. No I/O, no clock, no HTTP.
//!
//! Every decision is a plain function of (state, now, cost) in integers that saturate. The stores and the tests call
//! the same ones.

mod decision;
pub(crate) mod fixed_window;
pub(crate) mod key;
mod key_encoding;
mod policy;
mod text;
pub(crate) mod timestamp;

pub use self::decision::{Decision, Denied};
pub use self::key::{Key, KeyPart, ParseKeyError};
pub use self::key_encoding::KeyValue;
pub use self::policy::{Algorithm, Policy, PolicyError};
pub use self::timestamp::Timestamp;
