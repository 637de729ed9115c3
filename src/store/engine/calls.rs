//! Allowed requests that wait to be recorded: bounded, apart from all that is waited for, and dropped when there is no room.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::Level;

use crate::clock;
use crate::store::{Call, StoreError, TARGET};

/// So many go into one transaction at most, which takes some 3 ms.
pub(in crate::store) const PAGE_CALLS: u32 = 256;
/// So many do at least, where there are as many: some 0.5 ms, which is what a charge may wait for them.
const SHORT_PAGE_CALLS: u32 = 32;
/// When so many wait for each that goes into a transaction, more go into it: none is to be dropped.
const BACKLOG: usize = 16;
/// What fewer than a page wait for: alone, a transaction for each would cost as much as a charge does.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// Some seconds of a busy server.
pub(super) const MOST_CALLS: usize = 1 << 16;
/// What so many usual ones take; long keys and routes reach it sooner.
pub(super) const MOST_BYTES: usize = 16 << 20;
const MILLIS_PER_DAY: i64 = 86_400_000;

/// Allowed requests that are written in one transaction: all of them or none.
#[derive(Debug, Default)]
pub(in crate::store) struct Calls {
    /// The elements of an array: `[at, id, policy, key, method, route, status, units, day]`. An id is never given twice, so that a
    /// page whose commit was in doubt can be written once more.
    rows: Vec<u8>,
    count: u32,
    since: Option<Instant>,
}

impl Calls {
    /// A page of these, as those that wait become one.
    #[cfg(all(test, feature = "sqlite"))]
    pub(in crate::store) fn of(calls: &[Call<'_>]) -> Arc<Self> {
        let queue = CallQueue::new("test".to_owned());
        let mut waiting = queue.lock();
        for call in calls {
            waiting.push(call);
        }
        Arc::new(waiting.join(calls.len()).unwrap_or_default())
    }

    /// The page as JSON.
    #[cfg(any(test, feature = "sqlite"))]
    pub(in crate::store) fn json(&self) -> String {
        format!("[{}]", String::from_utf8_lossy(&self.rows))
    }
}

/// What waits to be recorded.
pub(super) struct CallQueue {
    store: String,
    waiting: Mutex<Waiting>,
    dropped: AtomicU64,
}

struct Waiting {
    /// The page that is written, or was not written and will be tried again. It stays as it is.
    first: Option<Arc<Calls>>,
    /// Short pages that take nothing more, the oldest first.
    sealed: VecDeque<Calls>,
    filling: Calls,
    count: usize,
    bytes: usize,
    next_id: i64,
    /// How many were ever taken in, and how many of those were written, or given up.
    accepted: u64,
    settled: u64,
    /// Why there is no room, when the last page was not written.
    cause: Option<StoreError>,
    /// How many were dropped since that was told to have begun; `None` while there is room.
    dropped: Option<u64>,
    is_closed: bool,
}

/// What became of a request that was to be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The writer has nothing to do yet that it does not know of.
    Quietly,
    /// The writer must be told: there was nothing, or there is a page.
    AndDue,
    Dropped,
}

impl CallQueue {
    pub(super) fn new(store: String) -> Self {
        Self {
            store,
            waiting: Mutex::new(Waiting {
                first: None,
                sealed: VecDeque::new(),
                filling: Calls::default(),
                count: 0,
                bytes: 0,
                // Those of other processes must be others: random, and with room for all that follow.
                next_id: (RandomState::new().hash_one(0) >> 2).cast_signed(),
                accepted: 0,
                settled: 0,
                cause: None,
                dropped: None,
                is_closed: false,
            }),
            dropped: AtomicU64::new(0),
        }
    }

    /// Takes a request in, unless there is no room.
    pub(super) fn put(&self, call: &Call<'_>) -> Taken {
        let mut waiting = self.lock();
        if waiting.is_closed || waiting.count >= MOST_CALLS || waiting.bytes >= MOST_BYTES {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            let is_first = waiting.dropped.is_none();
            waiting.dropped = Some(waiting.dropped.unwrap_or(0).saturating_add(1));
            let cause = if waiting.is_closed {
                Some(StoreError::Closed)
            } else {
                waiting.cause.clone()
            };
            drop(waiting);
            if is_first {
                self.tell_full(cause.as_ref());
            }
            return Taken::Dropped;
        }
        let was_empty = waiting.count == 0;
        waiting.push(call);
        if waiting.filling.count >= SHORT_PAGE_CALLS {
            waiting.seal();
        }
        if was_empty || waiting.count == PAGE_CALLS as usize {
            Taken::AndDue
        } else {
            Taken::Quietly
        }
    }

