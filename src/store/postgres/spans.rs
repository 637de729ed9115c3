//! The windows of a policy as the server is told of them: it computes them for its own time.

use crate::limit::algorithm::LONGEST_WAY;
use crate::limit::timestamp::millis;
use crate::limit::{Algorithm, Policy};

/// The months of the calendar have no length of their own.
const MONTH: i64 = 0;
const LONGEST_MONTH: i64 = 31 * 24 * 3_600_000;

/// The milliseconds of a period.
pub(super) fn period(policy: &Policy) -> i64 {
    match policy.algorithm() {
        Algorithm::CalendarMonth => MONTH,
        _ => millis(policy.period()).max(1),
    }
}

/// How long the row of a window is needed from the start of that on.
pub(super) fn lasts(policy: &Policy) -> i64 {
    let way = millis(LONGEST_WAY);
    match policy.algorithm() {
        Algorithm::CalendarMonth => 2 * LONGEST_MONTH,
        // It counts in the window after its own.
        Algorithm::SlidingCounter => 2 * period(policy) + way,
        _ => period(policy) + period(policy).max(way),
    }
}
