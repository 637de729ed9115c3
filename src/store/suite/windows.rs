//! Fixed windows, resets, sweeps: what every store does for the simplest policy.

use super::*;

pub fn exactly_the_limit_passes_of_many_tasks(subject: &Subject) {
    for policy in one_of_each(10) {
        let admitted = subject.runtime.block_on(async {
            let tasks: Vec<_> = (0..200)
                .map(|_| {
                    let store = subject.store.clone();
                    let charge = charge_of(&[(&policy, &alice())], 1);
                    tokio::spawn(async move { store.charge(&charge).await })
                })
                .collect();
            let mut admitted = 0;
            for task in tasks {
                admitted += usize::from(task.await.unwrap().unwrap().is_admitted());
            }
            admitted
        });
        assert_eq!(admitted, 10, "{policy}");
        assert_eq!(subject.look(&policy, &alice(), 1).used(), 10, "{policy}");
    }
    let usage = subject.usage(&one_of_each(10)[0], &alice());
    assert_eq!((usage.used, usage.denied), (10, 190));
}

pub fn a_refused_cost_leaves_what_is_left(subject: &Subject) {
    for policy in one_of_each(10) {
        for used in 1..=8 {
            assert_eq!(subject.charge(&policy, &alice(), 1).used(), used);
        }
        assert!(!subject.is_admitted(&policy, &alice(), 5), "{policy}");
        assert!(subject.is_admitted(&policy, &alice(), 1), "{policy}");
        assert!(subject.is_admitted(&policy, &alice(), 1), "{policy}");
        let last = subject.charge(&policy, &alice(), 1);
        assert!(last.is_denied(), "{policy}");
        assert_eq!(last.used(), 10, "{policy}");
    }
    let usage = subject.usage(&one_of_each(10)[0], &alice());
    assert_eq!((usage.used, usage.denied), (10, 6));
}

pub fn looking_uses_nothing_and_creates_nothing(subject: &Subject) {
    for policy in one_of_each(5) {
        for _ in 0..3 {
            let look = subject.look(&policy, &alice(), 1);
            assert_eq!((look.used(), look.is_allowed()), (0, true), "{policy}");
        }
    }
    subject.clock.advance(Duration::from_hours(10));
    assert_eq!(subject.sweep(), 0, "there is no row to sweep");
}

pub fn counters_and_keys_do_not_touch_each_other(subject: &Subject) {
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
    let mut replies = Vec::new();
    for policy in one_of_each(1) {
        for name in ["p", "q", "P"] {
            let policy = policy.clone().name(name);
            let charge = |key| subject.store.charge(&charge_of(&[(&policy, key)], 1));
            replies.extend(keys.iter().map(charge));
        }
    }
    for answer in subject.answers(replies) {
        assert!(answer.unwrap().is_admitted());
    }
}

pub fn a_window_ends_at_its_boundary(subject: &Subject) {
    let policy = minute("p", 1);
    assert!(subject.is_admitted(&policy, &alice(), 1));
    subject.at(59_999);
    assert!(!subject.is_admitted(&policy, &alice(), 1));
    subject.at(60_000);
    assert!(subject.is_admitted(&policy, &alice(), 1));
    assert_eq!(subject.usage(&policy, &alice()).denied, 0);
}

pub fn a_changed_limit_keeps_what_was_used(subject: &Subject) {
    for (hundred, two_hundred, fifty) in one_of_each(100)
        .into_iter()
        .zip(one_of_each(200))
        .zip(one_of_each(50))
        .map(|((hundred, two_hundred), fifty)| (hundred, two_hundred, fifty))
    {
        assert!(subject.is_admitted(&hundred, &alice(), 80), "{hundred}");
        let look = subject.look(&two_hundred, &alice(), 1);
        assert_eq!(look.remaining(), 120, "{hundred}");
        assert!(
            subject.is_admitted(&two_hundred, &alice(), 120),
            "{hundred}"
        );
        let lowered = subject.charge(&fifty, &alice(), 1);
        assert!(lowered.is_denied(), "{hundred}");
        assert_eq!((lowered.used(), lowered.remaining()), (200, 0), "{hundred}");
    }
}

