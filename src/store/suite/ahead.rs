//! What a store charges ahead of requests changes no answer of its process.

use std::cell::Cell;

use proptest::prelude::*;

use super::properties::runner;
use super::*;
use crate::store::MemoryStore;

/// What is done next with a key.
#[derive(Clone, Debug)]
enum Step {
    /// So many charges under some of the policies.
    Charge {
        chosen: usize,
        cost: u32,
        times: usize,
    },
    Look {
        chosen: usize,
    },
    /// Milliseconds.
    Wait(i64),
    GiveBack,
    Reset {
        place: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<(u8, Step)>> {
    let charge = (
        1..8_usize,
        prop_oneof![5 => Just(1), 1 => 2..40_u32],
        1..30_usize,
    );
    let charge = charge.prop_map(|(chosen, cost, times)| Step::Charge {
        chosen,
        cost,
        times,
    });
    let step = prop_oneof![
        8 => charge,
        2 => (1..8_usize).prop_map(|chosen| Step::Look { chosen }),
        3 => prop_oneof![1..40_i64, 1..1_500_i64].prop_map(Step::Wait),
        2 => Just(Step::GiveBack),
        1 => (0..3_usize).prop_map(|place| Step::Reset { place }),
    ];
    proptest::collection::vec((0..2_u8, step), 1..30)
}

/// What a verdict tells.
type Told = (bool, u32, Duration, Option<Duration>);

/// What a decision tells of each policy. What a refusal tells of others than those that refuse may be some moments old.
fn told(decision: &Decision) -> Vec<Told> {
    let verdicts = decision.verdicts();
    let verdicts = verdicts.filter(|verdict| decision.is_allowed() || verdict.is_denied());
    let verdicts = verdicts.map(|verdict| {
        (
            verdict.is_allowed(),
            verdict.remaining(),
            verdict.reset_after(),
            verdict.retry_after(),
        )
    });
    verdicts.collect()
}

/// Whether a decision tells what one tells for which every unit was asked for. A policy that has come to refuse too since a
/// refusal was remembered is not told.
fn tells_the_same(one: &[Told], other: &[Told]) -> bool {
    let is_denied = |told: &[Told]| told.iter().any(|(fits, ..)| !fits);
    if is_denied(one) && is_denied(other) {
        one.iter().all(|verdict| other.contains(verdict))
    } else {
        one == other
    }
}

/// A store that asks for every unit tells the same.
pub fn what_is_charged_ahead_changes_no_answer(subject: &Subject) {
    let reference = Subject::new(async |clock| (MemoryStore::new().clock(&clock), ()));
    let case = Cell::new(0);
    let limits = (8..300_u32, 8..300_u32, 8..300_u32);
    let result = runner(16).run(&(limits, steps()), |(limits, steps)| {
        case.set(case.get() + 1);
        let name = |kind| format!("ahead-{}-{kind}", case.get());
        let policies = [
            Policy::fixed(limits.0, 1).name(&name("burst")),
            Policy::sliding_counter(limits.1, 1).name(&name("counter")),
            Policy::daily(limits.2).name(&name("quota")),
        ];
        let mut now = 0;
        let both = [subject, &reference];
        let go_to = |millis| {
            for store in both {
                store.at(millis);
            }
        };
        go_to(now);
        let mut charged = [Vec::new(), Vec::new()];
        for (key, step) in steps {
            let key = Key::new("user", key);
            let chosen = |chosen: usize| {
                let policies = policies.iter().enumerate();
                let chosen = policies.filter(move |(place, _)| chosen >> place & 1 == 1);
                chosen.map(|(_, policy)| policy)
            };
            match step {
                Step::Charge {
                    chosen: of,
                    cost,
                    times,
                } => {
                    let parts: Vec<_> = chosen(of).map(|policy| (policy, &key)).collect();
                    for time in 0..times {
                        let decisions = both.map(|store| store.charge_all(&parts, cost));
                        let [one, other] = decisions.each_ref().map(told);
                        let is_same = tells_the_same(&one, &other);
                        prop_assert!(is_same, "charge {time} at {now}: {one:?}, not {other:?}");
                        if decisions[0].is_allowed() {
                            charged = decisions.map(|all| all.verdicts().cloned().collect());
                        }
                    }
                }
                Step::Look { chosen: of } => {
                    let parts: Vec<_> = chosen(of).map(|policy| (policy, &key)).collect();
                    let [one, other] = both.map(|store| told(&store.look_all(&parts, 1)));
                    prop_assert_eq!(one, other, "look at {}", now);
                }
                Step::Wait(millis) => {
                    now += millis;
                    go_to(now);
                }
                Step::GiveBack => {
                    for (store, charged) in both.into_iter().zip(&mut charged) {
                        charged
                            .drain(..)
                            .for_each(|verdict| store.give_back(&verdict));
                    }
                }
                Step::Reset { place } => {
                    let used = both.map(|store| store.reset(&policies[place], &key, false));
                    prop_assert_eq!(used[0], used[1], "reset at {}", now);
                }
            }
        }
        Ok(())
    });
    result.unwrap();
}
