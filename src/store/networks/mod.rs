//! Networks between stores and servers, for tests: `network.rs` is one that does what a test says, and `slow.rs` what a store
//! keeps to on one that is slow all the time.

mod network;
pub(super) mod slow;

pub(super) use self::network::{Held, Network, Place};
pub(super) use self::slow::{SlowNodes, slow_suite};
