//! Leases by themselves, with what a backend would grant.

mod floods;
mod several;

use super::*;
use crate::limit::algorithm::Taken;
use crate::limit::algorithm::fixed_window::Usage;
use crate::limit::{Key, Policy};
use crate::store::Reset;
use crate::store::engine::backend::Freed;
use crate::store::suite::charge_of;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_unix_millis(millis)
}

fn charge(limit: u32, cost: u32) -> Charge {
    charge_of(
        &[(&Policy::fixed(limit, 60).name("p"), &Key::new("user", "a"))],
        cost,
    )
}

fn usage(used: u64) -> Usage {
    Usage {
        used,
        ..Usage::default()
    }
}

/// What is asked for beside a charge of one part.
fn ahead_of(leases: &Leases, charge: &Charge, millis: i64) -> Option<Ahead> {
    let mut ahead = leases.ahead_of(charge, at(millis));
    let first = ahead.next();
    assert!(ahead.next().is_none());
    first
}

/// Spends, and says whether more is to be asked for.
fn is_time_to_ask(leases: &Leases, charge: &Charge, millis: i64) -> bool {
    let mut is_time = false;
    let spent = leases.spend(charge, at(millis), |_| is_time = true);
    assert!(spent.is_some());
    is_time
}

fn grant(ahead: &Ahead, units: u32, used: u64, millis: i64) -> Grant {
    Grant {
        at: at(millis),
        span: ahead.part.span(at(millis)),
        units,
        state: State::Window(usage(used)),
        in_force: None,
    }
}

/// Leases with one of `units`, taken at `millis`.
fn leased(units: u32, millis: i64) -> (Leases, Charge) {
    let (leases, charge) = (Leases::default(), charge(1_000, 1));
    assert!(
        ahead_of(&leases, &charge, millis).is_none(),
        "seen for the first time"
    );
    let ahead = ahead_of(&leases, &charge, millis).unwrap();
    leases.install(
        &ahead,
        Some(&grant(&ahead, units, u64::from(units), millis)),
    );
    (leases, charge)
}

fn spend(leases: &Leases, charge: &Charge, millis: i64) -> Option<u64> {
    let spent = leases.spend(charge, at(millis), |_| {})?;
    let State::Window(usage) = spent.found.first().state else {
        panic!("{spent:?}");
    };
    Some(usage.used)
}

#[test]
fn units_are_spent_once_and_told_as_used_one_by_one() {
    let (leases, charge) = leased(3, 0);
    let used = [(); 4].map(|()| spend(&leases, &charge, 1));
    assert_eq!(used, [Some(1), Some(2), Some(3), None]);
    assert!(leases.take_all().is_empty());
}

fn back(charge: &Charge, units: u32, start: i64, epoch: u64) -> GiveBack {
    GiveBack {
        part: charge.parts.first().clone(),
        units,
        taken_at: at(0),
        from: Taken::Window {
            start: at(start),
            epoch,
        },
    }
}

#[test]
fn what_goes_back_is_told_as_not_used_and_not_spent_again() {
    let (leases, charge) = leased(3, 0);
    assert_eq!(spend(&leases, &charge, 1), Some(1));
    leases.note_given_back(&back(&charge, 1, 0, 0));
    let used = [(); 3].map(|()| spend(&leases, &charge, 3));
    assert_eq!(used, [Some(1), Some(2), None]);
}

#[test]
fn what_goes_back_to_another_window_or_epoch_changes_no_lease() {
    let (leases, charge) = leased(3, 60_000);
    leases.note_given_back(&back(&charge, 1, 0, 0));
    leases.note_given_back(&back(&charge, 1, 60_000, 1));
    assert_eq!(spend(&leases, &charge, 60_001), Some(1));
    // Never less than what is still to be spent.
    leases.note_given_back(&back(&charge, 9, 60_000, 0));
    let used = [(); 3].map(|()| spend(&leases, &charge, 60_002));
    assert_eq!(used, [Some(1), Some(2), None]);
}

#[test]
fn a_lease_is_spent_in_its_own_window_and_not_before_it_was_taken() {
    let (leases, charge) = leased(8, 30_000);
    assert_eq!(spend(&leases, &charge, 60_000), None, "the next window");
    assert_eq!(
        spend(&leases, &charge, 29_999),
        None,
        "a clock that has stepped back"
    );
    assert_eq!(spend(&leases, &charge, 59_999), Some(1));
}

