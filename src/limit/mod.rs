//! What is allowed, what was used, and what follows: pure values and functions. No I/O, no clock, no HTTP.
//!
//! Every decision is a plain function of (state, now, cost) in integers that saturate. The stores and the tests call
//! the same ones.

pub(crate) mod algorithm;
mod day;
mod decision;
pub(crate) mod few;
pub(crate) mod key;
mod limits;
mod mistake;
mod policy;
pub(crate) mod timestamp;
mod told_waits;
mod verdict;

pub use self::algorithm::Algorithm;
pub use self::day::{Day, DayError, Days};
pub use self::decision::{Decision, Denied};
pub use self::key::{Key, KeyPart, KeyValue, ParseKeyError};
pub(crate) use self::limits::{InForce, Until};
pub use self::limits::{Limit, StoredLimit};
pub(crate) use self::mistake::Mistake;
pub use self::policy::{Policies, Policy, PolicyError};
pub use self::timestamp::Timestamp;
pub(crate) use self::told_waits::ToldWaits;
pub(crate) use self::verdict::ChargedBy;
pub use self::verdict::Verdict;
