//! Charges of what was used already, and units that go back.

use std::cell::Cell;

use proptest::prelude::*;

use super::model::Model;
use super::properties::{policies, runner, with_limit};
use super::*;
use crate::limit::Algorithm;

pub fn what_was_used_already_is_charged_beyond_the_limit(subject: &Subject) {
    for policy in one_of_each(10) {
        let key = Key::new("forced", policy.as_name());
        assert!(subject.is_admitted(&policy, &key, 8), "{policy}");
        let forced = subject.force(&policy, &key, 50);
        assert!(forced.is_allowed(), "{policy}");
        assert_eq!((forced.used(), forced.remaining()), (58, 0), "{policy}");
        let refused = subject.charge(&policy, &key, 1);
        assert!(refused.is_denied(), "{policy}");
        let wait = i64::try_from(refused.retry_after().unwrap().as_millis()).unwrap();
        subject.at(wait - 1);
        assert!(subject.look(&policy, &key, 1).is_denied(), "{policy}");
        subject.at(wait);
        assert!(subject.is_admitted(&policy, &key, 1), "{policy}");
        subject.at(0);
    }
}

pub fn what_is_given_back_can_be_used_again(subject: &Subject) {
    for policy in one_of_each(3) {
        let key = Key::new("back", policy.as_name());
        assert!(subject.is_admitted(&policy, &key, 1), "{policy}");
        let charged = subject.charge(&policy, &key, 2);
        assert_eq!(charged.remaining(), 0, "{policy}");
        subject.give_back(&charged);
        let look = subject.look(&policy, &key, 1);
        assert_eq!((look.used(), look.remaining()), (1, 2), "{policy}");
        assert!(subject.is_admitted(&policy, &key, 2), "{policy}");
        assert!(!subject.is_admitted(&policy, &key, 1), "{policy}");
    }
}

pub fn what_is_given_back_twice_is_never_below_zero(subject: &Subject) {
    for policy in one_of_each(5) {
        let key = Key::new("twice", policy.as_name());
        let charged = subject.charge(&policy, &key, 2);
        subject.give_back(&charged);
        subject.give_back(&charged);
        assert_eq!(subject.look(&policy, &key, 1).used(), 0, "{policy}");
        assert!(subject.is_admitted(&policy, &key, 5), "{policy}");
        assert!(!subject.is_admitted(&policy, &key, 1), "{policy}");
    }
}

pub fn nothing_goes_back_to_another_window(subject: &Subject) {
    for policy in one_of_each(5) {
        let key = Key::new("window", policy.as_name());
        subject.at(0);
        let charged = subject.charge(&policy, &key, 4);
        // The windows of all but the calendar's are over, and nothing of the charge counts any more.
        let later = if policy.algorithm() == Algorithm::CalendarHour {
            3_600_000
        } else {
            120_000
        };
        subject.at(later);
        assert!(subject.is_admitted(&policy, &key, 5), "{policy}");
        subject.give_back(&charged);
        assert_eq!(subject.look(&policy, &key, 1).used(), 5, "{policy}");
    }
    subject.at(0);
}

pub fn nothing_goes_back_to_a_key_that_was_reset(subject: &Subject) {
    for policy in one_of_each(5) {
        let key = Key::new("reset", policy.as_name());
        let charged = subject.charge(&policy, &key, 3);
        subject.reset(&policy, &key, false);
        // An event has no epoch: it is another one in the next millisecond.
        subject.clock.advance(Duration::from_millis(1));
        assert!(subject.is_admitted(&policy, &key, 5), "{policy}");
        subject.give_back(&charged);
        assert_eq!(subject.look(&policy, &key, 1).used(), 5, "{policy}");
    }
}

pub fn a_bucket_takes_back_no_more_than_is_still_there(subject: &Subject) {
    let policy = Policy::token_bucket(60, 60).burst(10);
    let key = alice();
    let charged = subject.charge(&policy, &key, 10);
    subject.at(4_000);
    assert!(subject.is_admitted(&policy, &key, 4));
    subject.give_back(&charged);
    // Four of the ten had drained.
    assert_eq!(subject.look(&policy, &key, 1).used(), 4);
}

