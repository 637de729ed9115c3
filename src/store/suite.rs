//! The suite that every store must pass.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};

use super::{Charge, Counter, Outcome, Reply, Reset, Store, StoreError, StoreHandle};
use crate::clock::ManualClock;
use crate::limit::fixed_window::Usage;
use crate::limit::{Key, Timestamp};

const MINUTE: Duration = Duration::from_secs(60);
const NOON: i64 = 1_800_000_000_000;

/// A store under test, on a clock that stands still.
pub(super) struct Subject {
    pub(super) store: StoreHandle,
    pub(super) clock: ManualClock,
    runtime: Runtime,
    /// What must outlive the store.
    _keep: Box<dyn Send>,
}

impl Subject {
    pub(super) fn new<S: Store, K: Send + 'static>(
        open: impl AsyncFnOnce(ManualClock) -> (S, K),
    ) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let clock = ManualClock::new(Timestamp::from_unix_millis(NOON));
        let (store, keep) = runtime.block_on(open(clock.clone()));
        Self {
            store: store.handle().0,
            clock,
            runtime,
            _keep: Box::new(keep),
        }
    }

    fn charge_of(&self, counter: &Arc<Counter>, key: &Key, limit: u32, cost: u32) -> Charge {
        Charge {
            counter: Arc::clone(counter),
            key: key.clone(),
            limit,
            cost,
            at: self.clock.now(),
        }
    }

    fn charge(&self, counter: &Arc<Counter>, key: &Key, limit: u32, cost: u32) -> Outcome {
        let reply = self.store.charge(self.charge_of(counter, key, limit, cost));
        self.runtime.block_on(reply).unwrap()
    }

    fn peek(&self, counter: &Arc<Counter>, key: &Key) -> Usage {
        let reply = self.store.peek(self.charge_of(counter, key, 0, 1));
        self.runtime.block_on(reply).unwrap().usage
    }

    fn reset(&self, counter: &Arc<Counter>, key: &Key, with_keys_under: bool) -> u64 {
        let reset = Reset {
            counter: Arc::clone(counter),
            key: key.clone(),
            with_keys_under,
            at: self.clock.now(),
        };
        self.runtime.block_on(self.store.reset(reset)).unwrap()
    }

    fn sweep(&self) -> u64 {
        self.runtime.block_on(self.store.sweep()).unwrap()
    }

    fn answers(&self, replies: Vec<Reply>) -> Vec<Result<Outcome, StoreError>> {
        self.runtime.block_on(async {
            let mut answers = Vec::new();
            for reply in replies {
                answers.push(reply.await);
            }
            answers
        })
    }
}

fn counter(name: &str, window: Duration) -> Arc<Counter> {
    let name = name.to_owned();
    Arc::new(Counter { name, window })
}

fn alice() -> Key {
    Key::new("user", "alice")
}

pub(super) fn exactly_the_limit_passes_of_many_tasks(subject: &Subject) {
    let counter = counter("p", MINUTE);
    let admitted = subject.runtime.block_on(async {
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let store = subject.store.clone();
                let charge = subject.charge_of(&counter, &alice(), 10, 1);
                tokio::spawn(async move { store.charge(charge).await })
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += usize::from(task.await.unwrap().unwrap().is_admitted);
        }
        admitted
    });
    assert_eq!(admitted, 10);
    let usage = subject.peek(&counter, &alice());
    assert_eq!((usage.used, usage.denied), (10, 190));
}

pub(super) fn a_refused_cost_leaves_what_is_left(subject: &Subject) {
    let counter = counter("p", MINUTE);
    for used in 1..=8 {
        assert_eq!(subject.charge(&counter, &alice(), 10, 1).usage.used, used);
    }
    assert!(!subject.charge(&counter, &alice(), 10, 5).is_admitted);
    assert!(subject.charge(&counter, &alice(), 10, 1).is_admitted);
    assert!(subject.charge(&counter, &alice(), 10, 1).is_admitted);
    let last = subject.charge(&counter, &alice(), 10, 1);
    assert!(!last.is_admitted);
    assert_eq!((last.usage.used, last.usage.denied), (10, 6));
}

