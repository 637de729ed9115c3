//! The suite that every store must pass.
//!
//! `store_suite!` has it test anybody's store, and `records_suite!` anybody's records.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_imports,
    reason = "they are tests, and a test that fails panics"
)]

mod agreement;
mod ahead;
mod algorithms;
mod blocks;
mod clocks;
mod giving_back;
mod limits;
mod model;
mod poison;
mod properties;
#[cfg(feature = "records")]
mod records;
mod several;
#[cfg(feature = "records")]
mod sharing;
mod windows;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

pub use self::{
    agreement::*, ahead::*, algorithms::*, blocks::*, clocks::*, giving_back::*, limits::*,
    poison::*, properties::*, several::*, windows::*,
};
#[cfg(feature = "records")]
pub use self::{records::*, sharing::*};
use super::{Charge, GiveBack, Handle, Outcome, Part, Reply, Reset, Rule, Store, StoreError};
use crate::clock::ManualClock;
use crate::limit::algorithm::State;
use crate::limit::algorithm::fixed_window::Usage;
use crate::limit::few::Few;
use crate::limit::{Decision, Key, Policy, Timestamp, Verdict};

/// Runs so many cases of a property.
#[cfg(all(test, feature = "redis"))]
pub(in crate::store) fn runner_of(cases: u32) -> proptest::test_runner::TestRunner {
    properties::runner(cases)
}

/// As long as there is one subscriber of events alone, whatever thread comes to an event first settles for all whether anybody
/// listens to it, by its own.
#[cfg(test)]
pub(in crate::store) fn let_others_listen() {
    static OTHER: std::sync::LazyLock<tracing::Dispatch> =
        std::sync::LazyLock::new(|| tracing::Dispatch::new(tracing_subscriber::registry()));
    std::sync::LazyLock::force(&OTHER);
}

pub(in crate::store) const NOON: i64 = 3_567_225_600_000;

/// A store under test, on a clock that stands still.
pub struct Subject {
    pub(super) store: Handle,
    pub(super) clock: ManualClock,
    runtime: Runtime,
    /// Whether what has expired goes by itself, by a clock that is not the test's.
    expires_by_itself: bool,
    /// What must outlive the store.
    _keep: Box<dyn Send>,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl Subject {
    pub fn new<S: Store, K: Send + 'static>(open: impl AsyncFnOnce(ManualClock) -> (S, K)) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let clock = ManualClock::new(Timestamp::from_unix_millis(NOON));
        let (store, keep) = runtime.block_on(open(clock.clone()));
        let store = store.handle().0;
        store.wait_at_length();
        Self {
            store,
            clock,
            runtime,
            expires_by_itself: false,
            _keep: Box::new(keep),
        }
    }

    /// A store that has nothing to sweep: what has expired goes by itself.
    #[must_use]
    pub fn expiring(self) -> Self {
        Self {
            expires_by_itself: true,
            ..self
        }
    }

    /// Sets the clock, in milliseconds from the first instant.
    fn at(&self, millis: i64) -> &Self {
        self.clock.set(Timestamp::from_unix_millis(NOON + millis));
        self
    }

    fn charge(&self, policy: &Policy, key: &Key, cost: u32) -> Verdict {
        let decision = self.charge_all(&[(policy, key)], cost);
        decision.verdicts().next().unwrap().clone()
    }

    fn is_admitted(&self, policy: &Policy, key: &Key, cost: u32) -> bool {
        self.charge(policy, key, cost).is_allowed()
    }

    fn charge_all(&self, parts: &[(&Policy, &Key)], cost: u32) -> Decision {
        let charge = charge_of(parts, cost);
        let outcome = self.runtime.block_on(self.store.charge(&charge));
        decision(&charge, &outcome.unwrap())
    }

    fn look(&self, policy: &Policy, key: &Key, cost: u32) -> Verdict {
        let decision = self.look_all(&[(policy, key)], cost);
        decision.verdicts().next().unwrap().clone()
    }

    fn look_all(&self, parts: &[(&Policy, &Key)], cost: u32) -> Decision {
        let charge = charge_of(parts, cost);
        let outcome = self.runtime.block_on(self.store.peek(charge.clone()));
        decision(&charge, &outcome.unwrap())
    }

    /// What is stored of a window.
    fn usage(&self, policy: &Policy, key: &Key) -> Usage {
        let look = charge_of(&[(policy, key)], 1);
        let outcome = self.runtime.block_on(self.store.peek(look)).unwrap();
        match outcome.found.first().state {
            State::Window(usage) => usage,
            other => panic!("{other:?} is no window"),
        }
    }

