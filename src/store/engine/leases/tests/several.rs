//! Leases of several policies at once, and of sliding counters.

use super::*;
use crate::limit::algorithm::Found;
use crate::limit::algorithm::sliding_counter::Pair;
use crate::limit::few::Few;
use crate::store::Outcome;

/// A charge of a key under two policies.
fn of_both(cost: u32) -> Charge {
    let (burst, quota) = (Policy::fixed(10, 1).name("burst"), Policy::daily(1_000));
    let key = Key::new("user", "a");
    charge_of(&[(&burst, &key), (&quota, &key)], cost)
}

/// Leases with one of each part of a charge, of as many units as are given for it.
fn leased_both(burst: u32, quota: u32, used: u64) -> (Leases, Charge) {
    let (leases, charge) = (Leases::default(), of_both(1));
    assert_eq!(leases.ahead_of(&charge, at(0)).count(), 0);
    let ahead: Vec<_> = leases.ahead_of(&charge, at(0)).collect();
    for (ahead, units) in ahead.iter().zip([burst, quota]) {
        leases.install(ahead, Some(&grant(ahead, units, used, 0)));
    }
    (leases, charge)
}

fn spend_both(leases: &Leases, charge: &Charge, millis: i64) -> Option<[u64; 2]> {
    let spent = leases.spend(charge, at(millis), |_| {})?;
    let used: Vec<_> = spent
        .found
        .iter()
        .map(|found| found.state.window().unwrap().used)
        .collect();
    Some([used[0], used[1]])
}

#[test]
fn of_several_policies_all_are_spent_or_none() {
    let (leases, charge) = leased_both(2, 5, 5);
    assert_eq!(spend_both(&leases, &charge, 0), Some([4, 1]));
    assert_eq!(spend_both(&leases, &charge, 999), Some([5, 2]));
    assert_eq!(spend_both(&leases, &charge, 999), None);
    assert_eq!(spend_both(&leases, &charge, 1_000), None);
    let left: Vec<_> = leases.take_all().iter().map(|back| back.units).collect();
    assert_eq!(left, [3]);
}

#[test]
fn what_covers_a_charge_of_several_policies_stays_while_there_is_room_beside_it() {
    let (leases, charge) = leased_both(1, 5, 5);
    assert!(spend_both(&leases, &charge, 0).is_some());
    let charges = [of_both(1), of_both(1)];
    assert!(leases.rests_before(&charges, at(0)).is_empty());
    // It is of the next window that more is to be asked for, and not of the day.
    let ahead: Vec<_> = leases.ahead_of(&charge, at(1_000)).collect();
    assert_eq!(ahead.len(), 1);
    assert_eq!(ahead[0].part.rule.policy.as_name(), "burst");
    let (leases, _) = leased_both(0, 5, 999);
    let rests = leases.rests_before(&charges, at(0));
    assert_eq!(rests.len(), 1, "one unit for two charges");
    assert_eq!(rests[0].units, 5);
}

#[test]
fn what_a_charge_of_several_policies_is_told_leaves_out_what_is_not_spent() {
    let (leases, charge) = leased_both(0, 5, 5);
    let found = |used| Found::new(true, State::Window(usage(used)));
    let mut outcome = Outcome {
        at: at(0),
        found: Few::collect([found(7), found(17)]).unwrap(),
    };
    leases.take_in(&charge, &mut outcome);
    let used = outcome
        .found
        .map(|found| found.state.window().unwrap().used);
    assert_eq!(used, Few::collect([7, 12]).unwrap());
    let quota = charge.parts.get_or_first(1);
    let one = Charge::new(Few::one(quota.clone()), 1);
    assert_eq!(spend(&leases, &one, 0), Some(13), "as it was told last");
}

#[test]
fn counters_that_refuse_while_units_of_them_are_leased_are_asked_once_more() {
    let (leases, charge) = leased_both(0, 5, 5);
    let found = |fits| Found::new(fits, State::Window(usage(1_000)));
    let of = |burst, quota| {
        Ok(Outcome {
            at: at(0),
            found: Few::collect([found(burst), found(quota)]).unwrap(),
        })
    };
    let answers = [
        of(false, true),
        of(true, false),
        of(true, true),
        of(false, false),
    ];
    let charges = vec![charge; 4];
    let (places, rests) = leases.rests_behind(&charges, &answers);
    assert_eq!((places, rests.len(), rests[0].units), (vec![1, 3], 1, 5));
    assert!(leases.rests_behind(&charges, &answers).0.is_empty(), "once");
}

