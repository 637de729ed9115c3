//! How much a policy allows: as it was built, or as it was set at run time for a key.

use super::Policy;
use crate::limit::{InForce, Timestamp, Until};

impl Policy {
    /// The units that a window admits; of a token bucket its burst.
    ///
    /// Of the policy of a [verdict](crate::Verdict::policy) it is what was [set at run time](crate::Limiter::set_limit) for its
    /// key, if something was, and `u32::MAX` when that is [no limit](crate::Limit::EXEMPT).
    #[must_use]
    pub fn limit(&self) -> u32 {
        match self.in_force {
            None => self.built.limit,
            Some(in_force) => in_force.units.unwrap_or(u32::MAX),
        }
    }

    /// The units that come back in each period.
    pub(crate) fn rate(&self) -> u32 {
        // A bucket without a limit drains as ever, so that what was used is still there when it has one again.
        let Some(units) = self.in_force.and_then(|in_force| in_force.units) else {
            return self.built.rate;
        };
        if self.built.rate == self.built.limit || self.built.limit == 0 {
            return units;
        }
        // In proportion, so that the bucket takes as long to fill.
        let rate = u64::from(units) * u64::from(self.built.rate);
        u32::try_from(rate.div_ceil(u64::from(self.built.limit))).unwrap_or(u32::MAX)
    }

    /// The units that come back in each period when no limit is set at run time.
    pub(crate) fn own_rate(&self) -> u32 {
        self.built.rate
    }

    /// The limit that was set at run time for the key that this is about, if one was.
    pub(crate) fn in_force(&self) -> Option<InForce> {
        self.in_force
    }

    /// Whether that is no limit at all.
    pub(crate) fn is_exempt(&self) -> bool {
        let units = self.in_force.map(|in_force| in_force.units);
        units.is_some_and(|units| units.is_none())
    }

    /// This policy with the limit that is in force for a key; `None` is its own.
    pub(crate) fn with_limit(&self, in_force: Option<InForce>) -> Self {
        let mut policy = self.clone();
        policy.in_force = in_force;
        policy
    }

    /// Whether the other one is this policy, for whichever key.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self == other || self.with_limit(None) == other.with_limit(None)
    }

    /// When the limit that is in force for a key ends, and the policy as it is from then on.
    pub(crate) fn until(&self) -> Option<(Timestamp, Self)> {
        let Until { at, then } = self.in_force?.until?;
        let then = InForce {
            units: then,
            until: None,
            is_own: false,
        };
        Some((at, self.with_limit(Some(then))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_units(policy: &Policy, units: Option<u32>) -> Policy {
        policy.with_limit(Some(InForce {
            units,
            until: None,
            is_own: true,
        }))
    }

    #[test]
    fn a_limit_that_is_set_takes_the_place_of_the_policys_own() {
        let policy = Policy::fixed(5, 60).name("api");
        let raised = with_units(&policy, Some(50));
        assert_eq!((raised.limit(), raised.rate()), (50, 50));
        assert_eq!(raised.to_string(), "api: 50 per 60 s, fixed window");
        assert_eq!(raised.window(), policy.window());
        assert!(raised != policy && raised.is_same(&policy));
    }

    #[test]
    fn a_bucket_takes_as_long_to_fill_as_before() {
        let bucket = Policy::token_bucket(10, 1).burst(50);
        let raised = with_units(&bucket, Some(100));
        assert_eq!((raised.limit(), raised.rate()), (100, 20));
        assert_eq!(raised.window(), bucket.window());
        assert_eq!(with_units(&bucket, Some(1)).rate(), 1, "rounded up");
        assert_eq!(with_units(&bucket, Some(0)).rate(), 0);
        assert_eq!(with_units(&bucket, Some(u32::MAX)).limit(), u32::MAX);
        let whole = Policy::token_bucket(7, 1);
        assert_eq!(with_units(&whole, Some(9)).rate(), 9);
        assert_eq!(
            with_units(&Policy::token_bucket(7, 1).burst(0), Some(9)).rate(),
            9
        );
    }

    #[test]
    fn who_is_exempt_has_no_limit() {
        let exempt = with_units(&Policy::fixed(5, 60), None);
        assert!(exempt.is_exempt());
        assert_eq!(exempt.limit(), u32::MAX);
        assert!(!with_units(&Policy::fixed(5, 60), Some(u32::MAX)).is_exempt());
    }
}