    /// The epoch of a counter, of what is counted by windows.
    fn epoch(&self, policy: &Policy, key: &Key) -> Option<u64> {
        let look = charge_of(&[(policy, key)], 1);
        let outcome = self.runtime.block_on(self.store.peek(look)).unwrap();
        let window = outcome.found.first().state.window().copied();
        window.map(|usage| usage.epoch)
    }

    fn reset(&self, policy: &Policy, key: &Key, with_keys_under: bool) -> u64 {
        let reset = Reset {
            part: part_of(policy, key),
            with_keys_under,
            at: self.clock.now(),
        };
        self.runtime.block_on(self.store.reset(reset)).unwrap()
    }

    /// Charges what was used already.
    fn force(&self, policy: &Policy, key: &Key, cost: u32) -> Verdict {
        let charge = Charge::forced(Few::one(part_of(policy, key)), cost);
        let outcome = self.runtime.block_on(self.store.charge(&charge)).unwrap();
        let decision = decision(&charge, &outcome);
        decision.verdicts().next().unwrap().clone()
    }

    /// Gives back what a charge has taken.
    fn give_back(&self, charged: &Verdict) {
        let back = GiveBack {
            part: part_of(charged.policy(), charged.key()),
            units: charged.cost(),
            from: charged.taken(),
            taken_at: charged.decided_at(),
        };
        let given_back = self.store.give_back(vec![back], false);
        self.runtime.block_on(given_back).unwrap();
    }

    fn sweep(&self) -> u64 {
        self.runtime.block_on(self.store.sweep()).unwrap()
    }