pub fn extremes_are_refused_or_saturate(subject: &Subject) {
    let longest = Duration::from_hours(10 * 366 * 24);
    let of = |limit| {
        [
            Policy::try_fixed(limit, longest).unwrap().name("fixed"),
            Policy::try_sliding(limit, longest).unwrap().name("sliding"),
            Policy::try_sliding_counter(limit, longest)
                .unwrap()
                .name("counter"),
            Policy::try_token_bucket(limit, longest)
                .unwrap()
                .name("bucket"),
            Policy::monthly(limit).name("monthly"),
        ]
    };
    for policy in of(u32::MAX) {
        assert!(subject.is_admitted(&policy, &alice(), u32::MAX), "{policy}");
        assert!(!subject.is_admitted(&policy, &alice(), 1), "{policy}");
        for _ in 0..3 {
            assert!(
                !subject.is_admitted(&policy, &alice(), u32::MAX),
                "{policy}"
            );
        }
    }
    for policy in of(0) {
        let refused = subject.charge(&policy, &Key::new("user", "bob"), 1);
        assert!(refused.is_denied(), "{policy}");
        assert_eq!(refused.retry_after(), None, "{policy}");
    }
    for millis in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX] {
        subject.clock.set(Timestamp::from_unix_millis(millis));
        for policy in of(1) {
            let key = Key::new("at", millis);
            let at = format!("{policy} at {millis}");
            assert!(subject.is_admitted(&policy, &key, 1), "{at}");
            assert!(!subject.is_admitted(&policy, &key, 1), "{at}");
            let _ = subject.look(&policy, &key, 1).reset_after();
        }
    }
}

pub fn a_reset_is_seen_by_the_next_charge(subject: &Subject) {
    for policy in one_of_each(3) {
        let (one, other) = (policy.clone().name("p"), policy.name("q"));
        for policy in [&one, &other] {
            subject.charge(policy, &alice(), 3);
            subject.charge(policy, &alice(), 1);
        }
        let epoch = subject.epoch(&one, &alice());
        assert_eq!(subject.reset(&one, &alice(), false), 3, "{one}");
        let epoch_after = subject.epoch(&one, &alice());
        assert_eq!(epoch_after, epoch.map(|epoch| epoch + 1), "{one}");
        assert_eq!(subject.look(&one, &alice(), 1).attempts(), 0, "{one}");
        assert!(subject.is_admitted(&one, &alice(), 3), "{one}");
        assert!(!subject.is_admitted(&other, &alice(), 1), "{one}");
        assert_eq!(subject.reset(&one, &Key::new("user", "nobody"), false), 0);
    }
    subject.clock.advance(Duration::from_hours(3));
    for policy in one_of_each(3) {
        let gone = subject.reset(&policy.name("p"), &alice(), false);
        assert_eq!(gone, 0, "an old window is not in force");
    }
}

pub fn everything_under_a_key_is_reset_and_nothing_beside_it(subject: &Subject) {
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
    for policy in one_of_each(9) {
        for key in under.iter().chain(&beside) {
            subject.charge(&policy, key, 2);
        }
        assert_eq!(subject.reset(&policy, &user, true), 6, "{policy}");
        for key in &under {
            let units = subject.look(&policy, key, 1).used();
            assert_eq!(units, 0, "{policy} {}", key.as_str());
        }
        for key in &beside {
            let units = subject.look(&policy, key, 1).used();
            assert_eq!(units, 2, "{policy} {}", key.as_str());
        }
    }
}

