//! How each algorithm counts: plain functions of (state, now, cost) in integers that saturate.
//!
//! `found.rs` and `state.rs` are what the rest of the crate calls; they leave each algorithm to its own file.

#[expect(
    clippy::module_inception,
    reason = "a file is named after its one public type"
)]
mod algorithm;
pub(crate) mod block;
pub(crate) mod fixed_window;
mod found;
mod placed;
pub(crate) mod sliding_counter;
pub(crate) mod sliding_window;
mod span;
mod state;
mod taken;
pub(crate) mod token_bucket;

pub use self::algorithm::Algorithm;
pub(crate) use self::found::{Found, charge, look};
use self::placed::{Placed, place};
pub(crate) use self::span::{LONGEST_WAY, Span};
pub(crate) use self::state::State;
pub(crate) use self::taken::Taken;
