//! Charges of several policies, of which some are known to be over.

use super::*;

fn other() -> Policy {
    Policy::fixed(100, 60).name("q")
}

/// Of a refusal whether each policy has room, as far as that is known.
fn told(refusals: &Refusals, charge: &Charge, millis: i64) -> Option<Vec<Option<bool>>> {
    let outcome = refusals.refuse(charge, at(millis))?;
    let told = outcome
        .found
        .iter()
        .map(|found| found.is_known.then_some(found.fits));
    Some(told.collect())
}

#[test]
fn what_one_policy_refuses_is_refused_whatever_other_keys_it_is_about() {
    let of = |user, cost| charge_of(&[(&policy(), &key(1)), (&other(), &key(user))], cost);
    let refusals = known(&of(2, 2));
    let cases = [
        (of(2, 2), vec![Some(false), Some(true)]),
        (of(2, 90), vec![Some(false), Some(true)]),
        // Its other policy refuses it too, and others have it.
        (of(2, 91), vec![Some(false), None]),
        (of(3, 2), vec![Some(false), None]),
        (charge(1, 2), vec![Some(false)]),
        (
            charge_of(&[(&other(), &key(2)), (&policy(), &key(1))], 2),
            vec![Some(true), Some(false)],
        ),
    ];
    for (charge, expected) in cases {
        assert_eq!(told(&refusals, &charge, 2_000), Some(expected));
    }
    assert_eq!(told(&refusals, &of(2, 1), 2_000), None, "a cheaper one");
    let elsewhere = charge_of(&[(&other(), &key(2))], 2);
    assert_eq!(told(&refusals, &elsewhere, 2_000), None);
    let asked = other().leases(false);
    let asked = charge_of(&[(&policy(), &key(1)), (&asked, &key(2))], 2);
    assert_eq!(told(&refusals, &asked, 2_000), None, "it asks each time");
}

/// It is asked once for each key, and tells the longest wait.
#[test]
fn of_one_key_all_policies_must_be_known() {
    let of = |cost| charge_of(&[(&policy(), &key(1)), (&other(), &key(1))], cost);
    let refusals = known(&charge(1, 2));
    assert_eq!(told(&refusals, &of(2), 2_000), None);
    refusals.note(&of(2), &answer(&of(2), 10, 1_500), &refusals.moment());
    let both = Some(vec![Some(false), Some(true)]);
    assert_eq!(told(&refusals, &of(2), 2_000), both);
    assert_eq!(told(&refusals, &of(90), 2_000), both);
    assert_eq!(told(&refusals, &of(101), 2_000), None, "both refuse it");
    refusals.note(&of(101), &answer(&of(101), 10, 1_500), &refusals.moment());
    let neither = Some(vec![Some(false), Some(false)]);
    assert_eq!(told(&refusals, &of(101), 2_000), neither);
    refusals.note(&of(2), &answer(&of(2), 10, 1_600), &refusals.moment());
    // From now on both costs are known.
    assert_eq!(told(&refusals, &of(2), 2_000), both);
    assert_eq!(told(&refusals, &of(101), 2_000), neither);
}

#[test]
fn all_policies_that_refuse_are_told_and_counted() {
    let strict = Policy::fixed(5, 60).name("r");
    let both = charge_of(&[(&policy(), &key(1)), (&strict, &key(2))], 2);
    let refusals = known(&both);
    let one = |millis| told(&refusals, &charge(1, 2), millis);
    assert_eq!(
        told(&refusals, &both, 2_000),
        Some(vec![Some(false), Some(false)])
    );
    assert_eq!(one(2_000), Some(vec![Some(false)]));
    let mut attempts: Vec<_> = refusals
        .take_attempts(at(2_000))
        .into_iter()
        .map(|attempts| (attempts.part.rule.counter.clone(), attempts.units))
        .collect();
    attempts.sort();
    let expected = [("p;fixed;60s", 4), ("r;fixed;60s", 2)];
    assert_eq!(attempts, expected.map(|(of, units)| (of.to_owned(), units)));
    // When one of them has room again, the other one still refuses.
    refusals.free(charge(1, 2).parts.first());
    assert_eq!(told(&refusals, &both, 2_000), Some(vec![None, Some(false)]));
    assert_eq!(one(2_000), None);
}

