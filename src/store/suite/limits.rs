//! Limits that are set at run time.

use std::cell::Cell;

use proptest::prelude::*;

use super::model::Model;
use super::properties::{policies, runner};
use super::*;
use crate::limit::{Algorithm, InForce, Limit, StoredLimit};
use crate::store::{LimitsAsk, NewLimit, SetLimit, Which};

const MINUTE: Duration = Duration::from_secs(60);

impl Subject {
    /// Sets a limit, or removes it, as of the clock.
    pub(super) fn set_limit(
        &self,
        policy: &Policy,
        key: Option<&Key>,
        limit: Option<Limit>,
    ) -> bool {
        let now = self.clock.now();
        let set = SetLimit {
            filed_under: policy.as_name().to_owned(),
            key: key.cloned(),
            limit: limit.map(|limit| NewLimit {
                units: limit.units(),
                ends_at: limit.end(now),
            }),
            now,
        };
        self.runtime.block_on(self.store.set_limit(set)).unwrap()
    }

    fn limits(&self, policy: &Policy, which: Which) -> Vec<StoredLimit> {
        let ask = LimitsAsk {
            filed_under: policy.as_name().to_owned(),
            which,
            now: self.clock.now(),
        };
        self.runtime.block_on(self.store.limits(ask)).unwrap()
    }
}

pub fn a_limit_that_is_set_holds_from_the_next_charge_on(subject: &Subject) {
    for policy in &one_of_each(3) {
        let (key, other) = (alice(), Key::new("user", "bob"));
        assert!(subject.is_admitted(policy, &key, 3), "{policy}");
        assert!(!subject.set_limit(policy, Some(&key), Some(Limit::of(5))));
        let raised = subject.charge(policy, &key, 1);
        assert_eq!((raised.is_allowed(), raised.used()), (true, 4), "{policy}");
        assert_eq!((raised.policy().limit(), raised.remaining()), (5, 1));
        assert_eq!(raised.stored_limit(), Some(Limit::of(5)));
        // Below what is used nothing is left, and never less than nothing.
        assert!(subject.set_limit(policy, Some(&key), Some(Limit::of(2))));
        let lowered = subject.charge(policy, &key, 1);
        assert_eq!((lowered.is_denied(), lowered.used()), (true, 4), "{policy}");
        assert_eq!((lowered.policy().limit(), lowered.remaining()), (2, 0));
        assert_eq!(subject.look(policy, &key, 1).policy().limit(), 2);
        let untouched = subject.charge(policy, &other, 1);
        assert_eq!((untouched.remaining(), untouched.stored_limit()), (2, None));
        assert!(subject.set_limit(policy, Some(&key), None));
        assert!(!subject.set_limit(policy, Some(&key), None), "it is gone");
        assert_eq!(subject.look(policy, &key, 1).policy(), policy);
    }
}

pub fn a_blocked_key_and_an_exempt_one_are_the_two_ends(subject: &Subject) {
    for policy in &one_of_each(2) {
        let (blocked, exempt) = (Key::new("user", "bad"), Key::new("user", "good"));
        assert!(subject.is_admitted(policy, &exempt, 2), "{policy}");
        assert!(!subject.is_admitted(policy, &exempt, 1), "{policy}");
        subject.set_limit(policy, Some(&blocked), Some(Limit::BLOCKED));
        subject.set_limit(policy, Some(&exempt), Some(Limit::EXEMPT));
        let refused = subject.charge(policy, &blocked, 1);
        assert_eq!((refused.is_denied(), refused.retry_after()), (true, None));
        assert!(subject.look(policy, &blocked, 1).is_denied(), "{policy}");
        for cost in [1, 100, u32::MAX] {
            let passed = subject.charge(policy, &exempt, cost);
            assert!(passed.is_allowed(), "{policy}: {cost}");
            assert_eq!(passed.remaining(), u32::MAX);
            assert_eq!(passed.stored_limit(), Some(Limit::EXEMPT));
        }
        let used = subject.look(policy, &exempt, 1).used();
        assert_eq!(
            used,
            103 + u64::from(u32::MAX),
            "{policy}: it is counted all the same"
        );
        subject.set_limit(policy, Some(&exempt), None);
        assert!(!subject.is_admitted(policy, &exempt, 1), "{policy}");
        subject.set_limit(policy, Some(&blocked), None);
        assert!(subject.is_admitted(policy, &blocked, 2), "{policy}");
    }
}

