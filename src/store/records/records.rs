//! What a database must do to keep counters.

use std::future::{Future, ready};

use crate::limit::Timestamp;
use crate::store::StoreError;

/// A database of one's own, as far as counters need it: records under keys, in order, that change together or not at all.
///
/// [`RecordStore`](super::RecordStore) makes a store of it. What is decided, charged ahead and given back, and how, is this
/// crate's; records hold what is left of it, and are text that only this crate reads. So any database will do that
///
/// * reads records by their keys. What it reads may be of different moments, but no record of an earlier one than the call.
/// * changes some records together, when each of them is still what it was, or still not there. Nobody sees half of a change, nobody
///   else's comes in between, as with serializable transactions, and what was reported as made is not lost, as far as the database's
///   own promises go.
/// * lists records in the order of the bytes of their keys.
///
/// Keys and values are UTF-8 without NUL. A key has no more than 1,300 bytes, unless one from the application has many parts. Values
/// have below 100 bytes, except those that tell of keys, and those of exact sliding windows, which hold some 16 bytes for each millisecond
/// of the window in which something was admitted: at most one for each unit of the limit. For large limits take a sliding counter.
///
/// Every process that shares the database must share the records. One call is made at a time, from a thread of the store's own, in a
/// tokio runtime of one thread: a client that lives by tokio is best made in [`open`](Self::open). A call is never dropped half-way, so a
/// deadline is the database client's business: while a call lasts, others wait, and one that never ends ends the store.
///
/// # Examples
///
/// A test double. Whether a database will do is proved by two suites, with the feature `test-util`:
/// [`records_suite!`](crate::records_suite) is about what is asked of it here, by several connections at once, and
/// [`store_suite!`](crate::store_suite) about the store that is made of it.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::ops::Bound;
/// use std::sync::{Arc, Mutex};
///
/// use tollgate::{ReadRecords, RecordChange, RecordStore, Records, StoreError};
///
/// #[derive(Clone, Default)]
/// struct InMemory(Arc<Mutex<BTreeMap<String, String>>>);
///
/// impl Records for InMemory {
///     async fn read(&mut self, keys: &[String]) -> Result<ReadRecords, StoreError> {
///         let records = self.0.lock().unwrap();
///         Ok(ReadRecords::new(keys.iter().map(|key| records.get(key).cloned()).collect()))
///     }
///
///     async fn change(&mut self, changes: &[RecordChange]) -> Vec<Result<bool, StoreError>> {
///         let mut records = self.0.lock().unwrap();
///         let mut make = |change: &RecordChange| {
///             let mut writes = change.writes().iter();
///             let is_as_read = writes.all(|write| records.get(write.key()).map(|value| &**value) == write.before());
///             for write in change.writes().iter().filter(|_| is_as_read) {
///                 match write.after() {
///                     Some(value) => records.insert(write.key().to_owned(), value.to_owned()),
///                     None => records.remove(write.key()),
///                 };
///             }
///             Ok(is_as_read)
///         };
///         changes.iter().map(|change| make(change)).collect()
///     }
///
///     async fn list(&mut self, after: &str, before: &str, most: usize) -> Result<Vec<(String, String)>, StoreError> {
///         let records = self.0.lock().unwrap();
///         let range = records.range::<str, _>((Bound::Excluded(after), Bound::Excluded(before)));
///         Ok(range.take(most).map(|(key, value)| (key.clone(), value.clone())).collect())
///     }
/// }
///
/// let store = RecordStore::new("my database", InMemory::default());
/// let layer = tollgate::RateLimitLayer::fixed(100, 60).name("api").store(&store);
/// ```
pub trait Records: Send + 'static {
    /// Opens what is not open yet. It is called first, and again by [`RecordStore::open`](super::RecordStore::open). By default it
    /// does nothing.
    ///
    /// # Errors
    ///
    /// When the database can't be reached.
    fn open(&mut self) -> impl Future<Output = Result<(), StoreError>> {
        ready(Ok(()))
    }

    /// Reads records, each in its key's place: `None` where there is none. No key comes twice. There may be tens of thousands of
    /// them, more than a statement of SQL has room for.
    ///
    /// # Errors
    ///
    /// [`StoreError::Database`] when they can't be read. All that waits for them gets it.
    fn read(&mut self, keys: &[String]) -> impl Future<Output = Result<ReadRecords, StoreError>>;

    /// Makes changes, and says of each in its place whether it was made: `false`, when one of its records is not what it was.
    ///
    /// Each change is made whole or not at all, and has 100 records at most, unless a single decision is about more policies. They have
    /// no order, and none writes to a record of another: what one of them comes to is nothing to the others.
    ///
    /// # Errors
    ///
    /// [`StoreError::Database`] for a change that failed, or of which it is not known whether it was made: a connection was lost, say.
    /// The two are the same to the store, whatever `is_transient` says. It does not make the change again: a charge is answered with the
    /// error and may have been counted, and units that were to go back stay used. A change that is known not to have been made may be
    /// answered `false` instead, so that it is decided once more, at once. `is_transient` is for who reads the error: the metrics tell it,
    /// and the application may ask it. Of [`read`](Self::read) and [`list`](Self::list) it says that the same call may succeed later, and
    /// what waits to go back is kept for then.
    fn change(
        &mut self,
        changes: &[RecordChange],
    ) -> impl Future<Output = Vec<Result<bool, StoreError>>>;

    /// The first records, at most so many, with keys that come after one text and before another, in the order of their bytes.
    ///
    /// # Errors
    ///
    /// [`StoreError::Database`] when they can't be read.
    fn list(
        &mut self,
        after: &str,
        before: &str,
        most: usize,
    ) -> impl Future<Output = Result<Vec<(String, String)>, StoreError>>;

    /// Closes what is open. By default it does nothing.
    ///
    /// # Errors
    ///
    /// When something that was reported as made may be lost.
    fn close(&mut self) -> impl Future<Output = Result<(), StoreError>> {
        ready(Ok(()))
    }
}

