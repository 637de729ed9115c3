//! Whether the store answers: one log event when that changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::clock;
use crate::store::StoreError;

/// A store that fails now and then between successes must not write a log line for each.
const QUIET_AFTER: Duration = Duration::from_secs(1);

/// Whether the store answers.
#[derive(Debug)]
pub(super) struct Health {
    store: String,
    state: Mutex<State>,
    has_told_closed: AtomicBool,
}

#[derive(Debug)]
enum State {
    Answers,
    Fails {
        last_failure: Instant,
        unanswered: u64,
    },
}

impl Health {
    pub(super) fn new(store: String) -> Self {
        Self {
            store,
            state: Mutex::new(State::Answers),
            has_told_closed: AtomicBool::new(false),
        }
    }

    /// Notes that so many charges or looks were not answered.
    pub(super) fn failed(&self, error: &StoreError, count: u64) {
        if matches!(error, StoreError::Closed) {
            // Nothing fails: it is over, and late requests of a server that stops are usual.
            if !self.has_told_closed.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    store = self.store,
                    "{error}; from now on each limiter's failure mode decides"
                );
            }
            return;
        }
        let now = clock::monotonic();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *state {
            State::Fails {
                last_failure,
                unanswered,
            } => {
                *last_failure = now;
                *unanswered += count;
            }
            State::Answers => {
                *state = State::Fails {
                    last_failure: now,
                    unanswered: count,
                };
                drop(state);
                tracing::error!(
                    store = self.store,
                    cause = std::error::Error::source(error).map(tracing::field::display),
                    "{error}; until it answers again, each limiter's failure mode decides"
                );
            }
        }
    }

    /// Notes that a batch was answered.
    pub(super) fn answered(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Fails {
            last_failure,
            unanswered,
        } = *state
            && clock::monotonic().duration_since(last_failure) >= QUIET_AFTER
        {
            *state = State::Answers;
            drop(state);
            tracing::info!(
                store = self.store,
                unanswered,
                "the rate limit store answers again"
            );
        }
    }
}
