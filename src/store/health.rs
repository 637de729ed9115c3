//! Whether the store answers: one log event when that changes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::Level;

#[cfg(feature = "metrics")]
use super::meters::Meters;
use super::store_health::Failure;
use super::{StoreError, TARGET};
use crate::clock;

/// A store that fails now and then between successes must not write a log line for each.
const QUIET_AFTER: Duration = Duration::from_secs(1);

/// Whether the store answers.
pub(crate) struct Health {
    store: String,
    #[cfg(feature = "metrics")]
    meters: Meters,
    decided_without: DecidedWithout,
    state: Mutex<State>,
    /// As the state has it: a store in memory must not lock for each answer.
    fails: AtomicBool,
    has_told_closed: AtomicBool,
}

/// How many decisions were made without the store since that began to fail. Clones count together.
#[derive(Clone, Default)]
pub(crate) struct DecidedWithout(Arc<AtomicU64>);

impl DecidedWithout {
    pub(crate) fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

#[derive(Debug)]
enum State {
    Answers,
    Fails {
        since: Instant,
        last_failure: Instant,
        /// The last error that does not only follow from others.
        cause: StoreError,
        unanswered: u64,
    },
}

impl Health {
    pub(super) fn new(store: String, decided_without: DecidedWithout) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            meters: Meters::new(&store),
            store,
            decided_without,
            state: Mutex::new(State::Answers),
            fails: AtomicBool::new(false),
            has_told_closed: AtomicBool::new(false),
        }
    }

    /// Decisions that are made without the store are counted here.
    pub(crate) fn decided_without(&self) -> &DecidedWithout {
        &self.decided_without
    }

    #[cfg(feature = "metrics")]
    pub(super) fn meters(&self) -> &Meters {
        &self.meters
    }

    /// What is known of it while it fails.
    pub(super) fn failure(&self) -> Option<Failure> {
        if !self.fails.load(Ordering::Relaxed) {
            return None;
        }
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Answers => None,
            State::Fails {
                since,
                cause,
                unanswered,
                ..
            } => Some(Failure {
                lasts: clock::monotonic().duration_since(*since),
                cause: cause.clone(),
                unanswered: *unanswered,
                decided_without: self.decided_without.count(),
            }),
        }
    }

    /// Notes what a store has answered that answers at once.
    pub(super) fn heard<T>(&self, answer: &Result<T, StoreError>) {
        match answer {
            Ok(_) => self.answered(false),
            Err(error) => self.failed(error, 1),
        }
    }

    /// Notes that so many charges or looks were not answered.
    pub(super) fn failed(&self, error: &StoreError, count: u64) {
        #[cfg(feature = "metrics")]
        self.meters.failed(error, count);
        if matches!(error, StoreError::Closed) {
            // Nothing fails: it is over, and late requests of a server that stops are usual.
            if !self.has_told_closed.swap(true, Ordering::Relaxed) {
                tracing::event!(
                    name: "tollgate.store_closed",
                    target: TARGET,
                    Level::WARN,
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
                cause,
                unanswered,
                ..
            } => {
                *last_failure = now;
                if !matches!(error, StoreError::BreakerOpen) {
                    *cause = error.clone();
                }
                *unanswered += count;
            }
            // The store has just answered another charge.
            State::Answers if matches!(error, StoreError::BreakerOpen) => {}
            State::Answers => {
                // What limiters decide without it follows from this.
                self.decided_without.take();
                self.fails.store(true, Ordering::Relaxed);
                *state = State::Fails {
                    since: now,
                    last_failure: now,
                    cause: error.clone(),
                    unanswered: count,
                };
                drop(state);
                #[cfg(feature = "metrics")]
                self.meters.degraded(true);
                tracing::event!(
                    name: "tollgate.store_failed",
                    target: TARGET,
                    Level::ERROR,
                    store = self.store,
                    cause = std::error::Error::source(error).map(tracing::field::display),
                    "{error}; until it answers again, each limiter's failure mode decides"
                );
            }
        }
    }

    /// Notes that a batch was answered. Whether that is told at once is up to how sure it is that the failures are over.
    pub(super) fn answered(&self, is_sure: bool) {
        if !self.fails.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Fails {
            last_failure,
            unanswered,
            ..
        } = *state
            && (is_sure || clock::monotonic().duration_since(last_failure) >= QUIET_AFTER)
        {
            *state = State::Answers;
            self.fails.store(false, Ordering::Relaxed);
            drop(state);
            #[cfg(feature = "metrics")]
            self.meters.degraded(false);
            tracing::event!(
                name: "tollgate.store_answers",
                target: TARGET,
                Level::INFO,
                store = self.store,
                unanswered,
                decided_without = self.decided_without.take(),
                "the rate limit store answers again"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tracing::{Event, Subscriber};
    use tracing_subscriber::layer::{Context, SubscriberExt};
    use tracing_subscriber::util::SubscriberInitExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged.
    fn log_of(events: impl FnOnce(&Health)) -> Vec<String> {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .with_writer(move || writer.clone())
            .finish();
        let health = Health::new("limits.db".to_owned(), DecidedWithout::default());
        crate::store::suite::let_others_listen();
        tracing::subscriber::with_default(subscriber, || events(&health));
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        text.lines()
            .map(|line| line.trim_start().to_owned())
            .collect()
    }

    #[test]
    fn an_outage_is_told_when_it_begins_and_with_its_numbers_when_it_is_over() {
        let lines = log_of(|health| {
            health.decided_without().note();
            health.answered(false);
            health.failed(&StoreError::DeadlineExceeded, 2);
            for _ in 0..3 {
                health.failed(&StoreError::BreakerOpen, 1);
                health.decided_without().note();
            }
            health.answered(true);
            health.answered(true);
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("ERROR the rate limit store did not answer in time"));
        let over = "INFO the rate limit store answers again \
            store=\"limits.db\" unanswered=5 decided_without=3";
        assert_eq!(lines[1], over);
    }

    #[test]
    fn while_it_fails_its_cause_is_the_last_error_that_follows_from_no_other() {
        let health = Health::new("limits.db".to_owned(), DecidedWithout::default());
        assert!(health.failure().is_none());
        health.failed(&StoreError::DeadlineExceeded, 2);
        health.failed(&StoreError::Panicked, 1);
        health.failed(&StoreError::BreakerOpen, 1);
        health.decided_without().note();
        let failure = health.failure().unwrap();
        assert!(matches!(failure.cause, StoreError::Panicked));
        assert_eq!((failure.unanswered, failure.decided_without), (4, 1));
        health.answered(true);
        assert!(health.failure().is_none());
    }

    #[test]
    fn a_store_that_fails_between_answers_is_not_told_each_time() {
        let lines = log_of(|health| {
            for _ in 0..9 {
                health.failed(&StoreError::Panicked, 1);
                health.answered(false);
            }
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
    }

    #[test]
    fn a_charge_that_met_the_breaker_just_before_it_closed_begins_no_outage() {
        let lines = log_of(|health| health.failed(&StoreError::BreakerOpen, 1));
        assert_eq!(lines, Vec::<String>::new());
    }

    #[derive(Clone, Default)]
    struct Names(Arc<Mutex<Vec<(&'static str, Level)>>>);

    impl<S: Subscriber> tracing_subscriber::Layer<S> for Names {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let metadata = event.metadata();
            assert_eq!(metadata.target(), TARGET);
            let told = (metadata.name(), *metadata.level());
            self.0.lock().unwrap().push(told);
        }
    }

    #[test]
    fn a_failing_store_and_a_closed_one_are_told_once_each_under_stable_names() {
        let names = Names::default();
        crate::store::suite::let_others_listen();
        let subscriber = tracing_subscriber::registry().with(names.clone());
        let guard = subscriber.set_default();
        let health = Health::new("memory".to_owned(), DecidedWithout::default());
        for _ in 0..3 {
            health.failed(&StoreError::DeadlineExceeded, 1);
            health.failed(&StoreError::Closed, 1);
        }
        health.answered(true);
        drop(guard);
        let expected = [
            ("tollgate.store_failed", Level::ERROR),
            ("tollgate.store_closed", Level::WARN),
            ("tollgate.store_answers", Level::INFO),
        ];
        assert_eq!(*names.0.lock().unwrap(), expected);
    }

    #[test]
    fn a_closed_store_is_told_once() {
        let lines = log_of(|health| {
            (0..3).for_each(|_| health.failed(&StoreError::Closed, 1));
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("WARN"), "{lines:?}");
    }
}
