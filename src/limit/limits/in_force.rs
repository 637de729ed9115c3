//! The limit that holds for a key at an instant, in place of its policy's own.

use super::{Limit, StoredLimit};
use crate::limit::Timestamp;

/// The limit that holds for a key, in place of its policy's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InForce {
    /// `None` when there is no limit.
    pub(crate) units: Option<u32>,
    pub(crate) until: Option<Until>,
    /// Whether it is the key's own, rather than that of all keys of the policy.
    pub(crate) is_own: bool,
}

/// When a limit ends, and what holds from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Until {
    pub(crate) at: Timestamp,
    /// `None` when there is no limit then.
    pub(crate) then: Option<u32>,
}

impl InForce {
    /// What holds at an instant: the key's own limit before that of all keys, and that before the policy's own, which is `own`
    /// units. `None` when it is the policy's.
    pub(crate) fn of(
        key: Option<&StoredLimit>,
        all: Option<&StoredLimit>,
        own: u32,
        now: Timestamp,
    ) -> Option<Self> {
        let key = key.filter(|stored| !stored.has_ended(now));
        let mut stored = [key, all].into_iter().flatten();
        let first = stored.find(|stored| !stored.has_ended(now))?;
        let until = first.ends_at().map(|at| Until {
            at,
            then: stored
                .find(|stored| !stored.has_ended(at))
                .map_or(Some(own), |stored| stored.limit().units()),
        });
        Some(Self {
            units: first.limit().units(),
            until,
            is_own: key.is_some(),
        })
    }

    /// As a limit that is shown.
    pub(crate) fn limit(self) -> Limit {
        Limit::of_stored(self.units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Key;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_unix_millis(millis)
    }

    fn stored(units: u32, ends_at: Option<i64>) -> StoredLimit {
        let key = Some(Key::new("user", 1));
        StoredLimit::new(key, Limit::of(units), ends_at.map(at))
    }

    #[test]
    fn the_keys_own_limit_comes_before_that_of_all_and_the_policys() {
        let (key, all) = (stored(7, None), stored(5, None));
        let of = |key, all| InForce::of(key, all, 3, at(0)).map(|in_force| in_force.units);
        assert_eq!(of(Some(&key), Some(&all)), Some(Some(7)));
        assert_eq!(of(None, Some(&all)), Some(Some(5)));
        assert_eq!(of(None, None), None);
    }

    #[test]
    fn a_limit_has_ended_at_its_end_and_the_next_one_follows() {
        let (key, all) = (stored(7, Some(10)), stored(5, Some(20)));
        let of = |now| InForce::of(Some(&key), Some(&all), 3, at(now));
        let then = |now| of(now).and_then(|in_force| Some((in_force.units?, in_force.until?)));
        let until = |millis, then| Until {
            at: at(millis),
            then: Some(then),
        };
        assert_eq!(then(9), Some((7, until(10, 5))));
        assert_eq!(then(10), Some((5, until(20, 3))));
        assert_eq!(of(20), None);
        let longer = stored(7, Some(30));
        let in_force = InForce::of(Some(&longer), Some(&all), 3, at(0)).unwrap();
        assert_eq!(
            in_force.until,
            Some(until(30, 3)),
            "that of all has ended by then"
        );
    }
}
