//! Whether charges are put to the store, or answered at once since it has stopped to answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A lock that is held for a moment fails a batch, and the one that had come behind it. A third one has met something that
/// lasts: with a locked file half a second has passed by then.
const FAILURES: u32 = 3;
/// From the last failure to the probe: no longer than a charge may wait by default, and twice as long after each probe that fails.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
/// A store that is back is found so soon.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A circuit breaker around the store. Closed, it lets all charges through, and counts calls that fail or are late. After
/// some in a row it opens, and charges are answered at once; then one at a time goes through as the probe, until one is
/// answered.
///
/// It reads no clock: every instant is told to it.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    state: Mutex<State>,
    /// The same as the state says, for those who would wait for its lock at every charge.
    is_open: AtomicBool,
}

#[derive(Debug)]
enum State {
    Closed {
        /// In a row.
        failures: u32,
        /// When the call that is under way was last counted as late.
        late_at: Option<Instant>,
    },
    Open {
        /// When the next charge is let through. The probe moves it too, so that one which is never heard of again, since its
        /// caller has gone away, is followed by another.
        probe_at: Instant,
        pause: Duration,
        is_probing: bool,
    },
}

impl Default for State {
    fn default() -> Self {
        Self::Closed {
            failures: 0,
            late_at: None,
        }
    }
}

impl Breaker {
    /// Whether the store may be asked now. Of those that come while it is open, the first after the pause is the probe.
    pub(super) fn admits(&self, now: impl FnOnce() -> Instant) -> bool {
        if !self.is_open() {
            return true;
        }
        let now = now();
        match &mut *self.state() {
            State::Closed { .. } => true,
            State::Open { probe_at, .. } if now < *probe_at => false,
            State::Open {
                probe_at,
                pause,
                is_probing,
            } => {
                *probe_at = now + *pause;
                *is_probing = true;
                true
            }
        }
    }

