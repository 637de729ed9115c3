//! The fixed window, and the calendar quota: one counter for each window.

/// The most that is counted of refused units: the largest integer that every JSON reader holds exactly.
pub(crate) const MOST_DENIED: u64 = (1 << 53) - 1;

/// What one counter holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Units that were admitted. They alone decide.
    pub(crate) used: u64,
    /// Units that were refused: statistics.
    pub(crate) denied: u64,
    /// How often the counter was reset.
    pub(crate) epoch: u64,
}

impl Usage {
    /// Whether `cost` units still fit.
    pub(crate) fn fits(self, limit: u32, cost: u32) -> bool {
        admitted(limit, self.used, cost, 1) == 1
    }

    /// Uses `cost` units.
    pub(crate) fn take(&mut self, cost: u32) {
        *self = self.after(cost, 1, 0);
    }

    /// Counts `cost` units as refused.
    pub(crate) fn refuse(&mut self, cost: u32) {
        *self = self.after(cost, 0, 1);
    }

    /// Counts units that were refused elsewhere.
    #[cfg(feature = "records")]
    pub(crate) fn count_refused(&mut self, units: u64) {
        self.denied = self.denied.saturating_add(units).min(MOST_DENIED);
    }

    /// Takes back units that were taken, never below zero.
    pub(crate) fn give_back(&mut self, units: u32) {
        self.used = self.used.saturating_sub(u64::from(units));
    }

    /// Forgets what was used and refused. The epoch tells the old counts from the new ones.
    pub(crate) fn reset(&mut self) {
        *self = Self {
            epoch: self.epoch.saturating_add(1),
            ..Self::default()
        };
    }

    /// This state with so many charges of `cost` admitted and refused.
    fn after(self, cost: u32, admitted: u32, refused: u32) -> Self {
        let units = |n: u32| u64::from(cost) * u64::from(n);
        Self {
            used: self.used.saturating_add(units(admitted)),
            denied: self.denied.saturating_add(units(refused)).min(MOST_DENIED),
            epoch: self.epoch,
        }
    }
}

/// How many of `n` charges of `cost` units each still fit: the first of them, in order of arrival.
///
/// A cost of 0 asks for nothing and always fits.
pub(crate) fn admitted(limit: u32, used: u64, cost: u32, n: u32) -> u32 {
    let left = u64::from(limit).saturating_sub(used);
    match left.checked_div(u64::from(cost)) {
        Some(fit) => u32::try_from(fit).unwrap_or(u32::MAX).min(n),
        None => n,
    }
}

/// A run of equal charges on one counter, as one statement applied it.
#[cfg(any(test, feature = "postgres", feature = "sqlite"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// The counter after the run.
    pub(crate) after: Usage,
    /// Units of each charge.
    pub(crate) cost: u32,
    /// How many charges the run merged.
    pub(crate) length: u32,
    /// How many of them were admitted.
    pub(crate) granted: u32,
}

#[cfg(any(test, feature = "postgres", feature = "sqlite"))]
impl Run {
    /// The answer to the charge at `place` (from 0) of the run: whether it was admitted, and the counter after it.
    pub(crate) fn answer(self, place: u32) -> (bool, Usage) {
        let granted = self.granted.min(self.length);
        let later = self.length.saturating_sub(place.saturating_add(1));
        let refused_later = later.min(self.length - granted);
        let admitted_later = later - refused_later;
        let units = |n: u32| u64::from(self.cost) * u64::from(n);
        let usage = Usage {
            used: self.after.used.saturating_sub(units(admitted_later)),
            denied: self.after.denied.saturating_sub(units(refused_later)),
            epoch: self.after.epoch,
        };
        (place < granted, usage)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn charge(usage: &mut Usage, limit: u32, cost: u32) -> bool {
        let fits = usage.fits(limit, cost);
        if fits {
            usage.take(cost);
        } else {
            usage.refuse(cost);
        }
        fits
    }

    #[test]
    fn a_refused_cost_leaves_what_is_left() {
        let mut usage = Usage::default();
        for _ in 0..8 {
            assert!(charge(&mut usage, 10, 1));
        }
        assert!(!charge(&mut usage, 10, 5));
        assert!(charge(&mut usage, 10, 2));
        assert!(!charge(&mut usage, 10, 1));
        assert_eq!((usage.used, usage.denied), (10, 6));
    }

    #[test]
    fn extremes_saturate_and_never_admit_by_wrapping() {
        assert_eq!(admitted(u32::MAX, 0, u32::MAX, u32::MAX), 1);
        assert_eq!(admitted(u32::MAX, u64::MAX, 1, 1), 0);
        assert_eq!(admitted(0, 0, 1, 9), 0);
        assert_eq!(admitted(0, 0, 0, 9), 9);
        assert_eq!(admitted(5, 9, 1, 1), 0, "a lowered limit");
        let mut usage = Usage {
            denied: MOST_DENIED,
            ..Usage::default()
        };
        assert!(!charge(&mut usage, 1, u32::MAX));
        assert_eq!(usage.denied, MOST_DENIED);
    }

    proptest! {
        /// A merged run answers each of its charges as if they had come one after another.
        #[test]
        fn a_run_answers_like_single_charges(
            limit in 0_u32..50, cost in 1_u32..9, before in 0_u64..60, length in 1_u32..40,
        ) {
            let mut single = Usage { used: before, denied: 3, epoch: 1 };
            let granted = admitted(limit, before, cost, length);
            let after = single.after(cost, granted, length - granted);
            let run = Run { after, cost, length, granted };
            for place in 0..length {
                let admitted = charge(&mut single, limit, cost);
                prop_assert_eq!(run.answer(place), (admitted, single));
            }
            prop_assert_eq!(single, after);
        }
    }
}
