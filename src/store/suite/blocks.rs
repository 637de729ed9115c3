//! Keys that are blocked after a refusal.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A policy of each algorithm that blocks for ten minutes.
fn blocking(limit: u32) -> [Policy; 5] {
    one_of_each(limit).map(|policy| policy.block_for(10 * MINUTE))
}

pub fn a_refused_key_is_blocked_for_as_long_as_its_policy_says(subject: &Subject) {
    for policy in &blocking(2)[..4] {
        subject.at(0);
        let key = Key::new("blocked", policy.as_name());
        assert!(subject.is_admitted(policy, &key, 2), "{policy}");
        let refused = subject.charge(policy, &key, 1);
        assert_eq!(refused.retry_after(), Some(10 * MINUTE), "{policy}");
        assert_eq!(refused.blocked_for(), Some(10 * MINUTE), "{policy}");
        assert_eq!(refused.remaining(), 0, "{policy}");
        // What was used is long gone.
        subject.at(599_999);
        let look = subject.look(policy, &key, 1);
        assert_eq!(look.used(), 0, "{policy}");
        let wait = Some(Duration::from_millis(1));
        assert_eq!(look.retry_after(), wait, "{policy}");
        assert!(subject.charge(policy, &key, 1).is_denied(), "{policy}");
        let other = Key::new("other", policy.as_name());
        assert!(subject.is_admitted(policy, &other, 1), "{policy}");
        subject.at(600_000);
        assert!(subject.is_admitted(policy, &key, 2), "{policy}");
    }
}

pub fn asking_again_does_not_make_a_block_longer(subject: &Subject) {
    for policy in &blocking(1)[..4] {
        let key = Key::new("hammer", policy.as_name());
        subject.at(0);
        assert!(subject.is_admitted(policy, &key, 1));
        let passed = (0..600).filter(|second| {
            subject.at(second * 1_000);
            subject.is_admitted(policy, &key, 1)
        });
        assert_eq!(passed.count(), 0, "{policy}");
        subject.at(600_000);
        assert!(subject.is_admitted(policy, &key, 1), "{policy}");
    }
}

pub fn a_block_may_need_several_refusals_in_a_row(subject: &Subject) {
    let policy = Policy::sliding(1, 1).name("three").block_after(3, MINUTE);
    let key = alice();
    let refuse = |times: u32| {
        for _ in 0..times {
            let refused = subject.charge(&policy, &key, 1);
            assert!(refused.is_denied());
            assert_eq!(refused.blocked_for(), None);
        }
    };
    assert!(subject.is_admitted(&policy, &key, 1));
    refuse(2);
    subject.at(1_000);
    assert!(subject.is_admitted(&policy, &key, 1), "which ends the row");
    refuse(2);
    let third = subject.charge(&policy, &key, 1);
    assert_eq!(third.blocked_for(), Some(MINUTE));
    subject.at(60_999);
    assert!(subject.charge(&policy, &key, 1).is_denied());
    subject.at(61_000);
    assert!(subject.is_admitted(&policy, &key, 1));
    refuse(2);
}

pub fn a_window_without_a_refusal_ends_the_row(subject: &Subject) {
    let policy = Policy::fixed(5, 60).name("row").block_after(2, MINUTE);
    assert!(subject.charge(&policy, &alice(), 6).is_denied());
    subject.at(60_000);
    let refused = subject.charge(&policy, &alice(), 6);
    assert_eq!(refused.blocked_for(), None);
    subject.at(119_999);
    let refused = subject.charge(&policy, &alice(), 6);
    assert_eq!(refused.blocked_for(), Some(MINUTE));
}

pub fn a_reset_ends_a_block(subject: &Subject) {
    for policy in blocking(1) {
        let key = Key::new("user", policy.as_name());
        assert!(subject.is_admitted(&policy, &key, 1), "{policy}");
        assert!(subject.charge(&policy, &key, 1).is_denied(), "{policy}");
        let part = part_of(&policy, &key);
        for part in [part.block().unwrap(), part] {
            let reset = Reset {
                part,
                with_keys_under: true,
                at: subject.clock.now(),
            };
            let units = subject.runtime.block_on(subject.store.reset(reset));
            assert!(units.unwrap() <= 1, "{policy}");
        }
        assert!(subject.is_admitted(&policy, &key, 1), "{policy}");
    }
}

pub fn a_blocked_key_uses_nothing_of_other_policies(subject: &Subject) {
    let [blocking, ..] = blocking(1);
    let wide = Policy::sliding(100, 3_600).name("wide");
    let parts = [(&wide, &alice()), (&blocking, &alice())];
    assert!(subject.charge_all(&parts, 1).is_allowed());
    for minute in 0..10 {
        subject.at(minute * 60_000 + 30_000);
        let refused = subject.charge_all(&parts, 1);
        let violated: Vec<_> = refused.violated().map(Policy::as_name).collect();
        assert_eq!(violated, ["fixed"]);
        assert_eq!(
            refused.retry_after(),
            Some(Duration::from_secs(600 - 60 * minute.unsigned_abs()))
        );
    }
    assert_eq!(subject.look(&wide, &alice(), 1).used(), 1);
    subject.at(630_000);
    assert!(subject.charge_all(&parts, 1).is_allowed());
}

pub fn a_refusal_by_another_policy_blocks_nothing(subject: &Subject) {
    let [blocking, ..] = blocking(10);
    let narrow = Policy::sliding(1, 60).name("narrow");
    let parts = [(&narrow, &alice()), (&blocking, &alice())];
    assert!(subject.charge_all(&parts, 1).is_allowed());
    assert!(subject.charge_all(&parts, 1).is_denied());
    assert!(subject.is_admitted(&blocking, &alice(), 1));
}

pub fn a_block_outlasts_no_clock_that_steps_back(subject: &Subject) {
    let [policy, ..] = blocking(1);
    subject.at(3_600_000);
    assert!(subject.is_admitted(&policy, &alice(), 1));
    assert!(subject.charge(&policy, &alice(), 1).is_denied());
    subject.at(0);
    let refused = subject.charge(&policy, &alice(), 1);
    assert_eq!(refused.retry_after(), Some(10 * MINUTE));
    subject.at(300_000);
    let refused = subject.charge(&policy, &alice(), 1);
    assert_eq!(refused.retry_after(), Some(5 * MINUTE));
    subject.at(600_000);
    assert!(subject.is_admitted(&policy, &alice(), 1));
}

pub fn a_block_waits_for_what_it_outlasts(subject: &Subject) {
    // A short block does not promise what the window does not hold.
    let policy = Policy::sliding(1, 60)
        .name("short")
        .block_for(Duration::from_secs(5));
    assert!(subject.is_admitted(&policy, &alice(), 1));
    let refused = subject.charge(&policy, &alice(), 1);
    assert_eq!(refused.retry_after(), Some(MINUTE));
    subject.at(60_000);
    assert!(subject.is_admitted(&policy, &alice(), 1));
}
