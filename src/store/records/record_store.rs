//! The store that is made of records.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Records;
use super::backend::RecordBackend;
#[cfg(any(test, feature = "test-util"))]
use crate::clock::ManualClock;
use crate::clock::{Clock, ServerClock};
use crate::store::engine::Engine;
use crate::store::{Handle, Store, StoreError, StoreHandle, StoreHealth};

/// Counters in a database of one's own: what [`Records`] can do is all that it must do.
///
/// Clones are the same store, and all layers on it share its one queue. Charges that wait together are decided together: one read and one
/// change for all of them. What is read is decided by the same functions as in every store of this crate, and written if nobody else
/// has changed it meanwhile; otherwise it is read and decided once more. So never more than the limit passes, whatever the number of
/// processes, as long as the database keeps what it was told. [Leases](crate::Policy::leases), refusals from memory, blocks, limits that
/// are set, resets and refunds work as everywhere.
///
/// A type of one's own is a [`Store`] by handing on the handle of this one.
///
/// | | default |
/// | --- | --- |
/// | [`deadline`](Self::deadline) of a charge | 250 ms |
/// | queue | 8,192 charges |
/// | [`max_keys_in_memory`](Self::max_keys_in_memory), which are answered without the database | 65,536 |
///
/// # Examples
///
/// ```
/// # use tollgate::{ReadRecords, RecordChange, StoreError};
/// use tollgate::{RecordStore, Records, Store, StoreHandle};
///
/// /// Counters in a database that this crate knows nothing of.
/// #[derive(Clone, Debug)]
/// pub struct OurStore(RecordStore);
///
/// impl OurStore {
///     pub fn new(records: impl Records) -> Self {
///         Self(RecordStore::new("our database", records))
///     }
/// }
///
/// impl Store for OurStore {
///     fn handle(&self) -> StoreHandle {
///         self.0.handle()
///     }
/// }
/// ```
#[derive(Clone)]
pub struct RecordStore(Arc<Engine>);

impl RecordStore {
    /// A store in these records, opened when it is first used. Log lines, metrics and the health call it by the name.
    #[must_use]
    pub fn new(name: &str, records: impl Records) -> Self {
        let clock = ServerClock::new();
        let backend = RecordBackend {
            records,
            clock: clock.clone(),
            id: None,
            is_lost: false,
            is_open: false,
        };
        let engine = Engine::new(name.to_owned(), backend, Clock::Server(clock));
        Self(Arc::new(engine))
    }

    /// Opens it now, so that a database that can't be reached is found when the service starts.
    ///
    /// # Errors
    ///
    /// What [`Records::open`] or a first read says.
    pub async fn open(&self) -> Result<(), StoreError> {
        self.0.open().await
    }

    /// Sets how long a charge or a look may wait for its answer, from 1 ms to 10 s; 250 ms by default. What is outside
    /// counts as the nearer end. It holds for all clones.
    ///
    /// After it the limiter's failure mode decides, while the call goes on. The time is real time, also when a test has paused tokio's.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.0.set_deadline(deadline);
        self
    }

    /// Sets how many keys are answered from memory at most, from 16; 65,536 by default. It holds for all clones. No limit hangs on
    /// this number.
    #[must_use]
    pub fn max_keys_in_memory(self, max_keys: usize) -> Self {
        self.0.set_max_keys(max_keys);
        self
    }

    /// Sets the clock that every decision on this store is made by. Only the first call counts.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn clock(self, clock: &ManualClock) -> Self {
        self.0.set_clock(Clock::Manual(clock.clone()));
        self
    }

    /// How the store is: whether it answers, since when and why it does not, and how much waits. The database is not asked.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        self.0.report()
    }

    /// Writes what waits and closes the records, also while layers still hold the store.
    ///
    /// Later charges get [`StoreError::Closed`], for which each limiter's failure mode decides: by default they are counted in
    /// this process's memory. Closing a closed store does nothing.
    ///
    /// # Errors
    ///
    /// What [`Records::close`] says, or why units that were charged ahead can't be given back.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.0.close().await
    }
}

impl fmt::Debug for RecordStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordStore")
            .field("name", &self.0.name())
            .finish_non_exhaustive()
    }
}

impl Store for RecordStore {
    fn handle(&self) -> StoreHandle {
        StoreHandle(Handle::Queued(Arc::clone(&self.0)))
    }
}
