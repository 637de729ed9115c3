//! What is known to be over, by itself.

mod several;

use std::time::Duration;

use super::*;
use crate::limit::algorithm::block::Block;
use crate::limit::algorithm::fixed_window::Usage;
use crate::limit::few::Few;
use crate::limit::{Key, Policy};
use crate::store::suite::charge_of;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_unix_millis(millis)
}

fn policy() -> Policy {
    Policy::fixed(10, 60).name("p")
}

fn key(n: usize) -> Key {
    Key::new("user", n)
}

fn charge(n: usize, cost: u32) -> Charge {
    charge_of(&[(&policy(), &key(n))], cost)
}

/// What a store with so many used units says.
fn answer(charge: &Charge, used: u64, millis: i64) -> Outcome {
    let states = charge.parts.map(|part| {
        if part.is_block() {
            State::Block(Block::none(at(millis)))
        } else {
            State::Window(Usage {
                used,
                ..Usage::default()
            })
        }
    });
    Outcome {
        at: at(millis),
        found: charge.decide(at(millis), &states),
    }
}

/// Refusals that know a charge to be over at 1,000 ms.
fn known(charge: &Charge) -> Refusals {
    let refusals = Refusals::default();
    let moment = refusals.moment();
    refusals.note(charge, &answer(charge, 10, 1_000), &moment);
    refusals
}

fn is_refused(refusals: &Refusals, charge: &Charge, millis: i64) -> bool {
    refusals.refuse(charge, at(millis)).is_some()
}

#[test]
fn a_refused_charge_is_refused_for_seconds_and_not_before_it_was() {
    let refusals = known(&charge(1, 2));
    for (millis, expected) in [(999, false), (1_000, true), (5_999, true), (6_000, false)] {
        let is_refused = is_refused(&refusals, &charge(1, 2), millis);
        assert_eq!(is_refused, expected, "{millis}");
    }
    assert!(!is_refused(&refusals, &charge(2, 2), 2_000), "another key");
}

#[test]
fn a_cheaper_charge_must_ask_and_a_dearer_one_need_not() {
    let refusals = known(&charge(1, 2));
    assert!(!is_refused(&refusals, &charge(1, 1), 2_000));
    assert!(is_refused(&refusals, &charge(1, 3), 2_000));
    let forced = Charge::forced(charge(1, 2).parts, 2);
    assert!(!is_refused(&refusals, &forced, 2_000));
}

/// What was refused for the cheaper one is as true as it was.
#[test]
fn the_smallest_cost_that_was_refused_stays_known() {
    let refusals = known(&charge(1, 2));
    refusals.note(
        &charge(1, 5),
        &answer(&charge(1, 5), 10, 2_000),
        &refusals.moment(),
    );
    assert!(is_refused(&refusals, &charge(1, 2), 3_000));
    assert!(!is_refused(&refusals, &charge(1, 1), 3_000));
    assert!(
        !is_refused(&refusals, &charge(1, 2), 6_000),
        "no longer than before"
    );
}

#[test]
fn another_limit_on_the_same_counter_must_ask() {
    let refusals = known(&charge(1, 2));
    let raised = Policy::fixed(20, 60).name("p");
    assert!(!is_refused(
        &refusals,
        &charge_of(&[(&raised, &key(1))], 2),
        2_000
    ));
}

#[test]
fn refusals_are_told_with_the_attempts_so_far_and_handed_over_once() {
    let refusals = known(&charge(1, 2));
    let denied = |outcome: &Outcome| outcome.found.first().state.denied();
    let told = (0..3).map(|_| denied(&refusals.refuse(&charge(1, 2), at(2_000)).unwrap()));
    let told: Vec<_> = told.collect();
    // The first two units were counted by the store.
    assert_eq!(told, [4, 6, 8]);
    let state = State::Window(Usage::default());
    let part = charge(1, 2).parts.first().clone();
    assert_eq!(refusals.uncounted(&part, at(2_000), &state), 6);
    let attempts = refusals.take_attempts(at(2_000));
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].units, attempts[0].window_start), (6, at(0)));
    assert_eq!(refusals.take_attempts(at(2_000)), []);
    assert_eq!(refusals.uncounted(&part, at(2_000), &state), 0);
    assert_eq!(
        denied(&refusals.refuse(&charge(1, 2), at(2_000)).unwrap()),
        10
    );
    refusals.free(&part);
    assert_eq!(
        refusals.take_attempts(at(2_000))[0].units,
        2,
        "it is gone, and they are not"
    );
    assert!(!refusals.has_attempts());
}

#[test]
fn whatever_frees_a_key_clears_it_and_an_admission_too() {
    let frees: [&dyn Fn(&Refusals); 4] = [
        &|refusals| refusals.free(charge(1, 2).parts.first()),
        &|refusals| {
            let admitted = charge(1, 2);
            refusals.note(&admitted, &answer(&admitted, 0, 1_001), &refusals.moment());
        },
        &|refusals| {
            refusals.free_all(&[Freed::Keys {
                counter: "p;fixed;60s".to_owned(),
                first: "user:0".to_owned(),
                last: "user:2".to_owned(),
                is_reset: false,
            }]);
        },
        &|refusals| {
            refusals.free_all(&[Freed::Limit {
                filed_under: "p".to_owned(),
                key: String::new(),
            }]);
        },
    ];
    for free in frees {
        let refusals = known(&charge(1, 2));
        free(&refusals);
        assert!(!is_refused(&refusals, &charge(1, 2), 2_000));
        assert!(refusals.is_empty());
    }
    let refusals = known(&charge(1, 2));
    let others = [
        ("q;fixed;60s", "user:0", "user:2"),
        ("p;fixed;60s", "user:2", "user:3"),
    ];
    refusals.free_all(&others.map(|(counter, first, last)| Freed::Keys {
        counter: counter.to_owned(),
        first: first.to_owned(),
        last: last.to_owned(),
        is_reset: true,
    }));
    assert!(is_refused(&refusals, &charge(1, 2), 2_000));
}