pub(super) fn looking_uses_nothing_and_creates_nothing(subject: &Subject) {
    let counter = counter("p", MINUTE);
    for _ in 0..3 {
        assert_eq!(subject.peek(&counter, &alice()), Usage::default());
    }
    subject.clock.advance(10 * MINUTE);
    assert_eq!(subject.sweep(), 0, "there is no row to sweep");
}

pub(super) fn counters_and_keys_do_not_touch_each_other(subject: &Subject) {
    let counters = [
        counter("p", MINUTE),
        counter("q", MINUTE),
        counter("P", MINUTE),
    ];
    let keys = [
        Key::new("user", "a"),
        Key::new("user", "A"),
        Key::new("ip", "a"),
        Key::new("user", "a ").and("b", ""),
        Key::new("user", ""),
        Key::new("user", "'; DROP TABLE rate_limit_windows; --"),
        Key::new("user", "\"\\ \0 \n % | é 🦀 ' [1] {\"a\":1}"),
        Key::new("user", [0xA1_u8, 0xB1].as_slice()),
        Key::new("user", [0xA1_u8, 0xB2].as_slice()),
        Key::new("user", "k".repeat(65_536)),
    ];
    let replies = counters
        .iter()
        .flat_map(|counter| keys.iter().map(move |key| (counter, key)))
        .map(|(counter, key)| subject.store.charge(subject.charge_of(counter, key, 1, 1)))
        .collect();
    for answer in subject.answers(replies) {
        let outcome = answer.unwrap();
        assert!(outcome.is_admitted);
        assert_eq!(outcome.usage.used, 1);
    }
}

pub(super) fn a_window_ends_at_its_boundary(subject: &Subject) {
    let counter = counter("p", MINUTE);
    assert!(subject.charge(&counter, &alice(), 1, 1).is_admitted);
    subject.clock.advance(Duration::from_millis(59_999));
    assert!(!subject.charge(&counter, &alice(), 1, 1).is_admitted);
    subject.clock.advance(Duration::from_millis(1));
    let outcome = subject.charge(&counter, &alice(), 1, 1);
    assert!(outcome.is_admitted);
    assert_eq!(outcome.usage.denied, 0);
}

pub(super) fn a_changed_limit_keeps_what_was_used(subject: &Subject) {
    let counter = counter("p", MINUTE);
    assert!(subject.charge(&counter, &alice(), 100, 80).is_admitted);
    assert!(subject.charge(&counter, &alice(), 200, 120).is_admitted);
    assert!(!subject.charge(&counter, &alice(), 50, 1).is_admitted);
    assert_eq!(subject.peek(&counter, &alice()).used, 200);
}

pub(super) fn extremes_are_refused_or_saturate(subject: &Subject) {
    let year = counter("year", Duration::from_hours(10 * 366 * 24));
    assert!(
        subject
            .charge(&year, &alice(), u32::MAX, u32::MAX)
            .is_admitted
    );
    assert!(!subject.charge(&year, &alice(), u32::MAX, 1).is_admitted);
    for _ in 0..3 {
        assert!(
            !subject
                .charge(&year, &alice(), u32::MAX, u32::MAX)
                .is_admitted
        );
    }
    assert!(
        !subject
            .charge(&year, &Key::new("user", "bob"), 0, 1)
            .is_admitted
    );
    for millis in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX] {
        subject.clock.set(Timestamp::from_unix_millis(millis));
        assert!(
            subject
                .charge(&year, &Key::new("at", millis), 1, 1)
                .is_admitted
        );
        assert!(
            !subject
                .charge(&year, &Key::new("at", millis), 1, 1)
                .is_admitted
        );
    }
}

