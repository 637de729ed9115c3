//! Clocks that step.

use super::*;

const HOUR: i64 = 3_600_000;

fn fill(subject: &Subject, policy: &Policy) -> u32 {
    let mut admitted = 0;
    while subject.is_admitted(policy, &alice(), 1) {
        admitted += 1;
    }
    admitted
}

pub fn a_clock_that_steps_locks_nobody_out(subject: &Subject) {
    for policy in &one_of_each(5)[..4] {
        subject.at(0);
        assert_eq!(fill(subject, policy), 5, "{policy}");
        subject.at(HOUR);
        assert_eq!(fill(subject, policy), 5, "{policy} forward: one quota");
        subject.at(0);
        assert_eq!(
            fill(subject, policy),
            0,
            "{policy} back: full, now or still"
        );
        // While it is hammered on all the time.
        for second in 1..60 {
            subject.at(second * 1_000);
            let _ = subject.is_admitted(policy, &alice(), 1);
        }
        // The counter still weighs the window that was filled.
        let wait = if policy.as_name() == "counter" {
            120_000
        } else {
            60_000
        };
        subject.at(wait);
        assert!(
            fill(subject, policy) >= 1,
            "{policy} and over after a window"
        );
    }
}

pub fn a_step_back_gives_no_more_than_one_quota(subject: &Subject) {
    for policy in &one_of_each(5)[..4] {
        subject.at(HOUR);
        assert_eq!(fill(subject, policy), 5, "{policy}");
        let mut gained = 0;
        for step in (0..30).rev() {
            // Ever further back, by less than a window and by more.
            subject.at(HOUR - HOUR / 40 * (30 - step) / 10);
            gained += fill(subject, policy);
        }
        // Windows that were never seen begin anew: that is their quota, once each.
        let is_window = matches!(policy.as_name(), "fixed" | "counter");
        let windows = if is_window { 5 } else { 0 };
        assert!(gained <= 5 * windows, "{policy}: {gained}");
    }
}

pub fn a_step_back_revives_nothing_that_had_left(subject: &Subject) {
    let policy = Policy::sliding(100, 1);
    for second in 0..45 {
        subject.at(second * 1_000);
        assert!(subject.is_admitted(&policy, &alice(), 1));
    }
    subject.at(-2_000);
    let moved = subject.charge(&policy, &alice(), 60);
    assert_eq!((moved.is_allowed(), moved.used()), (true, 61));
    subject.at(-1_000);
    assert_eq!(subject.look(&policy, &alice(), 1).used(), 0);
}