/// The batch may not have found what became free while it was under way.
#[test]
fn an_answer_of_before_a_key_was_freed_is_not_taken_in() {
    let refusals = Refusals::default();
    let moment = refusals.moment();
    refusals.free(charge(1, 2).parts.first());
    refusals.note(&charge(1, 2), &answer(&charge(1, 2), 10, 1_000), &moment);
    assert!(refusals.is_empty());
}

#[test]
fn refusals_that_are_still_counted_towards_a_block_go_to_the_store() {
    let blocking = policy().block_after(3, Duration::from_secs(600));
    let charge = charge_of(&[(&blocking, &key(1))], 2);
    let refusals = known(&charge);
    assert!(refusals.is_empty());
    let mut blocked = answer(&charge, 10, 1_000);
    for found in blocked.found.iter_mut() {
        found.blocked_until = Some(at(601_000));
        found.fits = false;
    }
    refusals.note(&charge, &blocked, &refusals.moment());
    assert!(is_refused(&refusals, &charge, 5_999));
}

#[test]
fn a_policy_without_leases_asks_each_time() {
    let asked = policy().leases(false);
    assert!(known(&charge_of(&[(&asked, &key(1))], 2)).is_empty());
}

#[test]
fn a_flood_of_keys_stays_inside_the_bound_and_its_attempts_are_counted() {
    let refusals = Refusals::default();
    refusals.set_max_keys(1_600);
    let moment = refusals.moment();
    for n in 0..4_000 {
        let charge = charge(n, 2);
        refusals.note(&charge, &answer(&charge, 10, 1_000), &moment);
        assert!(is_refused(&refusals, &charge, 2_000));
        assert!(refusals.table.len() <= 1_600);
    }
    // Those of keys that are known, and of as many that had to go.
    let attempts = refusals.take_attempts(at(2_000));
    let units: u64 = attempts.iter().map(|attempts| attempts.units).sum();
    let known = refusals.table.len() as u64;
    assert_eq!(units, 2 * (known + 1_600));
    refusals.take_attempts(at(60_000));
    assert!(!refusals.has_attempts(), "they are over");
}

#[test]
fn a_key_that_is_refused_again_and_again_outlasts_a_flood() {
    let refusals = Refusals::default();
    refusals.set_max_keys(160);
    let moment = refusals.moment();
    let often = charge(0, 2);
    refusals.note(&often, &answer(&often, 10, 1_000), &moment);
    for n in 1..4_000 {
        assert!(is_refused(&refusals, &often, 2_000));
        let charge = charge(n, 2);
        refusals.note(&charge, &answer(&charge, 10, 1_000), &moment);
    }
}

#[test]
fn a_sliding_window_is_asked_again_when_an_event_has_left() {
    let sliding = Policy::sliding(2, 60).name("s");
    let charge = charge_of(&[(&sliding, &key(1))], 2);
    let mut log = crate::limit::algorithm::sliding_window::Log::of(at(0), None, None);
    log.take(1);
    log.at = at(30_000);
    log.take(1);
    let found = charge.decide(at(57_000), &Few::one(State::Log(log)));
    let refusals = Refusals::default();
    let outcome = Outcome {
        at: at(57_000),
        found,
    };
    refusals.note(&charge, &outcome, &refusals.moment());
    assert!(is_refused(&refusals, &charge, 59_999));
    assert!(
        !is_refused(&refusals, &charge, 60_000),
        "one more is left then"
    );
    let of = |cost| Charge::new(charge.parts.clone(), cost);
    assert!(
        !is_refused(&refusals, &of(3), 58_000),
        "its wait is another"
    );
    for cost in 3..9 {
        let found = of(cost).decide(at(57_500), &Few::one(State::Log(log)));
        let outcome = Outcome {
            at: at(57_500),
            found,
        };
        refusals.note(&of(cost), &outcome, &refusals.moment());
    }
    let known = (1..9).filter(|cost| is_refused(&refusals, &of(*cost), 58_000));
    assert_eq!(known.collect::<Vec<_>>(), [5, 6, 7, 8], "no more than some");
}

/// Its attempts are of the next window then.
#[test]
fn a_window_that_ends_ends_what_is_known() {
    let refusals = Refusals::default();
    let charge = charge(1, 2);
    let late = answer(&charge, 10, 58_000);
    refusals.note(&charge, &late, &refusals.moment());
    assert!(is_refused(&refusals, &charge, 59_999));
    assert!(!is_refused(&refusals, &charge, 60_000));
}

/// What `SqliteStore::max_keys_in_memory` tells of it.
#[test]
fn a_key_takes_no_more_memory_than_is_told() {
    const KEYS: usize = 1 << 16;
    let refusals = Refusals::default();
    let moment = refusals.moment();
    let noted: Vec<_> = (0..KEYS)
        .map(|n| charge(n, 2))
        .map(|charge| (answer(&charge, 10, 1_000), charge))
        .collect();
    let taken = allocation_counter::measure(|| {
        for (answer, charge) in &noted {
            refusals.note(charge, answer, &moment);
        }
    });
    assert!(taken.bytes_current <= i64::try_from(400 * KEYS).unwrap());
}