pub(super) fn a_clock_that_steps_locks_nobody_out(subject: &Subject) {
    let counter = counter("p", MINUTE);
    let fill = || {
        let mut admitted = 0;
        while subject.charge(&counter, &alice(), 5, 1).is_admitted {
            admitted += 1;
        }
        admitted
    };
    assert_eq!(fill(), 5);
    let hour = Duration::from_hours(1);
    subject.clock.advance(hour);
    assert_eq!(fill(), 5, "forward: one quota");
    subject.clock.set(Timestamp::from_unix_millis(NOON));
    assert_eq!(fill(), 0, "back: the old window is still full");
    subject.clock.advance(MINUTE);
    assert_eq!(fill(), 5, "and over after a window");
}

pub(super) fn a_reset_is_seen_by_the_next_charge(subject: &Subject) {
    let (one, other) = (counter("p", MINUTE), counter("q", MINUTE));
    for counter in [&one, &other] {
        subject.charge(counter, &alice(), 3, 3);
        subject.charge(counter, &alice(), 3, 1);
    }
    assert_eq!(subject.reset(&one, &alice(), false), 3);
    let usage = subject.peek(&one, &alice());
    assert_eq!((usage.used, usage.denied, usage.epoch), (0, 0, 1));
    assert!(subject.charge(&one, &alice(), 3, 3).is_admitted);
    assert!(!subject.charge(&other, &alice(), 3, 1).is_admitted);
    assert_eq!(subject.reset(&one, &Key::new("user", "nobody"), false), 0);
    subject.clock.advance(MINUTE);
    assert_eq!(
        subject.reset(&one, &alice(), false),
        0,
        "an old window is not in force"
    );
}

pub(super) fn everything_under_a_key_is_reset_and_nothing_beside_it(subject: &Subject) {
    let counter = counter("p", MINUTE);
    let user = Key::new("user", 42);
    let under = [
        user.clone(),
        user.clone().and("route", "/a"),
        user.clone().and("a", ""),
    ];
    let beside = [
        Key::new("user", 421),
        Key::new("user", 4),
        Key::new("user", "42}"),
        Key::new("user", "42|a:b"),
        Key::new("user", "42 "),
        Key::new("tenant", 1).and("user", 42),
    ];
    for key in under.iter().chain(&beside) {
        subject.charge(&counter, key, 9, 2);
    }
    assert_eq!(subject.reset(&counter, &user, true), 6);
    for key in &under {
        assert_eq!(subject.peek(&counter, key).used, 0, "{}", key.as_str());
    }
    for key in &beside {
        assert_eq!(subject.peek(&counter, key).used, 2, "{}", key.as_str());
    }
}

pub(super) fn long_jobs_cover_every_page(subject: &Subject) {
    let counter = counter("p", MINUTE);
    let key = |n: i32| Key::new("user", 42).and("item", n);
    let replies = (0..2_500)
        .map(|n| {
            subject
                .store
                .charge(subject.charge_of(&counter, &key(n), 5, 2))
        })
        .collect();
    assert!(
        subject
            .answers(replies)
            .iter()
            .all(|answer| answer.as_ref().unwrap().is_admitted)
    );
    assert_eq!(subject.reset(&counter, &Key::new("user", 42), true), 5_000);
    for n in 0..2_500 {
        let usage = subject.peek(&counter, &key(n));
        assert_eq!((usage.used, usage.epoch), (0, 1), "{n}");
    }
    subject.clock.advance(10 * MINUTE);
    assert_eq!(subject.sweep(), 2_500);
    assert_eq!(subject.sweep(), 0);
}

