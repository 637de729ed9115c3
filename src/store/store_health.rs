//! How a store is, for people and for what watches it.

use std::time::Duration;

use super::StoreError;

/// How a store is at a moment: whether it answers, and if not since when and why, and how far behind it is.
///
/// It is told from what the store was asked last, and asks it nothing: a store that nobody has asked answers, as far as is known.
/// All of it is of this process.
///
/// # Examples
///
/// ```
/// use tollgate::SqliteStore;
///
/// let store = SqliteStore::in_memory();
/// let health = store.health();
/// assert!(health.is_answering());
/// assert_eq!((health.name(), health.waiting()), ("memory", 0));
/// ```
#[derive(Clone, Debug)]
pub struct StoreHealth {
    pub(super) name: String,
    pub(super) is_closed: bool,
    pub(super) failure: Option<Failure>,
    pub(super) is_breaker_open: bool,
    pub(super) waiting: usize,
    pub(super) audit_dropped: u64,
    pub(super) file_bytes: Option<u64>,
    pub(super) wal_bytes: Option<u64>,
}

/// What is known of a store that fails.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) lasts: Duration,
    pub(super) cause: StoreError,
    pub(super) unanswered: u64,
    pub(super) decided_without: u64,
}

impl StoreHealth {
    /// One that answers, and of which no more is known than that.
    pub(super) fn answering(name: &str, failure: Option<Failure>) -> Self {
        Self {
            name: name.to_owned(),
            is_closed: false,
            failure,
            is_breaker_open: false,
            waiting: 0,
            audit_dropped: 0,
            file_bytes: None,
            wal_bytes: None,
        }
    }

    /// What log lines call the store: the file's name without its folder, or `memory`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has answered what it was asked last, and is not closed.
    #[must_use]
    pub fn is_answering(&self) -> bool {
        self.failure.is_none() && !self.is_closed
    }

    /// Whether it was closed, and answers nothing any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// How long it has been failing, if it is.
    #[must_use]
    pub fn failing_for(&self) -> Option<Duration> {
        self.failure.as_ref().map(|failure| failure.lasts)
    }

    /// Why it fails: the last error that was not [`StoreError::BreakerOpen`], which only follows from others.
    #[must_use]
    pub fn cause(&self) -> Option<&StoreError> {
        self.failure.as_ref().map(|failure| &failure.cause)
    }

    /// How many charges and looks it has not answered since it began to fail.
    #[must_use]
    pub fn unanswered(&self) -> u64 {
        self.failure
            .as_ref()
            .map_or(0, |failure| failure.unanswered)
    }

    /// How many decisions were made without it since it began to fail, by [`FailureMode`](crate::FailureMode)`::Local` or `Open`.
    #[must_use]
    pub fn decided_without(&self) -> u64 {
        let failure = self.failure.as_ref();
        failure.map_or(0, |failure| failure.decided_without)
    }

    /// Whether it has failed several times in a row, and is not asked until it is tried again, within a second.
    #[must_use]
    pub fn is_breaker_open(&self) -> bool {
        self.is_breaker_open
    }

    /// How many charges and looks wait in its queue, of 8,192 at most. What its thread has taken out is under way, and not counted.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many allowed requests were to be recorded and were not, as [`SqliteStore::audit_dropped`](crate::SqliteStore) counts
    /// them.
    #[must_use]
    pub fn audit_dropped(&self) -> u64 {
        self.audit_dropped
    }

    /// The length of the database's file in bytes, as the store last saw it: when it was opened, and once a second while it is in
    /// use. `None` in memory, before it was opened, and where it is not looked at (elsewhere than on Unix).
    #[must_use]
    pub fn file_bytes(&self) -> Option<u64> {
        self.file_bytes
    }

    /// The length of its WAL in bytes, seen when the [file](Self::file_bytes) was.
    #[must_use]
    pub fn wal_bytes(&self) -> Option<u64> {
        self.wal_bytes
    }
}
