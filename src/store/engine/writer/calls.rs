//! Allowed requests are recorded: between charges, a page at a time.

use std::time::{Duration, Instant};

use super::{Writer, waiters_of, watched};
use crate::clock;
use crate::store::StoreError;
use crate::store::engine::backend::Backend;
use crate::store::engine::inbox::Held;

/// While the database can't be written to, it is tried again after so long: twice as long each time, up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A store that closes tries so often, each time as long as it waits for another process's write: a second in all.
const TRIES_AT_CLOSE: u32 = 5;

/// When recording goes on after a failure.
pub(super) struct Recording {
    try_at: Instant,
    pause: Duration,
    /// Whether the last thing that was done between charges was to record a page.
    had_its_turn: bool,
}

impl Recording {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            try_at: now,
            pause: SHORTEST_PAUSE,
            had_its_turn: false,
        }
    }
}

impl<B: Backend> Writer<B> {
    /// When a page of allowed requests is to be written, if there is one.
    pub(super) fn record_due_at(&self) -> Option<Instant> {
        let due_at = self.inbox.calls.due_at()?;
        Some(due_at.max(self.recording.try_at))
    }

    /// Whether a page is to be written now. Every other time something else may be done between charges, so that it is not kept
    /// waiting for ever by more requests than can be recorded.
    pub(super) fn is_turn_to_record(&mut self) -> bool {
        let had_its_turn = std::mem::take(&mut self.recording.had_its_turn);
        let is_due = self.record_due_at();
        let is_due = is_due.is_some_and(|due_at| due_at <= clock::monotonic());
        self.recording.had_its_turn = is_due && !had_its_turn;
        self.recording.had_its_turn
    }

    /// Writes a page of allowed requests, a long one when it is quiet. One that fails stays, to be tried again.
    pub(super) async fn record(&mut self, is_quiet: bool) -> Result<(), StoreError> {
        let Some(page) = self.inbox.calls.first(is_quiet) else {
            return Ok(());
        };
        let held = Held {
            jobs: waiters_of(&mut self.jobs),
            ..Held::default()
        };
        let recorded = watched(&self.inbox, held, self.backend.record(&page)).await;
        self.forget_lost();
        match &recorded {
            Ok(()) => {
                self.inbox.calls.wrote_first();
                self.sweeper.wrote(clock::monotonic());
                self.recording.pause = SHORTEST_PAUSE;
            }
            Err(error) => {
                tracing::debug!(%error, "allowed requests could not be recorded, and will be tried again");
                self.inbox.calls.failed_first(error);
                self.recording.try_at = clock::monotonic() + self.recording.pause;
                self.recording.pause = LONGEST_PAUSE.min(2 * self.recording.pause);
            }
        }
        recorded
    }

    /// Writes all pages that are left, when the store closes.
    pub(super) async fn record_all(&mut self) {
        self.inbox.calls.close();
        let mut tries_left = TRIES_AT_CLOSE;
        let mut error = StoreError::Closed;
        while tries_left > 0 && self.inbox.calls.due_at().is_some() {
            if let Err(failure) = self.record(true).await {
                error = failure;
                tries_left -= 1;
            }
        }
        #[cfg_attr(
            not(feature = "metrics"),
            expect(unused_variables, reason = "only told in numbers")
        )]
        let given_up = self.inbox.calls.give_up(&error);
        #[cfg(feature = "metrics")]
        self.inbox.health.meters().unrecorded(given_up);
    }
}