#[test]
fn another_limit_on_the_same_counter_does_not_spend_it() {
    let (leases, one) = leased(8, 0);
    assert_eq!(spend(&leases, &charge(5, 1), 0), None);
    assert_eq!(spend(&leases, &one, 0), Some(1));
}

#[test]
fn more_is_asked_for_once_when_half_is_spent() {
    let (leases, charge) = leased(4, 0);
    let is_half_empty = [(); 4].map(|()| is_time_to_ask(&leases, &charge, 1));
    assert_eq!(is_half_empty, [false, false, true, false]);
    assert!(ahead_of(&leases, &charge, 1).is_none(), "it is on its way");
}

#[test]
fn what_is_asked_for_grows_when_it_is_spent_soon_and_halves_when_it_lasts() {
    let (leases, charge) = leased(4, 0);
    let ask = |millis: i64| {
        let ahead = ahead_of(&leases, &charge, millis);
        let units = ahead.as_ref().map(|ahead| ahead.units);
        if let Some(ahead) = ahead {
            leases.install(&ahead, Some(&grant(&ahead, 1, 1, millis)));
        }
        units
    };
    let asked = [250, 2_250, 5_000, 14_000, 23_000, 32_000].map(ask);
    let expected = [Some(16), Some(32), Some(32), Some(16), Some(8), Some(4)];
    assert_eq!(asked, expected);
    assert_eq!([41_000, 50_000, 59_000].map(ask), [Some(2), Some(1), None]);
}

#[test]
fn what_is_asked_for_first_is_as_much_as_the_second_charge_is_near() {
    let asked = [250, 2_000, 2_001].map(|millis| {
        let (leases, charge) = (Leases::default(), charge(1_000, 1));
        assert!(ahead_of(&leases, &charge, 0).is_none());
        ahead_of(&leases, &charge, millis).map(|ahead| ahead.units)
    });
    assert_eq!(asked, [Some(4), Some(1), None]);
}

#[test]
fn a_rest_that_is_too_small_goes_back() {
    let (leases, charge) = leased(4, 0);
    let large = charge_of(
        &[(charge.parts.first().policy(), &Key::new("user", "a"))],
        5,
    );
    assert_eq!(spend(&leases, &large, 0), None);
    assert_eq!(leases.rests_before(&[large], at(0))[0].units, 4);
    assert_eq!(spend(&leases, &charge, 0), None);
}

#[test]
fn what_is_idle_goes_back_and_what_is_not_stays() {
    let (leases, charge) = leased(4, 0);
    assert_eq!(spend(&leases, &charge, 1_000), Some(1));
    assert!(leases.take_idle(at(3_499), 9).is_empty());
    let back = leases.take_idle(at(3_500), 9);
    assert_eq!((back.len(), back[0].units), (1, 3));
    assert!(leases.take_idle(at(3_600), 9).is_empty(), "once");
    // It is remembered for a minute, and asks for half as much when it comes back.
    leases.take_idle(at(60_000), 9);
    assert!(leases.is_outstanding());
    leases.take_idle(at(61_000), 9);
    leases.take_idle(at(61_000), 9);
    assert!(!leases.is_outstanding());
}

#[test]
fn a_key_that_came_once_is_forgotten_soon() {
    let (leases, charge) = (Leases::default(), charge(1_000, 1));
    assert!(ahead_of(&leases, &charge, 0).is_none());
    leases.take_idle(at(2_500), 9);
    assert!(
        ahead_of(&leases, &charge, 2_500).is_none(),
        "as if never seen"
    );
}

#[test]
fn what_is_left_of_a_window_that_is_over_goes_back_too() {
    let (leases, charge) = leased(4, 59_000);
    assert_eq!(leases.take_idle(at(60_000), 9).len(), 1);
    assert_eq!(
        spend(&leases, &charge, 59_500),
        None,
        "also when the clock steps back"
    );
}

#[test]
fn after_a_step_back_what_was_taken_before_is_idle() {
    let (leases, _) = leased(4, 50_000);
    assert_eq!(leases.take_idle(at(0), 9).len(), 1);
}