    /// Whether a look may be put to the store now. It is no probe: a file that is locked against writers can be read.
    pub(super) fn admits_looks(&self, now: impl FnOnce() -> Instant) -> bool {
        if !self.is_open() {
            return true;
        }
        match &*self.state() {
            State::Closed { .. } => true,
            State::Open { probe_at, .. } => *probe_at <= now(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Notes that a call begins, which can be late once more.
    pub(super) fn began(&self) {
        if let State::Closed { late_at, .. } = &mut *self.state() {
            *late_at = None;
        }
    }

    /// Notes that charges were answered. Says whether it was open until now.
    pub(super) fn answered(&self) -> bool {
        let mut state = self.state();
        *state = State::default();
        self.is_open.swap(false, Ordering::Relaxed)
    }

    /// Notes that a call with charges failed.
    pub(super) fn failed(&self, now: Instant) {
        let mut state = self.state();
        if let State::Closed {
            late_at: Some(_), ..
        } = *state
        {
            // It was late before, which has been counted.
            return;
        }
        self.count(&mut state, now);
    }

    /// Notes that a deadline has passed during a call: it counts once, and once more for each further deadline that the call
    /// lasts, so that a store which never answers opens it too.
    pub(super) fn late(&self, now: Instant, deadline: Duration) {
        let mut state = self.state();
        if let State::Closed { late_at, .. } = &mut *state {
            let is_counted = late_at.is_some_and(|late_at| now < late_at + deadline);
            if is_counted {
                return;
            }
            *late_at = Some(now);
        }
        self.count(&mut state, now);
    }

    fn count(&self, state: &mut State, now: Instant) {
        let pause = match state {
            State::Closed { failures, .. } => {
                *failures += 1;
                if *failures < FAILURES {
                    return;
                }
                SHORTEST_PAUSE
            }
            // What had been on its way when it opened.
            State::Open {
                is_probing: false, ..
            } => return,
            State::Open { pause, .. } => LONGEST_PAUSE.min(2 * *pause),
        };
        *state = State::Open {
            probe_at: now + pause,
            pause,
            is_probing: false,
        };
        self.is_open.store(true, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change of it is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic;

    const DEADLINE: Duration = Duration::from_millis(250);

    struct Bench {
        breaker: Breaker,
        now: Instant,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                breaker: Breaker::default(),
                now: monotonic(),
            }
        }

        /// Opened by failures.
        fn open() -> Self {
            let bench = Self::new();
            (0..FAILURES).for_each(|_| bench.fail());
            assert!(!bench.admits());
            bench
        }

        fn fail(&self) {
            self.breaker.began();
            self.breaker.failed(self.now);
        }

        fn late(&self) {
            self.breaker.late(self.now, DEADLINE);
        }

        fn after(&mut self, millis: u64) -> &Self {
            self.now += Duration::from_millis(millis);
            self
        }

        fn admits(&self) -> bool {
            self.breaker.admits(|| self.now)
        }
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_not_before() {
        let bench = Bench::new();
        for _ in 0..9 {
            (1..FAILURES).for_each(|_| bench.fail());
            assert!(bench.admits());
            assert!(!bench.breaker.answered());
        }
        (0..FAILURES).for_each(|_| bench.fail());
        assert!(!bench.admits());
    }

    #[test]
    fn one_charge_is_let_through_after_the_pause_and_closes_it_when_it_is_answered() {
        let mut bench = Bench::open();
        assert!(!bench.after(249).admits());
        assert!(bench.after(1).admits());
        assert!(!bench.admits(), "the probe is out");
        assert!(bench.breaker.answered());
        assert!(bench.admits() && bench.admits());
    }

    #[test]
    fn the_pause_doubles_with_each_probe_that_fails_up_to_a_second() {
        let mut bench = Bench::open();
        for pause in [250, 500, 1_000, 1_000, 1_000] {
            assert!(!bench.after(pause - 1).admits());
            assert!(bench.after(1).admits());
            bench.fail();
        }
        bench.after(1_000).admits();
        bench.breaker.answered();
        (0..FAILURES).for_each(|_| bench.fail());
        assert!(bench.after(250).admits(), "it begins anew with a short one");
    }

    #[test]
    fn a_probe_that_is_never_heard_of_again_is_followed_by_another() {
        let mut bench = Bench::open();
        for _ in 0..5 {
            assert!(bench.after(250).admits());
            assert!(!bench.admits());
        }
    }

    #[test]
    fn what_was_on_its_way_when_it_opened_makes_no_pause_longer() {
        let mut bench = Bench::open();
        bench.after(200).fail();
        bench.late();
        assert!(bench.after(50).admits());
    }

    #[test]
    fn what_was_on_its_way_when_it_opened_closes_it_when_it_is_answered() {
        let bench = Bench::open();
        assert!(bench.breaker.answered());
        assert!(bench.admits());
    }

    #[test]
    fn a_call_that_is_late_for_many_and_then_fails_is_one_failure() {
        let mut bench = Bench::new();
        for _ in 1..FAILURES {
            bench.breaker.began();
            for _ in 0..9 {
                bench.after(1).late();
            }
            bench.breaker.failed(bench.now);
        }
        assert!(bench.admits());
        bench.fail();
        assert!(!bench.admits());
    }

    #[test]
    fn a_call_that_never_ends_opens_it_after_some_deadlines() {
        let mut bench = Bench::new();
        bench.breaker.began();
        for _ in 1..FAILURES {
            bench.after(250).late();
            assert!(bench.admits());
        }
        bench.after(250).late();
        assert!(!bench.admits());
    }

    #[test]
    fn looks_wait_for_the_pause_too_and_are_no_probe() {
        let mut bench = Bench::open();
        assert!(!bench.breaker.admits_looks(|| bench.now));
        bench.after(250);
        assert!(bench.breaker.admits_looks(|| bench.now));
        assert!(bench.admits(), "the probe is still to come");
        assert!(!bench.breaker.admits_looks(|| bench.now));
    }
}