pub(super) fn a_sweep_deletes_only_what_no_window_needs(subject: &Subject) {
    let (minute, hour) = (counter("minute", MINUTE), counter("hour", 60 * MINUTE));
    for counter in [&minute, &hour] {
        subject.charge(counter, &alice(), 5, 5);
    }
    assert_eq!(subject.sweep(), 0, "current windows");
    subject.clock.advance(MINUTE);
    subject.charge(&minute, &alice(), 5, 5);
    assert_eq!(subject.sweep(), 0, "the previous window is kept too");
    subject.clock.advance(MINUTE);
    assert_eq!(subject.sweep(), 1, "the one before goes");
    assert!(
        !subject.charge(&hour, &alice(), 5, 1).is_admitted,
        "another policy's row stays"
    );
    subject
        .clock
        .set(Timestamp::from_unix_millis(NOON + 60_000));
    assert!(
        !subject.charge(&minute, &alice(), 5, 1).is_admitted,
        "a kept row still counts"
    );
}

pub(super) fn a_charge_that_nobody_waits_for_harms_no_other(subject: &Subject) {
    let counter = counter("p", MINUTE);
    let mut waited_for = Vec::new();
    for n in 0..100 {
        let reply = subject
            .store
            .charge(subject.charge_of(&counter, &alice(), 1_000, 1));
        if n % 2 == 0 {
            waited_for.push(reply);
        }
    }
    assert!(
        subject
            .answers(waited_for)
            .iter()
            .all(|answer| answer.as_ref().unwrap().is_admitted)
    );
    let used = subject.peek(&counter, &alice()).used;
    assert!((50..=100).contains(&used), "{used}");
}

/// The store answers a batch as the pure functions answer one charge after another.
pub(super) fn a_batch_is_answered_like_a_sequence(subject: &Subject) {
    let case = std::cell::Cell::new(0);
    let charges =
        proptest::collection::vec((0..3_u8, 0..2_u8, 1..4_u32, 0..9_u32, 0..4_i64), 1..60);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let result = runner.run(&charges, |charges| {
        case.set(case.get() + 1);
        let counters = [0, 1].map(|n| counter(&format!("case{}-{n}", case.get()), MINUTE));
        let mut model = std::collections::HashMap::<_, Usage>::new();
        let mut expected = Vec::new();
        let mut replies = Vec::new();
        for (key, of, cost, limit, minutes_back) in charges {
            let at = Timestamp::from_unix_millis(NOON - minutes_back * 60_000);
            let charge = Charge {
                at,
                ..subject.charge_of(&counters[usize::from(of)], &Key::new("k", key), limit, cost)
            };
            let usage = model.entry((key, of, minutes_back)).or_default();
            let is_admitted = usage.charge(limit, cost);
            expected.push(Outcome {
                is_admitted,
                usage: *usage,
            });
            replies.push(subject.store.charge(charge));
        }
        let answers = subject.answers(replies).into_iter().map(Result::unwrap);
        prop_assert_eq!(answers.collect::<Vec<_>>(), expected);
        Ok(())
    });
    result.unwrap();
}

/// Makes a test of each function of the suite, for the store that `$subject` opens.
macro_rules! contract_suite {
    ($subject:expr) => {
        $crate::store::suite::contract_suite!($subject;
            exactly_the_limit_passes_of_many_tasks,
            a_refused_cost_leaves_what_is_left,
            looking_uses_nothing_and_creates_nothing,
            counters_and_keys_do_not_touch_each_other,
            a_window_ends_at_its_boundary,
            a_changed_limit_keeps_what_was_used,
            extremes_are_refused_or_saturate,
            a_clock_that_steps_locks_nobody_out,
            a_reset_is_seen_by_the_next_charge,
            everything_under_a_key_is_reset_and_nothing_beside_it,
            long_jobs_cover_every_page,
            a_sweep_deletes_only_what_no_window_needs,
            a_charge_that_nobody_waits_for_harms_no_other,
            a_batch_is_answered_like_a_sequence,
        );
    };
    ($subject:expr; $($test:ident,)*) => { $(
        #[test]
        fn $test() {
            $crate::store::suite::$test(&$subject);
        }
    )* };
}
pub(super) use contract_suite;
