//! What the engine asks of a store that does I/O.

use crate::clock::Clock;
use crate::limit::Timestamp;
use crate::store::{Charge, Outcome, Reset, StoreError};

/// The part of a store that reads and writes: the engine calls it from one thread, one call at a time, and never drops
/// a call half-way, but a call may panic: the next one clears up what it left. The contract is that of
/// [`Store`](crate::store::Store); every call is about a batch or a page.
pub(in crate::store) trait Backend: Send + 'static {
    /// Opens what is not open yet. The other calls do the same first.
    async fn open(&mut self) -> Result<(), StoreError>;

    /// Applies the charges in order, and answers each in its place. An error is about them all: none may have been
    /// answered "admitted" then, though some may be stored.
    ///
    /// The clock is read once for all of them, as late as can be: when they are decided, and not when they were asked.
    async fn charge(
        &mut self,
        charges: &[Charge],
        clock: &Clock,
    ) -> Result<Vec<Result<Outcome, StoreError>>, StoreError>;

    /// Reads the counters without changing anything, each in its place.
    async fn peek(&mut self, looks: &[Charge], now: Timestamp) -> Result<Vec<Outcome>, StoreError>;

    /// Resets a page of counters, and counts the used units that were in force.
    async fn reset(&mut self, reset: &Reset, after: Option<Cursor>) -> Result<Page, StoreError>;

    /// Deletes the expired rows of a page, and counts them.
    async fn sweep(&mut self, now: Timestamp, after: Option<Cursor>) -> Result<Page, StoreError>;

    /// Does what must be done now and then between batches, and holds them up for as long.
    async fn maintain(&mut self) -> Result<(), StoreError>;

    /// Closes what is open, so that all is stored.
    async fn close(&mut self) -> Result<(), StoreError>;
}

/// Where a page ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct Cursor {
    /// Which of the store's tables it is in.
    pub(in crate::store) table: usize,
    pub(in crate::store) policy: String,
    pub(in crate::store) key: String,
    pub(in crate::store) at: i64,
}

/// What one bounded step of a longer job did.
#[derive(Debug, Default)]
pub(in crate::store) struct Page {
    /// What the job counts: rows deleted, or units given back.
    pub(in crate::store) count: u64,
    /// Rows that the page left in place.
    pub(in crate::store) kept: u64,
    /// Where the next page starts, when there is one.
    pub(in crate::store) next: Option<Cursor>,
}
