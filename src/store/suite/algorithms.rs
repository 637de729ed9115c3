//! What each algorithm promises.

use super::*;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn a_refused_request_is_not_recorded_by_a_sliding_window(subject: &Subject) {
    let policy = Policy::sliding(10, 60);
    let passed = (0..600).filter(|second| {
        subject.at(second * 1_000);
        subject.is_admitted(&policy, &alice(), 1)
    });
    assert_eq!(passed.count(), 100, "ten of each sixty");
    let refused = subject.charge(&policy, &alice(), 1);
    assert_eq!(refused.attempts(), refused.used());
}

pub fn many_units_in_one_millisecond_are_one_event(subject: &Subject) {
    let policy = Policy::sliding(100, 60);
    for _ in 0..10 {
        assert!(subject.is_admitted(&policy, &alice(), 7));
    }
    assert_eq!(subject.look(&policy, &alice(), 1).used(), 70);
    let refused = subject.charge(&policy, &alice(), 31);
    assert_eq!(
        (refused.is_denied(), refused.retry_after()),
        (true, Some(seconds(60)))
    );
    subject.clock.advance(Duration::from_hours(1));
    subject.sweeps(1);
}

pub fn trimming_and_sweeping_change_no_answer(subject: &Subject) {
    let policy = Policy::sliding(40, 60);
    let mut model = Vec::new();
    for step in 0..1_500_i64 {
        let now = step * 777;
        subject.at(now);
        let inside = model.iter().filter(|at| **at + 60_000 > now).count();
        let admitted = subject.is_admitted(&policy, &alice(), 1);
        assert_eq!(admitted, inside < 40, "step {step}");
        if admitted {
            model.push(now);
        }
        if step % 97 == 0 {
            subject.sweep();
        }
    }
}

pub fn calendar_quotas_begin_anew_with_the_calendar(subject: &Subject) {
    // 2028-02-29T23:59:59.999Z, the end of an hour, a day and a month.
    let end = 1_835_481_599_999;
    for policy in [Policy::hourly(1), Policy::daily(1), Policy::monthly(1)] {
        subject.clock.set(Timestamp::from_unix_millis(end - 1));
        assert!(subject.is_admitted(&policy, &alice(), 1), "{policy}");
        subject.clock.set(Timestamp::from_unix_millis(end));
        let refused = subject.charge(&policy, &alice(), 1);
        let wait = (refused.is_denied(), refused.retry_after());
        assert_eq!(wait, (true, Some(Duration::from_millis(1))), "{policy}");
        subject.clock.set(Timestamp::from_unix_millis(end + 1));
        assert!(subject.is_admitted(&policy, &alice(), 1), "{policy}");
    }
    // The day has 86,400 seconds, March 31 days.
    let waits = [Policy::hourly(1), Policy::daily(1), Policy::monthly(1)]
        .map(|policy| subject.charge(&policy, &alice(), 1).retry_after());
    assert_eq!(
        waits,
        [
            Some(seconds(3_600)),
            Some(seconds(86_400)),
            Some(seconds(31 * 86_400))
        ]
    );
}

pub fn a_bucket_lets_a_burst_pass_and_then_its_rate(subject: &Subject) {
    let policy = Policy::token_bucket(10, 1).burst(50);
    let admitted = (0..80).filter(|_| subject.is_admitted(&policy, &alice(), 1));
    assert_eq!(admitted.count(), 50);
    let refused = subject.charge(&policy, &alice(), 1);
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(100)));
    assert_eq!(refused.reset_after(), Duration::from_secs(5));
    let passed = (1..=1_000).filter(|millis| {
        subject.at(*millis);
        subject.is_admitted(&policy, &alice(), 1)
    });
    assert_eq!(passed.count(), 10);
    subject.at(3_600_000);
    let rested = subject.charge(&policy, &alice(), 50);
    assert_eq!((rested.is_allowed(), rested.remaining()), (true, 0));
}

pub fn a_bucket_keeps_its_usage_when_its_rate_changes(subject: &Subject) {
    let of = |rate: u32| Policy::token_bucket(rate, 60).burst(100).name("p");
    assert!(subject.is_admitted(&of(10), &alice(), 80));
    assert_eq!(subject.look(&of(60), &alice(), 1).used(), 80);
    // What has gone by since drains at the rate of the policy that asks.
    subject.at(10_000);
    assert!(subject.is_admitted(&of(60), &alice(), 1));
    assert_eq!(subject.look(&of(60), &alice(), 1).used(), 70 + 1);
    subject.at(16_000);
    assert_eq!(subject.look(&of(10), &alice(), 1).used(), 70);
}

pub fn each_rate_drains_a_bucket_for_itself(subject: &Subject) {
    let of = |rate: u32| Policy::token_bucket(rate, 60).burst(100).name("p");
    assert!(subject.is_admitted(&of(100), &alice(), 100));
    subject.at(60_000);
    let charges = [1, 100].map(|rate| charge_of(&[(&of(rate), &alice())], 50));
    // One after another and in one batch alike: what the slow rate refused has not slowed the bucket.
    let replies = charges.map(|charge| subject.store.charge(&charge));
    let answers = subject.answers(replies.into());
    let answers = answers
        .into_iter()
        .map(|answer| answer.unwrap().is_admitted());
    assert_eq!(answers.collect::<Vec<_>>(), [false, true]);
}

pub fn a_sliding_counter_weighs_the_window_before(subject: &Subject) {
    let policy = Policy::sliding_counter(10, 60);
    assert!(subject.is_admitted(&policy, &alice(), 8));
    // A quarter of the next window is gone: three quarters of 8 are 6.
    subject.at(75_000);
    assert_eq!(subject.look(&policy, &alice(), 1).used(), 6);
    assert!(subject.is_admitted(&policy, &alice(), 4));
    let refused = subject.charge(&policy, &alice(), 1);
    // 8 * (60 - x) / 60 + 4 + 1 <= 10 from x = 22.5 s on.
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(7_500)));
    assert_eq!(refused.attempts(), 11);
    subject.at(120_000);
    assert_eq!(subject.look(&policy, &alice(), 1).used(), 4);
    subject.at(180_000);
    assert_eq!(subject.look(&policy, &alice(), 1).used(), 0);
}

pub fn a_cost_above_the_limit_is_refused_without_a_promise(subject: &Subject) {
    for policy in one_of_each(10) {
        let refused = subject.charge(&policy, &alice(), 11);
        assert!(refused.is_denied(), "{policy}");
        assert_eq!(refused.retry_after(), None, "{policy}");
        assert!(subject.is_admitted(&policy, &alice(), 10), "{policy}");
    }
}

pub fn a_cost_of_zero_looks(subject: &Subject) {
    for policy in one_of_each(2) {
        let full = subject.charge(&policy, &alice(), 2);
        assert_eq!(full.remaining(), 0, "{policy}");
        let look = subject.look(&policy, &alice(), 0);
        assert_eq!((look.is_allowed(), look.remaining()), (true, 0), "{policy}");
        assert_eq!(look.retry_after(), None, "{policy}");
    }
}