/// Of an exact sliding window an event has no epoch.
pub fn nothing_goes_back_to_a_key_that_was_reset_in_the_same_millisecond(subject: &Subject) {
    let policies = one_of_each(5).into_iter();
    for policy in policies.filter(|policy| policy.algorithm() != Algorithm::SlidingWindow) {
        let key = Key::new("at once", policy.as_name());
        let charged = subject.charge(&policy, &key, 3);
        subject.reset(&policy, &key, false);
        assert!(subject.is_admitted(&policy, &key, 4), "{policy}");
        subject.give_back(&charged);
        assert_eq!(subject.look(&policy, &key, 1).used(), 4, "{policy}");
    }
}

pub fn a_bucket_takes_nothing_back_from_ahead_of_a_clock_that_stepped_back(subject: &Subject) {
    let policy = Policy::token_bucket(60, 60);
    let key = alice();
    subject.at(1_000_000);
    let drained = subject.charge(&policy, &key, 60);
    subject.at(1_060_000);
    assert!(subject.is_admitted(&policy, &key, 60));
    for is_moved in [false, true] {
        subject.at(0);
        if is_moved {
            assert!(!subject.is_admitted(&policy, &key, 1));
        }
        subject.give_back(&drained);
        assert_eq!(subject.look(&policy, &key, 1).used(), 60);
    }
}

pub fn what_was_reset_stays_until_it_expires_and_no_longer(subject: &Subject) {
    for policy in [
        Policy::fixed(5, 60),
        Policy::sliding_counter(5, 60),
        Policy::token_bucket(5, 60),
    ] {
        subject.at(0);
        assert!(subject.is_admitted(&policy, &alice(), 3), "{policy}");
        subject.reset(&policy, &alice(), false);
        subject.sweeps(0);
        subject.at(600_000);
        subject.sweeps(1);
    }
}

/// Charges and refunds at random: what is admitted then is what would be if the refunded charges had never been. A bucket may be
/// stricter, since it does not know what of its usage has drained.
pub fn giving_back_is_as_if_it_had_never_been_charged(subject: &Subject) {
    let case = Cell::new(3_000);
    let kinds = policies(0).len();
    let steps = |longest_wait: i64| {
        let wait = prop_oneof![Just(0), 0..longest_wait];
        let refund = proptest::option::weighted(0.4, any::<prop::sample::Index>());
        proptest::collection::vec((wait, 0..2_u8, 1..4_u32, refund), 1..50)
    };
    let input = (0..kinds).prop_flat_map(|kind| (Just(kind), steps(policies(0)[kind].1)));
    let result = runner(60).run(&input, |(kind, steps)| {
        case.set(case.get() + 1);
        let (policy, _) = policies(case.get()).swap_remove(kind);
        let policy = with_limit(&policy, 6);
        let mut model = Model::default();
        let mut charges: Vec<(u8, i64, Verdict)> = Vec::new();
        let mut now = 0;
        for (wait, key, cost, refund) in steps {
            now += wait;
            subject.at(now);
            if let Some(index) = refund
                && !charges.is_empty()
            {
                let (key, at, verdict) = charges.swap_remove(index.index(charges.len()));
                subject.give_back(&verdict);
                model.give_back(&policy, key, at, verdict.cost());
            }
            let expected = model.fits(&policy, key, NOON + now, cost);
            let verdict = subject.charge(&policy, &Key::new("user", key), cost);
            if policy.algorithm() == Algorithm::TokenBucket {
                prop_assert!(expected || verdict.is_denied(), "{} at {}", policy, now);
            } else {
                prop_assert_eq!(verdict.is_allowed(), expected, "{} at {}", policy, now);
            }
            if verdict.is_allowed() {
                model.take(&policy, key, NOON + now, cost);
                charges.push((key, NOON + now, verdict));
            }
        }
        Ok(())
    });
    result.unwrap();
}
