//! The token bucket, as a meter that fills by what is used and drains at the rate: the generic cell rate algorithm.
//!
//! What is used is counted in parts of a unit: a unit has as many as the period has milliseconds, and each millisecond
//! drains as many as the period has units. So nothing is ever rounded, and the count means the same under another rate.

use super::{Placed, place};
use crate::limit::Timestamp;

/// What is used of a bucket, as of an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) at: Timestamp,
    /// Whole units, and parts of one.
    pub(crate) used: u64,
    pub(crate) parts: u64,
    /// When it was first used, or used again after a reset.
    pub(crate) since: Timestamp,
    /// The clock has stepped back behind it, and it was moved to now: it must be stored also when nothing is used.
    pub(crate) is_moved: bool,
}

/// How fast a bucket drains: `units` in each period of so many milliseconds, at least 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) units: u32,
    pub(crate) period: u64,
}

impl Bucket {
    /// A bucket of which nothing is used.
    pub(crate) fn full(now: Timestamp) -> Self {
        Self {
            at: now,
            used: 0,
            parts: 0,
            since: now,
            is_moved: false,
        }
    }

    /// The bucket after a reset, to which nothing goes back that was taken before, in the same millisecond neither.
    pub(crate) fn reset(now: Timestamp) -> Self {
        Self {
            since: now.saturating_add(std::time::Duration::from_millis(1)),
            ..Self::full(now)
        }
    }

    /// The bucket as it is now.
    pub(crate) fn drained(self, rate: Rate, now: Timestamp) -> Self {
        let Placed { at, is_moved } = place(now, self.at);
        let drained = u128::from(at.millis_since(self.at)) * u128::from(rate.units);
        Self {
            at,
            // Behind a clock that has stepped back nothing could be given back for a long time.
            since: if is_moved {
                self.since.min(at)
            } else {
                self.since
            },
            is_moved,
            ..self
        }
        .with_parts(self.all_parts(rate).saturating_sub(drained), rate)
    }

    /// Units that are used, rounded up.
    pub(crate) fn used_ceil(self) -> u64 {
        self.used.saturating_add(u64::from(self.parts > 0))
    }

    /// Whether `cost` units still fit under the burst.
    pub(crate) fn fits(self, burst: u32, cost: u32, rate: Rate) -> bool {
        self.missing(burst, cost, rate) == 0
    }

    pub(crate) fn take(&mut self, cost: u32) {
        self.used = self.used.saturating_add(u64::from(cost));
    }

    /// Gives back what is certain to be still there of units that were taken at an instant. Since then no more can have drained
    /// of them than has drained in all; of a bucket that was reset since, nothing is theirs.
    pub(crate) fn give_back(
        self,
        units: u32,
        taken_at: Timestamp,
        rate: Rate,
        now: Timestamp,
    ) -> Self {
        let Placed { at, is_moved } = place(now, self.at);
        // After a step back of the clock it is not known what has drained since.
        if taken_at < self.since || taken_at > at || is_moved {
            return self;
        }
        let drained = u128::from(at.millis_since(taken_at)) * u128::from(rate.units);
        let there = (u128::from(units) * u128::from(rate.period)).saturating_sub(drained);
        self.with_parts(self.all_parts(rate).saturating_sub(there), rate)
    }

    /// The milliseconds from `now` until `cost` units fit, if nobody else uses the key; `None` when they never do.
    pub(crate) fn fits_after(
        self,
        burst: u32,
        cost: u32,
        rate: Rate,
        now: Timestamp,
    ) -> Option<u64> {
        self.drains_after(self.missing(burst, cost, rate), rate, now)
    }

    /// The milliseconds from `now` until nothing is used; `None` when that never is.
    pub(crate) fn full_after(self, rate: Rate, now: Timestamp) -> Option<u64> {
        self.drains_after(self.all_parts(rate), rate, now)
    }

    fn drains_after(self, parts: u128, rate: Rate, now: Timestamp) -> Option<u64> {
        if parts == 0 {
            return Some(0);
        }
        let millis = (rate.units > 0).then(|| parts.div_ceil(u128::from(rate.units)))?;
        // It drains from its own instant on, which may be slightly ahead.
        Some(saturating(millis).saturating_add(self.at.millis_since(now)))
    }

    /// What must drain until `cost` units fit.
    fn missing(self, burst: u32, cost: u32, rate: Rate) -> u128 {
        let unit = u128::from(rate.period);
        let wanted = self.all_parts(rate) + u128::from(cost) * unit;
        wanted.saturating_sub(u128::from(burst) * unit)
    }

    fn all_parts(self, rate: Rate) -> u128 {
        u128::from(self.used) * u128::from(rate.period) + u128::from(self.parts)
    }