#[test]
fn what_can_not_be_given_back_is_there_again() {
    let (leases, charge) = leased(4, 0);
    let back = leases.take_idle(at(3_000), 9).remove(0);
    assert_eq!(spend(&leases, &charge, 3_000), None);
    assert!(leases.restore(&back));
    assert_eq!(spend(&leases, &charge, 3_000), Some(1));
}

#[test]
fn no_more_goes_back_at_once_than_is_asked_for() {
    let leases = Leases::default();
    for n in 0..5 {
        let charge = charge_of(
            &[(&Policy::fixed(1_000, 60).name("p"), &Key::new("user", n))],
            1,
        );
        assert!(ahead_of(&leases, &charge, 0).is_none());
        let ahead = ahead_of(&leases, &charge, 0).unwrap();
        leases.install(&ahead, Some(&grant(&ahead, 2, 2, 0)));
    }
    let given_back = [2, 2, 2, 2].map(|most| leases.take_idle(at(3_000), most).len());
    assert_eq!(given_back, [2, 2, 1, 0]);
}

#[test]
fn a_refill_of_a_lease_that_was_dropped_meanwhile_is_not_asked_for_beside_another() {
    let (leases, charge) = leased(4, 0);
    let part = charge.parts.first();
    let is_half_empty = [(); 3].map(|()| is_time_to_ask(&leases, &charge, 1));
    assert!(is_half_empty[2]);
    let reset = Reset {
        part: part.clone(),
        with_keys_under: false,
        at: at(1),
    };
    assert_eq!(leases.forget(&reset, |key| key == part.key.as_str()), 1);
    assert!(ahead_of(&leases, &charge, 1).is_none(), "a new one");
    let ahead = ahead_of(&leases, &charge, 1).unwrap();
    assert!(leases.refill_of(part, at(1)).is_none(), "one is on its way");
    assert!(
        leases
            .install(&ahead, Some(&grant(&ahead, 1, 4, 1)))
            .is_none()
    );
    // Nobody has asked for it.
    let back = leases.install(&ahead, Some(&grant(&ahead, 1, 4, 1)));
    assert_eq!(back.map(|back| back.units), Some(1));
    assert_eq!(
        [(); 2].map(|()| spend(&leases, &charge, 1).is_some()),
        [true, false]
    );
}

#[test]
fn asks_that_were_granted_nothing_do_not_grow() {
    let (leases, charge) = (Leases::default(), charge(1_000, 1));
    assert!(ahead_of(&leases, &charge, 0).is_none());
    for _ in 0..20 {
        let ahead = ahead_of(&leases, &charge, 0).unwrap();
        assert_eq!(ahead.units, 4);
        leases.install(&ahead, None);
    }
}

#[test]
fn what_a_panic_has_lost_can_be_asked_for_again() {
    let (leases, charge) = leased(4, 0);
    let _ = [(); 3].map(|()| leases.spend(&charge, at(1), |_| {}));
    leases.forget_asks();
    assert!(ahead_of(&leases, &charge, 1).is_some());
}

#[test]
fn a_policy_without_leases_asks_for_none() {
    let policy = Policy::fixed(1_000, 60).leases(false);
    let charge = charge_of(&[(&policy, &Key::new("user", "a"))], 1);
    let leases = Leases::default();
    for _ in 0..3 {
        assert!(ahead_of(&leases, &charge, 0).is_none());
    }
}

/// A lease is taken out (others have set a limit, or reset, or it had to make room), the key comes again, and what was taken out
/// can't be given back.
#[test]
fn what_cannot_go_back_is_not_spent_from_a_lease_that_was_never_granted() {
    let (leases, charge) = leased(8, 0);
    let rule = &charge.parts.first().rule;
    let freed = [Freed::Limit {
        filed_under: rule.limits.clone(),
        key: charge.parts.first().key.as_str().to_owned(),
    }];
    let rests = leases.take_of(&freed);
    assert_eq!(rests.len(), 1);
    assert!(
        ahead_of(&leases, &charge, 1).is_none(),
        "seen for the first time"
    );
    assert!(!leases.restore(&rests[0]));
    assert_eq!(
        spend(&leases, &charge, 2),
        None,
        "of a limit that is not in force"
    );
}