/// What was read for [`Records::read`].
#[derive(Clone, Debug)]
pub struct ReadRecords {
    pub(in crate::store) values: Vec<Option<String>>,
    pub(in crate::store) at: Option<Timestamp>,
}

impl ReadRecords {
    /// The values, each in its key's place.
    #[must_use]
    pub fn new(values: Vec<Option<String>>) -> Self {
        Self { values, at: None }
    }

    /// Has the database's clock decide, which showed this instant while the records were read. Without it the clock of this machine
    /// does, and processes whose clocks differ by a second or more gain or lose as much of a window.
    #[must_use]
    pub fn at(self, at: Timestamp) -> Self {
        Self {
            at: Some(at),
            ..self
        }
    }
}

/// Records that change together, or not at all.
#[derive(Clone, Debug)]
pub struct RecordChange {
    pub(in crate::store) writes: Vec<RecordWrite>,
}

impl RecordChange {
    /// What is written: at least one record, and none twice.
    #[must_use]
    pub fn writes(&self) -> &[RecordWrite] {
        &self.writes
    }
}

/// One record that changes, or that must not have changed.
#[derive(Clone, Debug)]
pub struct RecordWrite {
    pub(in crate::store) key: String,
    pub(in crate::store) before: Option<String>,
    pub(in crate::store) after: Option<String>,
    pub(in crate::store) expires_at: Option<Timestamp>,
}

impl RecordWrite {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What the record must still be, for the change to be made: `None` when there must be none.
    #[must_use]
    pub fn before(&self) -> Option<&str> {
        self.before.as_deref()
    }

    /// What it becomes: `None` when it is deleted. When it is the same as [`before`](Self::before), the record must only still be so for
    /// the change to be made. Nothing is to be written then, though writing it does no harm.
    #[must_use]
    pub fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// From when on nobody needs it; `None` when it does not end, or is deleted. The store sweeps such records by itself. A database
    /// that can is free to delete them, later than this by as much as its clock may be ahead of the one that decides.
    #[must_use]
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.expires_at
    }
}