/// The store was asked by another charge, and has found room.
#[test]
fn room_that_a_refused_charge_finds_ends_what_was_known() {
    let refusals = known(&charge(1, 2));
    let strict = Policy::fixed(1, 60).name("r");
    let both = charge_of(&[(&policy(), &key(1)), (&strict, &key(2))], 2);
    refusals.note(&both, &answer(&both, 1, 1_500), &refusals.moment());
    assert_eq!(told(&refusals, &charge(1, 2), 2_000), None);
    let expected = vec![Some(true), Some(false)];
    assert_eq!(told(&refusals, &both, 2_000), Some(expected));
}

#[test]
fn another_counter_is_told_of_no_longer_than_that_is_true() {
    let short = Policy::fixed(100, 2).name("q");
    let both = charge_of(&[(&policy(), &key(1)), (&short, &key(2))], 2);
    let refusals = known(&both);
    for (millis, expected) in [(1_999, Some(true)), (2_000, None)] {
        let told = told(&refusals, &both, millis);
        assert_eq!(told, Some(vec![Some(false), expected]), "{millis}");
    }
}

/// Its refusals block the key, so the store must count them.
#[test]
fn a_policy_that_blocks_must_be_known_to_have_room_or_to_be_blocked() {
    let blocking = other().block_after(3, Duration::from_secs(600));
    let of = |user| charge_of(&[(&policy(), &key(1)), (&blocking, &key(user))], 2);
    let refusals = known(&of(2));
    assert_eq!(
        told(&refusals, &of(2), 2_000),
        Some(vec![Some(false), Some(true), None]),
        "its own refusals are not meant"
    );
    assert_eq!(told(&refusals, &of(3), 2_000), None);
    assert_eq!(refusals.take_attempts(at(2_000))[0].units, 2);
    let mut blocked = answer(&of(3), 10, 1_000);
    for found in blocked.found.iter_mut().skip(1) {
        found.blocked_until = Some(at(601_000));
        found.fits = false;
    }
    refusals.note(&of(3), &blocked, &refusals.moment());
    let expected = Some(vec![Some(false), Some(false), None]);
    assert_eq!(told(&refusals, &of(3), 2_000), expected);
}

fn third() -> Policy {
    Policy::fixed(100, 60).name("s")
}

/// One client that is over asks now here, now there.
#[test]
fn what_is_known_beside_a_refusal_outlasts_refusals_beside_other_policies() {
    let of = |beside: &Policy| charge_of(&[(&policy(), &key(1)), (beside, &key(1))], 2);
    let refusals = known(&of(&other()));
    let elsewhere = of(&third());
    assert_eq!(told(&refusals, &elsewhere, 2_000), None, "it is asked once");
    let outcome = answer(&elsewhere, 10, 1_500);
    refusals.note(&elsewhere, &outcome, &refusals.moment());
    let expected = Some(vec![Some(false), Some(true)]);
    for charge in [of(&other()), elsewhere] {
        assert_eq!(told(&refusals, &charge, 2_000), expected);
    }
}

/// Its refusals block the key, so it must be known of each client that it has room.
#[test]
fn clients_of_a_policy_that_blocks_are_known_beside_each_other() {
    let blocking = other().block_after(3, Duration::from_secs(600));
    let of = |user| charge_of(&[(&policy(), &key(1)), (&blocking, &key(user))], 2);
    let refusals = known(&of(2));
    refusals.note(&of(3), &answer(&of(3), 10, 1_500), &refusals.moment());
    for user in [2, 3] {
        let expected = Some(vec![Some(false), Some(true), None]);
        assert_eq!(told(&refusals, &of(user), 2_000), expected);
    }
}

#[test]
fn room_is_not_told_any_more_when_some_of_it_is_used() {
    let both = charge_of(&[(&policy(), &key(1)), (&other(), &key(1))], 2);
    let alone = charge_of(&[(&other(), &key(1))], 2);
    let uses: [&dyn Fn(&Refusals); 3] = [
        &|refusals| refusals.spent(&alone),
        &|refusals| refusals.note(&alone, &answer(&alone, 0, 1_500), &refusals.moment()),
        &|refusals| refusals.free(alone.parts.first()),
    ];
    for is_used in uses {
        let refusals = known(&both);
        is_used(&refusals);
        assert_eq!(told(&refusals, &both, 2_000), None, "it must be asked");
        assert!(is_refused(&refusals, &charge(1, 2), 2_000));
    }
    // And refuses for itself, when that has come to be known.
    let refusals = known(&both);
    refusals.note(&alone, &answer(&alone, 100, 1_500), &refusals.moment());
    let expected = Some(vec![Some(false), Some(false)]);
    assert_eq!(told(&refusals, &both, 2_000), expected);
}
