//! What every store must do, and the suite that proves it.

use std::fmt;

use super::Handle;

/// A place that keeps counters: what `.store(…)` takes.
///
/// What a store promises, and what its suite proves:
///
/// * A charge is atomic: with any number of tasks, handles and processes on one store, never one unit over the limit.
/// * Charges of one batch are answered as if they had come one after another, in their order.
/// * A refused charge uses nothing. It is counted apart, as an attempt.
/// * Looking uses nothing and creates nothing.
/// * A reset leaves the key as if it had never been used, and is seen by the next charge.
/// * A sweep deletes only what no window needs any more, in bounded steps.
/// * What was answered "allowed" is stored. What is in doubt is an error.
/// * A charge that is no longer waited for neither blocks nor changes the answers to others.
///
/// A type of one's own is a store by handing on the handle of one that is: of `RecordStore`, with the feature `records`, which
/// makes a store of any database that can change some records together. Whether it will do is proved by the suite
/// `store_suite`, with the feature `test-util`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no store of rate limits",
    note = "give a reference to a `SqliteStore`, a `MemoryStore`, or another one of this crate; `SqliteStore::open(…)` is a future, and `.await?` makes the store"
)]
pub trait Store: fmt::Debug {
    /// What limiters hold of it. All handles of a store, and of its clones, are of the same counters.
    fn handle(&self) -> StoreHandle;
}

/// A store as limiters hold it: what [`Store::handle`] hands out, and nothing to look into.
#[derive(Clone, Debug)]
pub struct StoreHandle(pub(crate) Handle);
