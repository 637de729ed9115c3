//! What is refused without asking: it is counted some time later, and what others free is looked for.

use std::time::{Duration, Instant};

use super::{Writer, waiters_of, watched};
use crate::clock;
use crate::limit::Timestamp;
use crate::limit::algorithm::State;
use crate::store::engine::backend::{Attempts, Backend};
use crate::store::engine::inbox::Held;
use crate::store::engine::queue::Waiter;
use crate::store::engine::refusals::{Moment, Uncounted};
use crate::store::{Outcome, Part, StoreError};

/// What others have freed is seen after so long, and the time of a batch.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// How often what was refused is counted in the database.
const BETWEEN_COUNTS: Duration = Duration::from_secs(1);
/// So much at once, that charges wait for no longer than for a page.
const COUNTED_AT_ONCE: usize = 1_000;

/// How far the writer is with it.
pub(super) struct Refused {
    /// How far the refusals were when the batch was taken that is under way.
    pub(super) moment: Option<Moment>,
    /// What the backend has told last of what became free; `None` when it must be asked first.
    seen: Option<i64>,
    look_at: Instant,
    count_at: Instant,
    /// What is to be counted.
    attempts: Uncounted,
}

impl Refused {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            moment: None,
            seen: None,
            look_at: now,
            count_at: now,
            attempts: Uncounted::default(),
        }
    }

    /// What was told is not of the database that is there now.
    pub(super) fn lose(&mut self) {
        self.seen = None;
        self.attempts = Uncounted::default();
    }

    /// Units of a part that wait to be counted.
    pub(super) fn uncounted(&self, part: &Part, at: Timestamp, state: &State) -> u64 {
        self.attempts.of(part, at, state)
    }

    pub(super) fn has_attempts(&self) -> bool {
        !self.attempts.is_empty()
    }

    /// Takes in what was refused, which is no more than is kept in memory.
    fn put(&mut self, attempts: Vec<Attempts>) {
        self.attempts.put(attempts, usize::MAX);
    }

    /// Takes what is counted in one call.
    fn take_page(&mut self) -> Vec<Attempts> {
        self.attempts.take(COUNTED_AT_ONCE)
    }

    /// Whether what becomes free from now on will be seen.
    pub(super) fn sees_changes(&self) -> bool {
        self.seen.is_some()
    }
}

impl<B: Backend> Writer<B> {
    /// When to look for what others have freed, if anything is answered from memory.
    pub(super) fn changes_due_at(&self) -> Option<Instant> {
        let answers_from_memory = !self.refusals.is_empty() || self.leases.is_outstanding();
        (answers_from_memory && self.refused.sees_changes()).then_some(self.refused.look_at)
    }

    /// Looks for what others have freed, when it is time to.
    pub(super) async fn see_changes(&mut self) {
        let now = clock::monotonic();
        if self.changes_due_at().is_some_and(|due_at| due_at <= now) {
            self.look_for_changes([&mut [], &mut []]).await;
        }
    }

    /// Makes sure that what is freed from now on will be seen, before anything is known. Others wait meanwhile.
    pub(super) async fn begin_to_see_changes(&mut self, waiters: [&mut [Waiter<Outcome>]; 2]) {
        if !self.refused.sees_changes() {
            self.look_for_changes(waiters).await;
        }
    }

    async fn look_for_changes(&mut self, waiters: [&mut [Waiter<Outcome>]; 2]) {
        let now = clock::monotonic();
        self.refused.look_at = now + BETWEEN_LOOKS;
        let held = Held {
            waiters,
            jobs: waiters_of(&mut self.jobs),
            ..Held::default()
        };
        let call = self.backend.changes(self.refused.seen);
        match watched(&self.inbox, held, call).await {
            Ok(changes) => {
                self.refused.seen = Some(changes.last);
                // Of what was reset nothing goes back any more.
                let rests = match changes.freed {
                    Some(freed) => {
                        self.refusals.free_all(&freed);
                        self.leases.take_of(&freed)
                    }
                    // Anything may have become free, and been reset.
                    None => {
                        self.refusals.forget_all();
                        self.leases.take_all()
                    }
                };
                self.return_by_pages(rests);
            }
            Err(error) => {
                tracing::debug!(%error, "what others have freed of rate limits could not be read, and will be later");
            }
        }
        self.forget_lost();
    }

    /// When to count what was refused, if anything was.
    pub(super) fn count_refused_due_at(&self) -> Option<Instant> {
        let has_any = self.refused.has_attempts() || self.refusals.has_attempts();
        has_any.then_some(self.refused.count_at)
    }

    pub(super) fn is_turn_to_count_refused(&self) -> bool {
        let due_at = self.count_refused_due_at();
        due_at.is_some_and(|due_at| due_at <= clock::monotonic())
    }

    /// Counts a page of what was refused without asking. What can't be counted is counted later, or not: it only tells.
    pub(super) async fn count_refused(&mut self) -> Result<(), StoreError> {
        let pause = clock::monotonic() + BETWEEN_COUNTS;
        if !self.refused.has_attempts() {
            let attempts = self.refusals.take_attempts(self.now());
            self.refused.put(attempts);
        }
        let page = self.refused.take_page();
        self.refused.count_at = pause;
        if page.is_empty() {
            return Ok(());
        }
        let held = Held {
            jobs: waiters_of(&mut self.jobs),
            ..Held::default()
        };
        let counted = watched(&self.inbox, held, self.backend.count_refused(&page)).await;
        match &counted {
            Ok(()) if self.refused.has_attempts() => self.refused.count_at = clock::monotonic(),
            Err(StoreError::Database {
                is_transient: true, ..
            }) => self.refused.put(page),
            _ => {}
        }
        counted
    }

    /// Counts all that was refused, when the store closes.
    pub(super) async fn count_all_refused(&mut self) {
        loop {
            let attempts = self.refusals.take_attempts(self.now());
            self.refused.put(attempts);
            if !self.refused.has_attempts() || self.count_refused().await.is_err() {
                break;
            }
        }
        self.refusals.clear();
    }
}
