//! The sliding counter: two aligned windows, of which the earlier counts by the part that the sliding one still covers.
//!
//! With `x` ms gone of a window of `W` ms, `previous * (W - x) / W + current` units are taken as used. All of it is
//! compared after a multiplication by `W`, so nothing is rounded in a decision.

use super::fixed_window::Usage;

/// The counters of two windows that follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) previous: Usage,
    pub(crate) current: Usage,
}

/// Where a decision stands in its window: `gone` of `length` milliseconds, less than all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) gone: u64,
    pub(crate) length: u64,
}

impl Pair {
    /// Units in force, rounded up.
    pub(crate) fn used(self, moment: Moment) -> u64 {
        saturating(self.scaled(moment).div_ceil(u128::from(moment.length)))
    }

    /// Whether `cost` units still fit.
    pub(crate) fn fits(self, limit: u32, cost: u32, moment: Moment) -> bool {
        let scale = u128::from(moment.length);
        self.scaled(moment) + u128::from(cost) * scale <= u128::from(limit) * scale
    }

    /// The milliseconds until `cost` units fit, if nobody else uses the key. The cost is at most the limit.
    pub(crate) fn fits_after(self, limit: u32, cost: u32, moment: Moment) -> u64 {
        let left_in_window = moment.length - moment.gone;
        let room = u64::from(limit) - u64::from(cost.min(limit));
        if self.current.used <= room {
            let gone = gone_until(room - self.current.used, self.previous.used, moment.length);
            return gone.saturating_sub(moment.gone);
        }
        // It takes until the next window, in which the current one is the previous.
        left_in_window + gone_until(room, self.current.used, moment.length)
    }

    /// The milliseconds until nothing counts any more.
    pub(crate) fn empty_after(self, moment: Moment) -> u64 {
        let left_in_window = moment.length - moment.gone;
        match (self.previous.used, self.current.used) {
            (0, 0) => 0,
            (_, 0) => left_in_window,
            _ => left_in_window + moment.length,
        }
    }

    /// Units in force, times the window's length.
    fn scaled(self, moment: Moment) -> u128 {
        let left_in_window = moment.length - moment.gone;
        u128::from(self.previous.used) * u128::from(left_in_window)
            + u128::from(self.current.used) * u128::from(moment.length)
    }
}

/// How much of a window must be gone until no more than `room` units of `before` count.
fn gone_until(room: u64, before: u64, length: u64) -> u64 {
    let covered = (u128::from(room) * u128::from(length)).checked_div(u128::from(before));
    length - covered.map_or(length, |covered| saturating(covered).min(length))
}

fn saturating(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pair(previous: u64, current: u64) -> Pair {
        let of = |used| Usage {
            used,
            ..Usage::default()
        };
        Pair {
            previous: of(previous),
            current: of(current),
        }
    }

    #[test]
    fn the_previous_window_counts_by_the_part_that_is_covered() {
        let quarter = Moment {
            gone: 15_000,
            length: 60_000,
        };
        // Three quarters of 8, and 3.
        assert_eq!(pair(8, 3).used(quarter), 9);
        assert!(pair(8, 3).fits(10, 1, quarter));
        assert!(!pair(8, 3).fits(10, 2, quarter));
        assert_eq!(pair(7, 3).used(quarter), 9, "8.25 rounds up");
    }

    #[test]
    fn extremes_saturate() {
        let moment = Moment {
            gone: 0,
            length: 316_224_000_000,
        };
        assert_eq!(pair(u64::MAX, u64::MAX).used(moment), u64::MAX);
        assert!(!pair(u64::MAX, 0).fits(u32::MAX, 1, moment));
        assert!(pair(0, 0).fits(u32::MAX, u32::MAX, moment));
        assert!(!pair(0, 0).fits(0, 1, moment));
        let _ = pair(u64::MAX, u64::MAX).fits_after(u32::MAX, u32::MAX, moment);
    }

    proptest! {
        /// It passes at the told instant, and not a millisecond before.
        #[test]
        fn the_wait_is_exact(
            previous in 0_u64..30, current in 0_u64..30, limit in 1_u32..20, cost in 1_u32..20,
            length in 1_u64..500, gone in 0_u64..500,
        ) {
            let cost = cost.min(limit);
            let state = pair(previous, current);
            let gone = gone % length;
            let fits_at = |wait: u64| {
                let (windows, gone) = ((gone + wait) / length, (gone + wait) % length);
                let state = match windows {
                    0 => state,
                    1 => pair(current, 0),
                    _ => pair(0, 0),
                };
                state.fits(limit, cost, Moment { gone, length })
            };
            let wait = state.fits_after(limit, cost, Moment { gone, length });
            prop_assert!(fits_at(wait));
            prop_assert!(wait == 0 || !fits_at(wait - 1));
            let empty = state.empty_after(Moment { gone, length });
            prop_assert!(empty >= wait);
        }
    }
}
