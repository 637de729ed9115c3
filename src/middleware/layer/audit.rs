//! What is recorded.

use super::RateLimitLayer;
use crate::store::SqliteStore;

impl RateLimitLayer {
    /// Records each allowed request in this store: policy, key, method, route, status, units and time, a row of its table
    /// `api_calls`, and in the sums that [`SqliteStore::usage`] reads. Off by default.
    ///
    /// It need not be the store that [counts](Self::store), and is one in SQLite always. No request waits for it: what is to be
    /// recorded waits for 100 ms at most, and is written between charges. When the disk does not keep up, and 65,536 requests
    /// (or 16 MiB of them) wait, others are dropped, counted in [`SqliteStore::audit_dropped`] and told by one event.
    /// [`SqliteStore::close`] writes what waits; an end without it loses that.
    ///
    /// | | |
    /// | --- | --- |
    /// | policy, key | of several policies those of the first that was charged: a request is one row |
    /// | method | its first 16 letters |
    /// | route | the pattern that axum has matched, where the layer stands inside the router; otherwise empty. Never the path |
    /// | status | of the answer, as [`refund_if`](Self::refund_if) is told it; none when the client has hung up before, or the inner service has failed with an error |
    /// | units | that were charged, without what was given back, and with what the handler has charged more by then |
    /// | time | of the decision |
    ///
    /// What is refused, exempt or skipped is not recorded, and neither is what a [shadow](Self::shadow) lets pass. Of nested layers
    /// each records for itself, if it is set to; a counter that one outside has charged already is that one's.
    ///
    /// A key may be personal data, and is kept for 30 days here: [`KeySource::hashed`](crate::key::KeySource::hashed) hides it,
    /// [`SqliteStore::audit_retention`] shortens the time.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{RateLimitLayer, SqliteStore};
    ///
    /// let store = SqliteStore::in_memory();
    /// let layer = RateLimitLayer::fixed(100, 60).name("api").store(&store).audit(&store);
    /// ```
    ///
    /// A store that keeps no records is none for it:
    ///
    /// ```compile_fail,E0308
    /// use tollgate::{MemoryStore, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::fixed(100, 60).audit(&MemoryStore::new());
    /// ```
    #[must_use]
    pub fn audit(self, store: &SqliteStore) -> Self {
        self.with(|settings| settings.call_log = Some(store.call_log()))
    }
}
