//! What is refused without asking: it is counted some time later, and what others free is looked for.

use std::time::{Duration, Instant};

use super::{Writer, waiters_of, watched};
use crate::clock;
use crate::store::engine::backend::{Attempts, Backend};
use crate::store::engine::inbox::Held;
use crate::store::engine::queue::Waiter;
use crate::store::engine::refusals::Moment;
use crate::store::{Outcome, StoreError};

/// What others have freed is seen after so long, and the time of a batch.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// Others keep what they tell for as long as there is not much of it. Who has not looked for so long knows nothing any more.
const LONGEST_WITHOUT_A_LOOK: Duration = Duration::from_secs(30);
/// How often what was refused is counted in the database.
const BETWEEN_COUNTS: Duration = Duration::from_secs(1);
/// While the database can't be written to, so many wait; beyond it less is told than was refused.
const MOST_ATTEMPTS: usize = 1 << 16;
/// So much at once, that charges wait for no longer than for a page.
const COUNTED_AT_ONCE: usize = 1_000;

/// How far the writer is with it.
pub(super) struct Refused {
    /// How far the refusals were when the batch was taken that is under way.
    pub(super) moment: Option<Moment>,
    /// What the backend has told last of what became free; `None` when it must be asked first.
    seen: Option<i64>,
    seen_at: Instant,
    look_at: Instant,
    count_at: Instant,
    /// What is to be counted.
    attempts: Vec<Attempts>,
}

impl Refused {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            moment: None,
            seen: None,
            seen_at: now,
            look_at: now,
            count_at: now,
            attempts: Vec::new(),
        }
    }

    /// What was told is not of the database that is there now.
    pub(super) fn lose(&mut self) {
        self.seen = None;
        self.attempts.clear();
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
                let is_late = now.duration_since(self.refused.seen_at) > LONGEST_WITHOUT_A_LOOK;
                let is_first = self.refused.seen.is_none();
                self.refused.seen = Some(changes.last);
                self.refused.seen_at = now;
                match changes.freed {
                    Some(freed) if !is_late && !is_first => {
                        self.refusals.free_all(&freed);
                        // Of what was reset nothing goes back any more.
                        let rests = self.leases.take_of(&freed);
                        self.give_back(&rests, [&mut [], &mut []]).await;
                    }
                    _ => self.refusals.forget_all(),
                }
            }
            Err(error) => {
                tracing::debug!(%error, "what others have freed of rate limits could not be read, and will be later");
            }
        }
        self.forget_lost();
    }

    /// When to count what was refused, if anything was.
    pub(super) fn count_refused_due_at(&self) -> Option<Instant> {
        let has_any = !self.refused.attempts.is_empty() || self.refusals.has_attempts();
        has_any.then_some(self.refused.count_at)
    }

    pub(super) fn is_turn_to_count_refused(&self) -> bool {
        let due_at = self.count_refused_due_at();
        due_at.is_some_and(|due_at| due_at <= clock::monotonic())
    }

    /// Counts a page of what was refused without asking. What can't be counted is counted later, or not: it only tells.
    pub(super) async fn count_refused(&mut self) -> Result<(), StoreError> {
        if self.refused.attempts.is_empty() {
            self.refused.attempts = self.refusals.take_attempts(self.now());
        }
        let left = self.refused.attempts.len().saturating_sub(COUNTED_AT_ONCE);
        let mut page = self.refused.attempts.split_off(left);
        let held = Held {
            jobs: waiters_of(&mut self.jobs),
            ..Held::default()
        };
        let counted = watched(&self.inbox, held, self.backend.count_refused(&page)).await;
        let is_certain = matches!(
            counted,
            Err(StoreError::Database {
                is_transient: true,
                ..
            })
        );
        if is_certain && left < MOST_ATTEMPTS {
            self.refused.attempts.append(&mut page);
        }
        let has_more = counted.is_ok() && left > 0;
        let pause = if has_more {
            Duration::ZERO
        } else {
            BETWEEN_COUNTS
        };
        self.refused.count_at = clock::monotonic() + pause;
        counted
    }

    /// Counts all that was refused, when the store closes.
    pub(super) async fn count_all_refused(&mut self) {
        loop {
            let counted = self.count_refused().await;
            if counted.is_err() || self.refused.attempts.is_empty() {
                break;
            }
        }
        self.refusals.clear();
    }
}