pub fn a_whole_policy_is_reset_and_nothing_of_others(subject: &Subject) {
    let last = char::MAX.to_string();
    let keys = [
        Key::new("", ""),
        Key::new(" ", "a"),
        Key::new("user", 42),
        Key::new("user", 42).and("route", "/a"),
        Key::new("~", "a"),
        Key::new(&last.repeat(16), &last),
        Key::new(&last.repeat(99), &last),
    ];
    for policy in one_of_each(9) {
        let (one, other) = (policy.clone().name("p"), policy.name("q"));
        for key in &keys {
            subject.charge(&one, key, 2);
            subject.charge(&other, key, 2);
        }
        let units = 2 * keys.len() as u64;
        assert_eq!(
            subject.reset(&one, &Key::prefix_of_all(), true),
            units,
            "{one}"
        );
        for key in &keys {
            let text = key.as_str();
            assert_eq!(subject.look(&one, key, 1).used(), 0, "{one} {text}");
            assert_eq!(subject.look(&other, key, 1).used(), 2, "{other} {text}");
        }
    }
    let fixed = minute("long", 5);
    let key = |n: i32| Key::new("user", n);
    charge_each(subject, &fixed, (0..2_500).map(key));
    assert_eq!(subject.reset(&fixed, &Key::prefix_of_all(), true), 5_000);
    for n in 0..2_500 {
        assert_eq!(subject.usage(&fixed, &key(n)).used, 0, "{n}");
    }
}

pub fn long_jobs_cover_every_page(subject: &Subject) {
    let key = |n: i32| Key::new("user", 42).and("item", n);
    let policies = one_of_each(5);
    for policy in &policies {
        charge_each(subject, policy, (0..2_500).map(key));
    }
    let [fixed, others @ ..] = &policies;
    let epoch = |n| subject.usage(fixed, &key(n)).epoch;
    let epochs: Vec<_> = (0..2_500).map(epoch).collect();
    assert_eq!(subject.reset(fixed, &Key::new("user", 42), true), 5_000);
    for (n, epoch) in (0..).zip(epochs) {
        let usage = subject.usage(fixed, &key(n));
        assert_eq!((usage.used, usage.epoch), (0, epoch + 1), "{n}");
    }
    subject.clock.advance(Duration::from_hours(10));
    subject.sweeps(5 * 2_500);
    subject.sweeps(0);
    for policy in others {
        charge_each(subject, policy, (0..2_500).map(key));
        assert_eq!(
            subject.reset(policy, &Key::new("user", 42), true),
            5_000,
            "{policy}"
        );
        let looks = (0..2_500).map(|n| subject.store.peek(charge_of(&[(policy, &key(n))], 5)));
        let answers = subject.answers(looks.collect());
        assert!(
            answers
                .iter()
                .all(|answer| answer.as_ref().unwrap().is_admitted())
        );
    }
}

/// Charges each key two units, all of them at once.
fn charge_each(subject: &Subject, policy: &Policy, keys: impl Iterator<Item = Key>) {
    let charge = |key| subject.store.charge(&charge_of(&[(policy, &key)], 2));
    let answers = subject.answers(keys.map(charge).collect());
    for answer in answers {
        assert!(answer.unwrap().is_admitted(), "{policy}");
    }
}

pub fn a_sweep_deletes_only_what_no_window_needs(subject: &Subject) {
    let hour = Policy::fixed(5, 3_600).name("hour");
    let minute = minute("minute", 5);
    for policy in [&minute, &hour] {
        subject.charge(policy, &alice(), 5);
    }
    assert_eq!(subject.sweep(), 0, "current windows");
    subject.at(60_000);
    subject.charge(&minute, &alice(), 5);
    assert_eq!(subject.sweep(), 0, "the previous window is kept too");
    subject.at(120_000);
    // The one before goes.
    subject.sweeps(1);
    assert!(
        !subject.is_admitted(&hour, &alice(), 1),
        "another policy's row stays"
    );
    subject.at(60_000);
    assert!(
        !subject.is_admitted(&minute, &alice(), 1),
        "a kept row still counts"
    );
}

pub fn a_charge_that_nobody_waits_for_harms_no_other(subject: &Subject) {
    for policy in one_of_each(1_000) {
        let mut waited_for = Vec::new();
        for n in 0..100 {
            let reply = subject.store.charge(&charge_of(&[(&policy, &alice())], 1));
            if n % 2 == 0 {
                waited_for.push(reply);
            }
        }
        let answers = subject.answers(waited_for);
        assert!(
            answers
                .iter()
                .all(|answer| answer.as_ref().unwrap().is_admitted())
        );
        let used = subject.look(&policy, &alice(), 1).used();
        assert!((50..=100).contains(&used), "{policy}: {used}");
    }
}