pub fn an_exempt_key_passes_a_block(subject: &Subject) {
    for policy in &one_of_each(1).map(|policy| policy.block_for(10 * MINUTE)) {
        let key = alice();
        assert!(subject.is_admitted(policy, &key, 1), "{policy}");
        assert!(subject.charge(policy, &key, 1).blocked_for().is_some());
        subject.set_limit(policy, Some(&key), Some(Limit::EXEMPT));
        let passed = subject.charge(policy, &key, 1);
        assert_eq!(
            (passed.is_allowed(), passed.blocked_for()),
            (true, None),
            "{policy}"
        );
        subject.set_limit(policy, Some(&key), None);
    }
}

pub fn the_limit_of_a_policy_is_for_keys_without_their_own(subject: &Subject) {
    for policy in &one_of_each(3) {
        let (own, other) = (alice(), Key::new("user", "bob"));
        subject.set_limit(policy, None, Some(Limit::of(7)));
        subject.set_limit(policy, Some(&own), Some(Limit::of(1)));
        assert_eq!(subject.charge(policy, &other, 1).remaining(), 6, "{policy}");
        assert_eq!(subject.charge(policy, &own, 1).remaining(), 0, "{policy}");
        subject.set_limit(policy, Some(&own), None);
        assert_eq!(subject.charge(policy, &own, 1).remaining(), 5, "{policy}");
        assert!(subject.set_limit(policy, None, None));
        assert_eq!(subject.charge(policy, &other, 1).remaining(), 1, "{policy}");
    }
}

pub fn a_limit_ends_when_it_says(subject: &Subject) {
    for policy in &one_of_each(2) {
        subject.at(0);
        let key = alice();
        let hour = Duration::from_hours(1);
        subject.set_limit(policy, Some(&key), Some(Limit::BLOCKED.ends_after(hour)));
        let refused = subject.charge(policy, &key, 1);
        assert_eq!(refused.retry_after(), Some(hour), "{policy}");
        subject.at(3_599_999);
        let wait = Some(Duration::from_millis(1));
        assert_eq!(
            subject.charge(policy, &key, 1).retry_after(),
            wait,
            "{policy}"
        );
        assert_eq!(
            subject.limits(policy, Which::Of(Some(key.clone()))).len(),
            1
        );
        subject.at(3_600_000);
        let passed = subject.charge(policy, &key, 1);
        assert_eq!(
            (passed.remaining(), passed.stored_limit()),
            (1, None),
            "{policy}"
        );
        assert_eq!(subject.limits(policy, Which::Of(Some(key.clone()))), []);
        assert!(!subject.set_limit(policy, Some(&key), None), "it was over");
    }
}

pub fn a_wait_outlasts_a_block_and_what_it_leaves(subject: &Subject) {
    let policy = Policy::sliding(2, 60).name("both");
    let key = alice();
    assert!(subject.is_admitted(&policy, &key, 1));
    subject.at(30_000);
    assert!(subject.is_admitted(&policy, &key, 1));
    let ends_after = |seconds| Limit::BLOCKED.ends_after(Duration::from_secs(seconds));
    for (seconds, wait) in [(10, 30), (40, 40)] {
        subject.set_limit(&policy, Some(&key), Some(ends_after(seconds)));
        let wait = Some(Duration::from_secs(wait));
        assert_eq!(subject.charge(&policy, &key, 1).retry_after(), wait);
        assert_eq!(subject.look(&policy, &key, 1).retry_after(), wait);
    }
}

