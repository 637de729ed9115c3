//! What the store records, for how long, and what can be read of it.

use std::sync::Arc;
use std::time::Duration;

use super::SqliteStore;
use super::usage_query::UsageQuery;
use crate::limit::Days;
use crate::store::CallLog;

impl SqliteStore {
    /// Sets how long an allowed request that a layer has [recorded](crate::RateLimitLayer::audit) is kept in `api_calls`: 30 days
    /// by default. It holds for all clones, and not for other processes on the file: the shortest of them decides. A store that
    /// neither records nor has been set this deletes nothing.
    ///
    /// The sums of each day are kept apart: see [`usage_retention`](Self::usage_retention).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::SqliteStore;
    ///
    /// let store = SqliteStore::in_memory().audit_retention(Duration::from_secs(7 * 86_400));
    /// ```
    #[must_use]
    pub fn audit_retention(self, kept_for: Duration) -> Self {
        self.retention.set_of_calls(kept_for);
        self
    }

    /// Sets how long the sums of a day are kept after it, which [`usage`](Self::usage) reads: 400 days by default. It holds for
    /// all clones, and not for other processes on the file: the shortest of them decides.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::SqliteStore;
    ///
    /// let store = SqliteStore::in_memory().usage_retention(Duration::from_secs(90 * 86_400));
    /// ```
    #[must_use]
    pub fn usage_retention(self, kept_for: Duration) -> Self {
        self.retention.set_of_usage(kept_for);
        self
    }

    /// How many allowed requests were to be recorded by this process and were not, since the store was opened: there was no room,
    /// or it was closed.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::SqliteStore;
    ///
    /// assert_eq!(SqliteStore::in_memory().audit_dropped(), 0);
    /// ```
    #[must_use]
    pub fn audit_dropped(&self) -> u64 {
        self.engine.unrecorded()
    }

    /// Asks what was used on these days by the requests that layers have [recorded](crate::RateLimitLayer::audit).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Days, Key, SqliteStore};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let store = SqliteStore::in_memory();
    /// let december = Days::parse("2026-12-01", "2026-12-31")?;
    /// let usage = store.usage(december).key(&Key::new("user", 42));
    /// assert_eq!(usage.total().await?.requests(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn usage(&self, days: impl Into<Days>) -> UsageQuery {
        UsageQuery::new(self.clone(), days.into())
    }

    /// Where layers record.
    pub(crate) fn call_log(&self) -> CallLog {
        self.retention.records();
        CallLog(Arc::clone(&self.engine))
    }
}