    /// When a page is to be written, if there is anything.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let waiting = self.lock();
        let oldest = waiting.first.as_deref().or(waiting.sealed.front());
        let since = oldest.unwrap_or(&waiting.filling).since?;
        Some(if waiting.count >= PAGE_CALLS as usize {
            since
        } else {
            since + LONGEST_WAIT
        })
    }

    /// The oldest page, a short one when it is to be written between charges. It stays until it is told what became of it, and
    /// takes nothing more.
    pub(super) fn first(&self, is_quiet: bool) -> Option<Arc<Calls>> {
        let mut waiting = self.lock();
        if waiting.first.is_none() {
            let most = if is_quiet {
                PAGE_CALLS as usize
            } else {
                (waiting.count / BACKLOG).clamp(SHORT_PAGE_CALLS as usize, PAGE_CALLS as usize)
            };
            waiting.first = waiting.join(most).map(Arc::new);
        }
        waiting.first.clone()
    }

    /// Notes that the oldest page was written.
    pub(super) fn wrote_first(&self) {
        let mut waiting = self.lock();
        waiting.cause = None;
        waiting.forget_first();
        // Under a steady overload there is room now and then: that is no end of it.
        let dropped = if waiting.count == 0 && !waiting.is_closed {
            waiting.dropped.take()
        } else {
            None
        };
        drop(waiting);
        if let Some(dropped) = dropped {
            tracing::event!(
                name: "tollgate.audit_resumed",
                target: TARGET,
                Level::INFO,
                store = self.store,
                dropped,
                "all allowed requests are recorded again"
            );
        }
    }

    /// Notes that the oldest page was not written. It stays, to be tried again.
    pub(super) fn failed_first(&self, error: &StoreError) {
        self.lock().cause = Some(error.clone());
    }

    /// Takes nothing in any more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
    }

    /// Gives up what waits, and says how many that are.
    pub(super) fn give_up(&self, error: &StoreError) -> u64 {
        let mut waiting = self.lock();
        let count = waiting.count as u64;
        waiting.settled += count;
        waiting.first = None;
        waiting.sealed.clear();
        waiting.filling = Calls::default();
        (waiting.count, waiting.bytes) = (0, 0);
        let dropped = waiting.dropped.take().unwrap_or(0) + count;
        drop(waiting);
        self.dropped.fetch_add(count, Ordering::Relaxed);
        if dropped > 0 {
            tracing::event!(
                name: "tollgate.audit_lost",
                target: TARGET,
                Level::WARN,
                store = self.store,
                dropped,
                "the rate limit store is closed, and some allowed requests are not recorded: {error}"
            );
        }
        count
    }

    /// How many were ever taken in.
    pub(super) fn accepted(&self) -> u64 {
        self.lock().accepted
    }

    /// How many of those were written, or given up.
    pub(super) fn settled(&self) -> u64 {
        self.lock().settled
    }

    /// How many were dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn tell_full(&self, cause: Option<&StoreError>) {
        let reason = cause.map(ToString::to_string);
        let reason = reason.unwrap_or_else(|| "they come faster than they are written".to_owned());
        let cause = cause.and_then(std::error::Error::source);
        tracing::event!(
            name: "tollgate.audit_drops",
            target: TARGET,
            Level::WARN,
            store = self.store,
            cause = cause.map(tracing::field::display),
            "allowed requests are dropped and not recorded: {reason}"
        );
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing that is done under the lock leaves a count that is not that of the rows.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn push(&mut self, call: &Call<'_>) {
        let page = &mut self.filling;
        let before = page.rows.len();
        if page.count > 0 {
            page.rows.push(b',');
        }
        let at = call.at.unix_millis();
        let row = (
            at,
            self.next_id,
            call.policy,
            call.key,
            call.method,
            call.route,
            call.status,
            call.units,
            at.div_euclid(MILLIS_PER_DAY),
        );
        // Texts and numbers can always be written, and a vector takes them.
        let _ = serde_json::to_writer(&mut page.rows, &row);
        self.bytes += page.rows.len() - before;
        page.count += 1;
        page.since.get_or_insert_with(clock::monotonic);
        self.next_id = self.next_id.wrapping_add(1);
        self.count += 1;
        self.accepted += 1;
    }

    /// Ends the page that is being filled, when there is something in it.
    fn seal(&mut self) {
        if self.filling.count > 0 {
            let room = Vec::with_capacity(self.filling.rows.len());
            let next = Calls {
                rows: room,
                ..Calls::default()
            };
            let page = std::mem::replace(&mut self.filling, next);
            self.sealed.push_back(page);
        }
    }

    /// Takes the oldest short pages, so many requests of them at most, as one page.
    fn join(&mut self, most: usize) -> Option<Calls> {
        let mut page = self.next_short()?;
        while let Some(next) = self.sealed.front().or(Some(&self.filling))
            && next.count > 0
            && (page.count + next.count) as usize <= most
        {
            let next = self.next_short()?;
            page.rows.push(b',');
            page.rows.extend_from_slice(&next.rows);
            page.count += next.count;
            self.bytes += 1;
        }
        Some(page)
    }

    fn next_short(&mut self) -> Option<Calls> {
        if self.sealed.is_empty() {
            self.seal();
        }
        self.sealed.pop_front()
    }

    fn forget_first(&mut self) {
        if let Some(page) = self.first.take() {
            self.count -= page.count as usize;
            self.bytes -= page.rows.len();
            self.settled += u64::from(page.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Timestamp;

    fn call(key: &str) -> Call<'_> {
        Call {
            policy: "api",
            key,
            method: "GET",
            route: "",
            status: Some(200),
            units: 1,
            at: Timestamp::from_unix_millis(-1),
        }
    }

    fn queue() -> CallQueue {
        CallQueue::new("test".to_owned())
    }

    #[test]
    fn the_writer_is_told_of_the_first_request_and_of_a_page() {
        let queue = queue();
        let told: Vec<_> = (0..600).map(|_| queue.put(&call("user:a"))).collect();
        let places = told.iter().enumerate();
        let due = places.filter(|(_, taken)| **taken == Taken::AndDue);
        let due: Vec<_> = due.map(|(place, _)| place).collect();
        assert_eq!(due, [0, 255]);
    }

    #[test]
    fn a_page_waits_for_others_unless_it_is_full() {
        let queue = queue();
        assert_eq!(queue.due_at(), None);
        let now = clock::monotonic();
        queue.put(&call("user:a"));
        assert!(queue.due_at() >= Some(now + LONGEST_WAIT));
        for _ in 0..PAGE_CALLS {
            queue.put(&call("user:a"));
        }
        assert!(queue.due_at() <= Some(clock::monotonic()));
    }

    /// How many requests a page has, when so many wait.
    fn length_of_page(waiting: usize, is_quiet: bool) -> u32 {
        let queue = queue();
        for _ in 0..waiting {
            queue.put(&call("user:a"));
        }
        queue.first(is_quiet).unwrap().count
    }

    #[test]
    fn a_page_between_charges_is_short_unless_there_are_many_others() {
        assert_eq!(length_of_page(5, false), 5);
        assert_eq!(length_of_page(255, false), 32);
        assert_eq!(length_of_page(255, true), 255);
        assert_eq!(length_of_page(2_048, false), 128);
        assert_eq!(length_of_page(60_000, false), 256);
        assert_eq!(length_of_page(60_000, true), 256);
    }

    #[test]
    fn short_pages_become_a_long_one_without_a_loss() {
        let queue = queue();
        for number in 0..100 {
            queue.put(&call(&number.to_string()));
        }
        let page: serde_json::Value =
            serde_json::from_str(&queue.first(true).unwrap().json()).unwrap();
        let keys = page.as_array().unwrap().iter();
        let keys: Vec<_> = keys
            .map(|row| row[3].as_str().unwrap().parse::<usize>().unwrap())
            .collect();
        assert_eq!(keys, (0..100).collect::<Vec<usize>>());
        queue.wrote_first();
        let waiting = queue.lock();
        assert_eq!((waiting.count, waiting.bytes, waiting.settled), (0, 0, 100));
    }

    #[test]
    fn a_page_stays_until_it_is_written_and_takes_nothing_more() {
        let queue = queue();
        queue.put(&call("user:a"));
        let first = queue.first(true).unwrap();
        queue.put(&call("user:b"));
        queue.failed_first(&StoreError::DeadlineExceeded);
        assert!(Arc::ptr_eq(&first, &queue.first(true).unwrap()));
        queue.wrote_first();
        assert_eq!((queue.accepted(), queue.settled()), (2, 1));
        let rows: serde_json::Value =
            serde_json::from_str(&queue.first(true).unwrap().json()).unwrap();
        assert_eq!(
            (&rows[0][3], rows[0][8].as_i64()),
            (&"user:b".into(), Some(-1))
        );
    }

    #[test]
    fn what_has_no_room_is_dropped_and_counted() {
        let queue = queue();
        for _ in 0..MOST_CALLS {
            assert_ne!(queue.put(&call("user:a")), Taken::Dropped);
        }
        assert_eq!(queue.put(&call("user:a")), Taken::Dropped);
        assert_eq!((queue.dropped(), queue.accepted()), (1, MOST_CALLS as u64));
        queue.first(true);
        queue.wrote_first();
        assert_ne!(queue.put(&call("user:a")), Taken::Dropped);
    }

    #[test]
    fn long_rows_have_no_room_for_as_many() {
        let queue = queue();
        let route = "r".repeat(1 << 16);
        let long = Call {
            route: &route,
            ..call("user:a")
        };
        let taken = (0..MOST_CALLS).take_while(|_| queue.put(&long) != Taken::Dropped);
        let count = taken.count();
        assert!(
            (MOST_BYTES >> 17..=MOST_BYTES >> 16).contains(&count),
            "{count}"
        );
    }

    #[test]
    fn a_closed_queue_takes_nothing_and_counts_what_it_gives_up() {
        let queue = queue();
        queue.put(&call("user:a"));
        queue.close();
        assert_eq!(queue.put(&call("user:a")), Taken::Dropped);
        queue.give_up(&StoreError::Closed);
        assert_eq!((queue.dropped(), queue.settled()), (2, 1));
        assert!(queue.first(true).is_none());
    }
}