    /// Sweeps, and looks how many rows that has deleted.
    #[track_caller]
    fn sweeps(&self, rows: u64) {
        let rows = if self.expires_by_itself { 0 } else { rows };
        assert_eq!(self.sweep(), rows);
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

pub(in crate::store) fn part_of(policy: &Policy, key: &Key) -> Part {
    let rule = Rule::new(
        policy.counter_name(),
        policy.as_name().to_owned(),
        policy.clone(),
    );
    Part {
        rule: Arc::new(rule),
        key: key.clone(),
    }
}

pub(in crate::store) fn charge_of(parts: &[(&Policy, &Key)], cost: u32) -> Charge {
    let parts = parts.iter().map(|(policy, key)| part_of(policy, key));
    Charge::new(Few::collect(parts).unwrap(), cost)
}

fn decision(charge: &Charge, outcome: &Outcome) -> Decision {
    let mut found = outcome.of_policies();
    Decision::new(charge.clone().into_policies().map(|part| {
        let (key, found) = (part.key.clone(), found.next().unwrap());
        Verdict::new(part.policy(), key, charge.cost, outcome.at, found)
    }))
}

/// An aligned window of a minute.
fn minute(name: &str, limit: u32) -> Policy {
    Policy::fixed(limit, 60).name(name)
}

/// A policy of each algorithm, over a minute or so.
fn one_of_each(limit: u32) -> [Policy; 5] {
    [
        Policy::fixed(limit, 60).name("fixed"),
        Policy::sliding(limit, 60).name("sliding"),
        Policy::sliding_counter(limit, 60).name("counter"),
        Policy::token_bucket(limit, 60).name("bucket"),
        Policy::hourly(limit).name("hourly"),
    ]
}

fn alice() -> Key {
    Key::new("user", "alice")
}

/// Makes a test of each thing that a [`Store`](crate::Store) promises, with the feature `test-util`: some seventy, among them races,
/// properties against a model that keeps every timestamp, and random charges that this crate's memory store must answer alike.
///
/// It takes a closure that opens a new, empty store on a clock, and returns it with what must outlive it: a temporary
/// folder, or `()`. Several run at once, so each needs counters of its own.
///
/// ```
/// # #[cfg(feature = "test-util")]
/// mod our_store {
///     use tollgate::MemoryStore;
///
///     tollgate::store_suite!(async |clock| (MemoryStore::new().clock(&clock), ()));
/// }
/// ```
///
/// The clock stands in the year 2083, so that nothing which goes by the time of day takes what has been stored for old. A database that
/// deletes what has expired by itself, before a sweep counts it, says so:
///
/// ```
/// # #[cfg(feature = "test-util")]
/// # mod our_store {
/// # use tollgate::MemoryStore;
/// tollgate::store_suite!(expires_by_itself, async |clock| (MemoryStore::new().clock(&clock), ()));
/// # }
/// ```
#[cfg(feature = "test-util")]
#[macro_export]
macro_rules! store_suite {
    (expires_by_itself, $open:expr) => {
        $crate::__store_suite!($crate::__suite::Subject::new($open).expiring());
    };
    ($open:expr) => {
        $crate::__store_suite!($crate::__suite::Subject::new($open));
    };
}

/// Makes a test of each function of the suite, or of some, for the store that `$subject` opens.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite {
    ($subject:expr) => {
        $crate::__store_suite!($subject;
            exactly_the_limit_passes_of_many_tasks,
            a_refused_cost_leaves_what_is_left,
            looking_uses_nothing_and_creates_nothing,
            counters_and_keys_do_not_touch_each_other,
            a_window_ends_at_its_boundary,
            a_changed_limit_keeps_what_was_used,
            extremes_are_refused_or_saturate,
            a_reset_is_seen_by_the_next_charge,
            everything_under_a_key_is_reset_and_nothing_beside_it,
            a_whole_policy_is_reset_and_nothing_of_others,
            long_jobs_cover_every_page,
            a_sweep_deletes_only_what_no_window_needs,
            a_charge_that_nobody_waits_for_harms_no_other,
            an_odd_key_is_a_key_or_an_error_and_harms_no_other,
            an_odd_key_of_one_policy_charges_no_other,
            a_refused_request_is_not_recorded_by_a_sliding_window,
            many_units_in_one_millisecond_are_one_event,
            trimming_and_sweeping_change_no_answer,
            calendar_quotas_begin_anew_with_the_calendar,
            a_bucket_lets_a_burst_pass_and_then_its_rate,
            a_bucket_keeps_its_usage_when_its_rate_changes,
            a_sliding_counter_weighs_the_window_before,
            a_cost_above_the_limit_is_refused_without_a_promise,
            a_cost_of_zero_looks,
            a_refused_policy_uses_nothing_of_the_others,
            several_policies_wait_for_the_slowest,
            several_policies_may_have_keys_of_their_own,
            exactly_the_limit_passes_of_several_policies,
            a_clock_that_steps_locks_nobody_out,
            a_step_back_gives_no_more_than_one_quota,
            a_step_back_revives_nothing_that_had_left,
            each_rate_drains_a_bucket_for_itself,
            a_refused_key_is_blocked_for_as_long_as_its_policy_says,
            asking_again_does_not_make_a_block_longer,
            a_block_may_need_several_refusals_in_a_row,
            a_window_without_a_refusal_ends_the_row,
            a_reset_ends_a_block,
            a_blocked_key_uses_nothing_of_other_policies,
            a_refusal_by_another_policy_blocks_nothing,
            a_block_outlasts_no_clock_that_steps_back,
            a_block_waits_for_what_it_outlasts,
            what_was_used_already_is_charged_beyond_the_limit,
            what_is_given_back_can_be_used_again,
            what_is_given_back_twice_is_never_below_zero,
            nothing_goes_back_to_another_window,
            nothing_goes_back_to_a_key_that_was_reset,
            nothing_goes_back_to_a_key_that_was_reset_in_the_same_millisecond,
            a_bucket_takes_back_no_more_than_is_still_there,
            a_bucket_takes_nothing_back_from_ahead_of_a_clock_that_stepped_back,
            what_was_reset_stays_until_it_expires_and_no_longer,
            giving_back_is_as_if_it_had_never_been_charged,
            a_limit_that_is_set_holds_from_the_next_charge_on,
            a_blocked_key_and_an_exempt_one_are_the_two_ends,
            an_exempt_key_passes_a_block,
            the_limit_of_a_policy_is_for_keys_without_their_own,
            a_limit_ends_when_it_says,
            a_wait_outlasts_a_block_and_what_it_leaves,
            limits_of_several_policies_are_told_apart,
            a_limit_outlasts_a_change_of_the_window,
            limits_are_listed_a_page_at_a_time,
            a_sweep_deletes_limits_that_have_ended_and_no_others,
            a_reset_leaves_limits,
            limits_that_are_set_decide_like_a_model,
            each_algorithm_decides_like_its_model,
            several_policies_decide_like_their_models,
            a_batch_is_answered_like_a_sequence,
            what_is_charged_ahead_changes_no_answer,
            it_answers_as_this_processs_memory_does,
        );
    };
    ($subject:expr; $($test:ident,)*) => { $(
        #[::core::prelude::v1::test]
        fn $test() {
            $crate::__suite::$test(&$subject);
        }
    )* };
}
