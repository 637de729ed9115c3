//! All stores answer alike: the same random charges, over all algorithms and up to the ends of their bounds, on the store and in
//! this process's memory.

use std::cell::Cell;

use proptest::prelude::*;

use super::properties::runner;
use super::*;
use crate::limit::Limit;
use crate::store::MemoryStore;

/// What is done next.
#[derive(Clone, Debug)]
enum Step {
    Charge {
        chosen: u8,
        cost: u32,
        is_forced: bool,
    },
    Look {
        chosen: u8,
        cost: u32,
    },
    /// Milliseconds. After a step back of the clock each store has its own events left that had expired.
    Wait(i64),
    GiveBack,
    Reset(usize),
    Limit(usize, Option<Limit>),
}

const KINDS: usize = 6;

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => 1..20_u32,
        1 => Just(0),
        1 => u32::MAX - 2..=u32::MAX,
        1 => any::<u32>(),
    ]
}

/// In milliseconds, up to ten years.
fn window() -> impl Strategy<Value = u64> {
    let ten_years = 10 * 366 * 86_400_000;
    prop_oneof![
        1 => 1..5_u64,
        4 => 50..5_000_u64,
        1 => 1..ten_years,
        1 => Just(ten_years),
    ]
}

fn steps() -> impl Strategy<Value = Vec<(bool, Step)>> {
    let cost = || number().prop_map(|cost| cost.max(1));
    let charge = (1..64_u8, cost(), prop::bool::weighted(0.1));
    let charge = charge.prop_map(|(chosen, cost, is_forced)| Step::Charge {
        chosen,
        cost,
        is_forced,
    });
    let wait = prop_oneof![
        6 => 1..40_i64,
        6 => 1..3_000_i64,
        1 => 1..400_000_000_000_i64,
    ];
    let limit = proptest::option::weighted(0.8, number()).prop_map(Limit::of_stored);
    let limit = proptest::option::of(limit);
    let step = prop_oneof![
        10 => charge,
        3 => (1..64_u8, cost()).prop_map(|(chosen, cost)| Step::Look { chosen, cost }),
        5 => wait.prop_map(Step::Wait),
        2 => Just(Step::GiveBack),
        1 => (0..KINDS).prop_map(Step::Reset),
        1 => (0..KINDS, limit).prop_map(|(kind, limit)| Step::Limit(kind, limit)),
    ];
    proptest::collection::vec((any::<bool>(), step), 1..40)
}

fn policies(case: u32, limits: &[(u32, u64)], is_blocking: bool) -> Vec<Policy> {
    let of = |kind: usize| {
        let (limit, millis) = limits[kind];
        let window = Duration::from_millis(millis);
        let policy = match kind {
            0 => Policy::try_fixed(limit, window),
            1 => Policy::try_sliding(limit, window),
            2 => Policy::try_sliding_counter(limit, window),
            // One that would take too long to fill is refused.
            3 => Policy::try_token_bucket(limit, window)
                .map(|policy| policy.clone().try_burst(limit / 3 + 1).unwrap_or(policy)),
            4 => Ok(Policy::monthly(limit)),
            _ => Ok(Policy::daily(limit)),
        };
        let policy = policy.unwrap().name(&format!("agreement-{case}-{kind}"));
        // What is charged ahead is told of elsewhere.
        let policy = policy.leases(false);
        if is_blocking && kind % 2 == 1 {
            policy.block_after(2, Duration::from_secs(3))
        } else {
            policy
        }
    };
    (0..KINDS).map(of).collect()
}

/// What is told of each policy. Attempts that were refused are not the same after a reset by another path, and are left out.
fn told(decision: &Decision) -> Vec<(bool, u32, u64, Duration, Option<Duration>)> {
    let verdicts = decision.verdicts().map(|verdict| {
        (
            verdict.is_allowed(),
            verdict.remaining(),
            verdict.used(),
            verdict.reset_after(),
            verdict.retry_after(),
        )
    });
    verdicts.collect()
}

pub fn it_answers_as_this_processs_memory_does(subject: &Subject) {
    let reference = Subject::new(async |clock| (MemoryStore::new().clock(&clock), ()));
    let case = Cell::new(5_000);
    let limits = proptest::collection::vec((number(), window()), KINDS);
    let input = (limits, any::<bool>(), steps());
    let result = runner(48).run(&input, |(limits, is_blocking, steps)| {
        case.set(case.get() + 1);
        let policies = policies(case.get(), &limits, is_blocking);
        let both = [subject, &reference];
        let mut now = 0;
        let go_to = |millis| {
            for store in both {
                store.at(millis);
            }
        };
        go_to(now);
        let mut charged = [Vec::new(), Vec::new()];
        for (place, (key, step)) in steps.into_iter().enumerate() {
            let key = Key::new("user", key);
            let parts = |chosen: u8| {
                let policies = policies.iter().enumerate();
                let chosen = policies.filter(move |(kind, _)| chosen >> kind & 1 == 1);
                chosen.map(|(_, policy)| (policy, &key)).collect::<Vec<_>>()
            };
            match step {
                Step::Charge {
                    chosen,
                    cost,
                    is_forced: false,
                } => {
                    let decisions = both.map(|store| store.charge_all(&parts(chosen), cost));
                    let [one, other] = decisions.each_ref().map(told);
                    prop_assert_eq!(one, other, "charge {} of {:?}", place, parts(chosen));
                    if decisions[0].is_allowed() {
                        charged = decisions.map(|all| all.verdicts().cloned().collect());
                    }
                }
                Step::Charge { chosen, cost, .. } => {
                    let (policy, key) = parts(chosen)[0];
                    let [one, other] = both.map(|store| store.force(policy, key, cost).used());
                    prop_assert_eq!(one, other, "forced {} of {}", place, policy);
                }
                Step::Look { chosen, cost } => {
                    let [one, other] =
                        both.map(|store| told(&store.look_all(&parts(chosen), cost)));
                    prop_assert_eq!(one, other, "look {} at {:?}", place, parts(chosen));
                }
                Step::Wait(millis) => {
                    now += millis;
                    go_to(now);
                }
                Step::GiveBack => {
                    for (store, charged) in both.into_iter().zip(&mut charged) {
                        let charged: Vec<Verdict> = std::mem::take(charged);
                        for verdict in &charged {
                            store.give_back(verdict);
                        }
                    }
                }
                Step::Reset(kind) => {
                    let used = both.map(|store| store.reset(&policies[kind], &key, false));
                    prop_assert_eq!(used[0], used[1], "reset {} of {}", place, policies[kind]);
                }
                Step::Limit(kind, limit) => {
                    let had = both.map(|store| store.set_limit(&policies[kind], Some(&key), limit));
                    prop_assert_eq!(had[0], had[1]);
                }
            }
        }
        Ok(())
    });
    result.unwrap();
}