    fn with_parts(self, parts: u128, rate: Rate) -> Self {
        let unit = u128::from(rate.period.max(1));
        Self {
            used: saturating(parts / unit),
            parts: saturating(parts % unit),
            ..self
        }
    }
}

fn saturating(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_unix_millis(millis)
    }

    #[test]
    fn three_units_a_second_are_all_back_after_a_second() {
        let rate = Rate {
            units: 3,
            period: 1_000,
        };
        let mut bucket = Bucket::full(at(0));
        bucket.take(3);
        assert_eq!(bucket.fits_after(3, 1, rate, at(0)), Some(334));
        assert_eq!(bucket.full_after(rate, at(0)), Some(1_000));
        let later = bucket.drained(rate, at(334));
        assert!(later.fits(3, 1, rate) && !later.fits(3, 2, rate));
        assert_eq!(bucket.drained(rate, at(1_000)).all_parts(rate), 0);
    }

    #[test]
    fn many_small_steps_drain_as_much_as_one_long_one() {
        let rate = Rate {
            units: 7,
            period: 1_000,
        };
        let mut bucket = Bucket::full(at(0));
        bucket.take(5);
        let stepped = (1..=500).fold(bucket, |bucket, now| bucket.drained(rate, at(now)));
        assert_eq!(stepped, bucket.drained(rate, at(500)));
    }

    #[test]
    fn a_clock_that_steps_back_refills_nothing_and_locks_nobody_out() {
        let rate = Rate {
            units: 10,
            period: 1_000,
        };
        let mut bucket = Bucket::full(at(3_600_000));
        bucket.take(10);
        let slightly = bucket.drained(rate, at(3_599_500));
        assert_eq!((slightly.at, slightly.is_moved), (at(3_600_000), false));
        assert_eq!(slightly.fits_after(10, 1, rate, at(3_599_500)), Some(600));
        let moved = bucket.drained(rate, at(0));
        assert_eq!((moved.at, moved.used, moved.is_moved), (at(0), 10, true));
        assert_eq!(moved.full_after(rate, at(0)), Some(1_000));
    }

    #[test]
    fn a_bucket_that_never_drains_promises_nothing() {
        let rate = Rate {
            units: 0,
            period: 1_000,
        };
        let mut bucket = Bucket::full(at(0));
        assert!(!bucket.fits(0, 1, rate) && bucket.fits(0, 0, rate));
        assert_eq!(bucket.fits_after(0, 1, rate, at(0)), None);
        bucket.take(u32::MAX);
        assert_eq!(bucket.drained(rate, at(i64::MAX)).used, u64::from(u32::MAX));
    }

    #[test]
    fn extremes_saturate() {
        let rate = Rate {
            units: u32::MAX,
            period: 1,
        };
        let mut bucket = Bucket::full(at(i64::MIN));
        bucket.used = u64::MAX;
        bucket.take(u32::MAX);
        assert!(!bucket.fits(u32::MAX, u32::MAX, rate));
        let _ = bucket.drained(rate, at(i64::MAX));
        let slow = Rate {
            units: 1,
            period: 316_224_000_000,
        };
        let _ = bucket.full_after(slow, at(i64::MAX));
        assert!(!Bucket::full(at(0)).fits(1, 200_000_000, slow));
    }

    proptest! {
        /// It admits what the definition of the cell rate algorithm says, in exact fractions: a theoretical arrival time
        /// `tat`, an emission interval of `period / units`, a tolerance of `burst` of them.
        #[test]
        fn it_is_the_cell_rate_algorithm(
            units in 1_u32..20, period in 1_u64..3_000, burst in 1_u32..30,
            steps in proptest::collection::vec((0_i64..400, 1_u32..6), 1..60),
        ) {
            let rate = Rate { units, period };
            let mut bucket = Bucket::full(at(0));
            // In milliseconds times `units`.
            let mut tat = 0_i128;
            let mut now = 0;
            for (wait, cost) in steps {
                now += wait;
                let scaled_now = i128::from(now) * i128::from(units);
                let next = tat.max(scaled_now) + i128::from(cost) * i128::from(period);
                let conforms = next - scaled_now <= i128::from(burst) * i128::from(period);
                if conforms {
                    tat = next;
                }
                bucket = bucket.drained(rate, at(now));
                prop_assert_eq!(bucket.fits(burst, cost, rate), conforms);
                if conforms {
                    bucket.take(cost);
                } else if cost <= burst {
                    let wait = bucket.fits_after(burst, cost, rate, at(now)).unwrap();
                    let then = |wait: u64| bucket.drained(rate, at(now + i64::try_from(wait).unwrap()));
                    prop_assert!(then(wait).fits(burst, cost, rate));
                    prop_assert!(!then(wait - 1).fits(burst, cost, rate));
                }
            }
        }
    }
}