/// The quota is leased, the burst refuses, and the client goes on asking.
#[test]
fn what_another_policy_keeps_from_being_spent_is_idle() {
    let (burst, quota) = (Policy::fixed(10, 60).name("burst"), Policy::daily(1_000));
    let key = Key::new("user", "a");
    let charge = charge_of(&[(&quota, &key), (&burst, &key)], 1);
    let leases = Leases::default();
    assert_eq!(leases.ahead_of(&charge, at(0)).count(), 0);
    let ahead: Vec<_> = leases.ahead_of(&charge, at(0)).collect();
    leases.install(&ahead[0], Some(&grant(&ahead[0], 100, 100, 0)));
    leases.install(&ahead[1], Some(&grant(&ahead[1], 0, 10, 0)));
    let mut idle = 0;
    for second in 1..30 {
        assert!(spend_both(&leases, &charge, second * 1_000).is_none());
        let rests = leases.take_idle(at(second * 1_000), 1_000);
        idle += rests.iter().map(|back| back.units).sum::<u32>();
    }
    assert_eq!(idle, 100, "given back within 3.5 s");
}

/// Leases with one of a sliding counter.
fn leased_pair(units: u32, before: u64, millis: i64) -> (Leases, Charge) {
    let policy = Policy::sliding_counter(1_000, 60).name("p");
    let charge = charge_of(&[(&policy, &Key::new("user", "a"))], 1);
    let leases = Leases::default();
    assert!(ahead_of(&leases, &charge, millis).is_none());
    install_pair(&leases, &charge, [before, u64::from(units)], units, millis);
    (leases, charge)
}

fn install_pair(
    leases: &Leases,
    charge: &Charge,
    used: [u64; 2],
    units: u32,
    millis: i64,
) -> Option<GiveBack> {
    let ahead = ahead_of(leases, charge, millis).unwrap();
    let state = State::Pair(Pair {
        previous: usage(used[0]),
        current: usage(used[1]),
    });
    let grant = Grant {
        state,
        ..grant(&ahead, units, 0, millis)
    };
    leases.install(&ahead, Some(&grant))
}

#[test]
fn a_sliding_counter_is_spent_in_its_own_window_and_tells_both() {
    let (leases, charge) = leased_pair(4, 40, 60_000);
    let spent = leases.spend(&charge, at(90_000), |_| {}).unwrap();
    let state = spent.found.first().state;
    assert_eq!(state.used(charge.parts.first().policy(), at(90_000)), 21);
    assert!(leases.spend(&charge, at(120_000), |_| {}).is_none());
}

#[test]
fn what_is_left_of_a_sliding_counter_goes_back_when_its_window_is_over() {
    let (leases, charge) = leased_pair(4, 0, 60_000);
    let rest = leases.rests_before(std::slice::from_ref(&charge), at(120_000));
    assert_eq!((rest.len(), rest[0].units), (1, 4));
    let (leases, charge) = leased_pair(4, 0, 119_000);
    let rest = install_pair(&leases, &charge, [4, 2], 2, 120_000).unwrap();
    let of_before = Taken::Window {
        start: at(60_000),
        epoch: 0,
    };
    assert_eq!((rest.units, rest.from), (4, of_before));
}

/// How many of 64 keys that come all the time are still leased after a flood of keys that come once, of which each is charged,
/// refused or not, as the writer does.
fn busy_after_a_flood(policies: &[Policy]) -> usize {
    let of = |name: String| {
        let key = Key::new("user", name);
        let parts: Vec<_> = policies.iter().map(|policy| (policy, &key)).collect();
        charge_of(&parts, 1)
    };
    let leases = Leases::default();
    leases.set_max_keys(1_600 * policies.len());
    let busy: Vec<_> = (0..64).map(|n| of(format!("busy{n}"))).collect();
    for charge in &busy {
        assert_eq!(leases.ahead_of(charge, at(0)).count(), 0);
        let ahead: Vec<_> = leases.ahead_of(charge, at(0)).collect();
        for ahead in &ahead {
            leases.install(ahead, Some(&grant(ahead, 1_000_000, 1_000_000, 0)));
        }
    }
    for n in 0..40_000 {
        let charge = of(format!("once{n}"));
        assert!(leases.spend(&charge, at(0), |_| {}).is_none());
        assert!(
            leases
                .rests_before(std::slice::from_ref(&charge), at(0))
                .is_empty()
        );
        assert_eq!(leases.ahead_of(&charge, at(0)).count(), 0);
        let found = charge
            .parts
            .map(|_| Found::new(true, State::Window(usage(1))));
        leases.take_in(&charge, &mut Outcome { at: at(0), found });
        // Each busy key comes once for 1,280 others.
        if n % 20 == 0 {
            let _ = leases.spend(&busy[n / 20 % 64], at(0), |_| {});
        }
    }
    let kept = |charge: &&Charge| leases.spend(charge, at(0), |_| {}).is_some();
    busy.iter().filter(kept).count()
}

#[test]
fn keys_that_come_once_do_not_drive_out_busy_ones_under_any_number_of_policies() {
    let policies = [
        Policy::fixed(10_000_000, 60).name("a"),
        Policy::daily(10_000_000).name("b"),
    ];
    let kept = [&policies[..1], &policies[..]].map(busy_after_a_flood);
    assert!(kept.iter().all(|kept| *kept > 56), "{kept:?} of 64");
}