pub fn limits_of_several_policies_are_told_apart(subject: &Subject) {
    let (calls, bytes) = (minute("calls", 5), Policy::sliding(5, 60).name("bytes"));
    let key = alice();
    subject.set_limit(&bytes, Some(&key), Some(Limit::of(1)));
    let decision = subject.charge_all(&[(&calls, &key), (&bytes, &key)], 1);
    let limits: Vec<_> = decision
        .verdicts()
        .map(|verdict| verdict.policy().limit())
        .collect();
    assert_eq!(limits, [5, 1]);
    let refused = subject.charge_all(&[(&calls, &key), (&bytes, &key)], 1);
    assert!(refused.is_denied());
    assert_eq!(subject.look(&calls, &key, 1).used(), 1, "all or nothing");
}

pub fn a_limit_outlasts_a_change_of_the_window(subject: &Subject) {
    let key = alice();
    subject.set_limit(&minute("api", 5), Some(&key), Some(Limit::BLOCKED));
    for policy in [
        Policy::fixed(9, 3_600),
        Policy::sliding(9, 60),
        Policy::daily(9),
    ] {
        let policy = policy.name("api");
        assert!(subject.charge(&policy, &key, 1).is_denied(), "{policy}");
    }
    let other = minute("api2", 5);
    assert!(subject.is_admitted(&other, &key, 1), "it is another name");
}

pub fn limits_are_listed_a_page_at_a_time(subject: &Subject) {
    let policy = minute("listed", 5);
    let key = |n: u32| Key::new("user", format!("{n:02}|%"));
    subject.set_limit(&policy, None, Some(Limit::of(9)));
    for n in 0..25 {
        let limit = if n == 24 { Limit::EXEMPT } else { Limit::of(n) };
        subject.set_limit(&policy, Some(&key(n)), Some(limit));
    }
    let ended = Limit::of(1).ends_after(Duration::from_millis(1));
    subject.set_limit(&policy, Some(&Key::new("user", "03")), Some(ended));
    subject.set_limit(&minute("other", 5), Some(&key(99)), Some(Limit::of(1)));
    subject.at(1);
    let mut all: Vec<StoredLimit> = Vec::new();
    loop {
        let after = all.last().and_then(|stored| stored.key().cloned());
        let page = subject.limits(&policy, Which::Keys { after, most: 10 });
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 10);
        all.extend(page);
    }
    let expected = (0..25).map(|n| {
        let limit = if n == 24 { Limit::EXEMPT } else { Limit::of(n) };
        StoredLimit::new(Some(key(n)), limit, None)
    });
    assert_eq!(all, expected.collect::<Vec<_>>());
    let own = subject.limits(&policy, Which::Of(None));
    assert_eq!(own, [StoredLimit::new(None, Limit::of(9), None)]);
    let ends_at = subject.clock.now().saturating_add(MINUTE);
    subject.set_limit(
        &policy,
        Some(&key(3)),
        Some(Limit::BLOCKED.ends_at(ends_at)),
    );
    let of_key = subject.limits(&policy, Which::Of(Some(key(3))));
    assert_eq!(of_key[0].ends_at(), Some(ends_at));
    assert!(of_key[0].limit().is_blocked());
}

pub fn a_sweep_deletes_limits_that_have_ended_and_no_others(subject: &Subject) {
    let policy = minute("swept", 5);
    let (short, long, endless) = (Key::new("k", 1), Key::new("k", 2), Key::new("k", 3));
    let limit = |millis| Some(Limit::of(1).ends_after(Duration::from_millis(millis)));
    subject.set_limit(&policy, Some(&short), limit(10));
    subject.set_limit(&policy, Some(&long), limit(11));
    subject.set_limit(&policy, Some(&endless), Some(Limit::of(1)));
    subject.at(10);
    subject.sweep();
    // An earlier instant would find it, were it still there.
    subject.at(0);
    let all = Which::Keys {
        after: None,
        most: 10,
    };
    let keys: Vec<_> = subject
        .limits(&policy, all)
        .into_iter()
        .map(|limit| limit.key().cloned())
        .collect();
    assert_eq!(keys, [Some(long), Some(endless)]);
}

pub fn a_reset_leaves_limits(subject: &Subject) {
    let policy = minute("reset", 5);
    subject.set_limit(&policy, Some(&alice()), Some(Limit::of(1)));
    assert!(subject.is_admitted(&policy, &alice(), 1));
    assert_eq!(subject.reset(&policy, &alice(), true), 1);
    assert_eq!(subject.charge(&policy, &alice(), 1).remaining(), 0);
}

/// One step: the milliseconds since the one before, the cost, what is set of whom, and until when.
type Step = (i64, u32, Option<(bool, Option<Option<u32>>, Option<u64>)>);

fn steps(longest_wait: i64) -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![Just(0), 0..longest_wait];
    let units = prop_oneof![4 => (0..9_u32).prop_map(Some), 1 => Just(None)];
    let lasts = proptest::option::of(1..u64::try_from(3 * longest_wait).unwrap());
    let set = (any::<bool>(), proptest::option::of(units), lasts);
    proptest::collection::vec((wait, 1..4_u32, proptest::option::of(set)), 1..40)
}

/// A key under a limit that is set decides like a policy of that limit; and a wait that is told is never too short.
pub fn limits_that_are_set_decide_like_a_model(subject: &Subject) {
    let case = Cell::new(1_000);
    let kinds = policies(0).len();
    let input = (0..kinds).prop_flat_map(|kind| (Just(kind), steps(policies(0)[kind].1)));
    let result = runner(60).run(&input, |(kind, steps)| {
        case.set(case.get() + 1);
        let (policy, _) = policies(case.get()).swap_remove(kind);
        // Another rate would make the past of a bucket another one too.
        prop_assume!(policy.algorithm() != Algorithm::TokenBucket);
        let mut model = Model::default();
        let (mut of_key, mut of_all) = (None, None);
        let key = alice();
        let mut now = 0;
        for (wait, cost, set) in steps {
            now += wait;
            let at = subject.at(now).clock.now();
            if let Some((is_own, units, lasts)) = set {
                let limit = units.map(|units| {
                    let limit = Limit::of_stored(units);
                    lasts.map_or(limit, |lasts| {
                        limit.ends_after(Duration::from_millis(lasts))
                    })
                });
                subject.set_limit(&policy, is_own.then_some(&key), limit);
                let stored = limit.map(|limit| StoredLimit::new(None, limit, limit.end(at)));
                *if is_own { &mut of_key } else { &mut of_all } = stored;
            }
            let in_force = |at| InForce::of(of_key.as_ref(), of_all.as_ref(), policy.limit(), at);
            let limited = policy.with_limit(in_force(at));
            let expected = limited.is_exempt() || model.fits(&limited, 0, NOON + now, cost);
            let look = subject.look(&policy, &key, cost);
            let verdict = subject.charge(&policy, &key, cost);
            prop_assert_eq!(verdict.is_allowed(), expected, "{} at {}", &limited, now);
            prop_assert_eq!(look.is_allowed(), expected);
            prop_assert_eq!(look.retry_after(), verdict.retry_after());
            prop_assert_eq!(verdict.policy().limit(), limited.limit());
            prop_assert!(verdict.remaining() <= limited.limit());
            if expected {
                model.take(&policy, 0, NOON + now, cost);
                continue;
            }
            let Some(wait) = verdict.retry_after() else {
                prop_assert!(cost > limited.limit() || limited.until().is_some());
                continue;
            };
            let wait = i64::try_from(wait.as_millis()).unwrap();
            subject.at(now + wait);
            // Two limits that end one after the other are beyond what is told.
            let next = limited.until().and_then(|(end, _)| in_force(end));
            let is_told = next.is_none_or(|next| next.until.is_none());
            if is_told {
                let look = subject.look(&policy, &key, cost);
                prop_assert!(look.is_allowed(), "{} after {}", &limited, wait);
            }
            if limited.until().is_none() {
                subject.at(now + wait - 1);
                let look = subject.look(&policy, &key, cost);
                prop_assert!(look.is_denied(), "{} before {}", &limited, wait);
            }
        }
        Ok(())
    });
    result.unwrap();
}
