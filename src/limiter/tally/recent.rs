//! The heaviest keys of lately.

use std::collections::HashSet;
use std::mem;
use std::time::Duration;

use super::space_saving::SpaceSaving;
use crate::limit::{Key, Timestamp};

/// Long enough that a key which is refused for its whole window is seen, and short enough that one which has stopped is gone when
/// somebody has got up.
const PERIOD: Duration = Duration::from_mins(15);
/// Some 200 KB for short keys, and of each key that has more than a thousandth of all units it is known that it has.
const SLOTS: usize = 1_000;

/// What was counted of each key in the period that is under way and in the one before it: in the last 15 to 30 minutes.
#[derive(Debug)]
pub(super) struct Recent {
    /// When the period that is under way began.
    began_at: Timestamp,
    current: SpaceSaving,
    previous: SpaceSaving,
    /// When counting began, or anew after a time in which nothing was.
    since: Timestamp,
}

/// The keys that have most.
#[derive(Debug)]
pub(crate) struct Top {
    /// Nothing of before this instant is in it.
    pub(crate) since: Timestamp,
    /// Of all keys.
    pub(crate) total: u64,
    /// What a key has at most that is not among the keys.
    pub(crate) missing_at_most: u64,
    pub(crate) keys: Vec<Counted>,
}

/// A key, and what was counted of it.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) key: Key,
    pub(crate) at_least: u64,
    pub(crate) at_most: u64,
}

impl Recent {
    pub(super) fn new(now: Timestamp) -> Self {
        Self::of(now, SLOTS)
    }

    fn of(now: Timestamp, slots: usize) -> Self {
        Self {
            began_at: now,
            current: SpaceSaving::new(slots),
            previous: SpaceSaving::new(slots),
            since: now,
        }
    }

    pub(super) fn add(&mut self, key: &Key, units: u64, at: Timestamp) {
        self.go_on_to(at);
        self.current.add(key, units);
    }

    /// All that are here, in no order: at most twice as many as there are slots.
    pub(super) fn all(&mut self, now: Timestamp) -> Top {
        self.go_on_to(now);
        let sketches = [&self.current, &self.previous];
        let keys: HashSet<&Key> = sketches.iter().flat_map(|sketch| sketch.keys()).collect();
        let counted = |key: &Key| {
            let [current, previous] = sketches.map(|sketch| sketch.bounds(key));
            Counted {
                key: key.clone(),
                at_least: current.0.saturating_add(previous.0),
                at_most: current.1.saturating_add(previous.1),
            }
        };
        let keys = keys.into_iter().map(counted).collect();
        let sum = |[one, other]: [u64; 2]| one.saturating_add(other);
        Top {
            since: self.since,
            total: sum(sketches.map(SpaceSaving::total)),
            missing_at_most: sum(sketches.map(SpaceSaving::missing_at_most)),
            keys,
        }
    }

    /// Begins a new period when it is time to, and forgets the one before the last.
    fn go_on_to(&mut self, now: Timestamp) {
        if now.saturating_add(PERIOD) < self.began_at {
            // The clock was set back: the period is not to last until it has caught up.
            self.began_at = now;
            self.since = self.since.min(now);
            return;
        }
        let elapsed = now.saturating_duration_since(self.began_at);
        if elapsed < PERIOD {
            return;
        }
        mem::swap(&mut self.current, &mut self.previous);
        self.current.clear();
        self.since = self.began_at;
        self.began_at = self.began_at.saturating_add(PERIOD);
        if elapsed >= 2 * PERIOD {
            self.previous.clear();
            self.began_at = now;
            self.since = now;
        }
    }
}

impl Top {
    /// That with the most first.
    pub(super) fn sorted(mut self) -> Self {
        self.keys.sort_unstable_by(Counted::most_first);
        self
    }
}

impl Counted {
    /// What is certain comes first, and of equals the order of the texts.
    pub(crate) fn most_first(&self, other: &Self) -> std::cmp::Ordering {
        let rank = |counted: &Self| (counted.at_least, counted.at_most);
        rank(other)
            .cmp(&rank(self))
            .then_with(|| self.key.cmp(&other.key))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const MINUTE: i64 = 60_000;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_unix_millis(minutes * MINUTE)
    }

    fn key(number: u16) -> Key {
        Key::new("user", number)
    }

    fn of(recent: &mut Recent, minutes: i64) -> Vec<(String, u64)> {
        let top = recent.all(at(minutes)).sorted();
        let keys = top.keys.iter();
        keys.map(|counted| (counted.key.as_str().to_owned(), counted.at_least))
            .collect()
    }

    #[test]
    fn a_key_that_has_stopped_is_forgotten_after_half_an_hour_at_most() {
        let mut recent = Recent::new(at(0));
        recent.add(&key(1), 5, at(0));
        recent.add(&key(2), 9, at(14));
        recent.add(&key(1), 5, at(16));
        let both = vec![("user:1".to_owned(), 10), ("user:2".to_owned(), 9)];
        assert_eq!(of(&mut recent, 29), both);
        assert_eq!(recent.all(at(29)).since, at(0));
        assert_eq!(of(&mut recent, 30), [("user:1".to_owned(), 5)]);
        assert_eq!(recent.all(at(44)).since, at(15));
        assert_eq!(of(&mut recent, 75), []);
        assert_eq!(recent.all(at(75)).since, at(75));
    }

    #[test]
    fn a_clock_that_is_set_back_keeps_no_period_open_until_it_has_caught_up() {
        let mut recent = Recent::new(at(600));
        recent.add(&key(1), 5, at(600));
        // A little earlier is usual: decisions overtake each other.
        recent.add(&key(1), 1, at(590));
        recent.add(&key(1), 1, at(0));
        let top = recent.all(at(0));
        assert_eq!((top.total, top.since), (7, at(0)));
        assert_eq!(recent.all(at(31)).total, 0);
    }

    proptest! {
        #[test]
        fn the_bounds_hold_what_was_counted_since(
            slots in 1_usize..12,
            charges in proptest::collection::vec((prop_oneof![0_u16..3, 0_u16..60], 1_u64..9, 0_i64..4), 0..300),
            rest in 0_i64..40,
        ) {
            let mut recent = Recent::of(at(0), slots);
            let mut now = 0;
            let mut all = Vec::new();
            for (number, units, minutes) in charges {
                now += minutes;
                recent.add(&key(number), units, at(now));
                all.push((number, units, at(now)));
            }
            now += rest;
            let top = recent.all(at(now));
            prop_assert!(at(now).saturating_duration_since(top.since) < 2 * PERIOD);
            let mut exact: HashMap<u16, u64> = HashMap::new();
            for (number, units, at) in all.into_iter().filter(|(.., at)| *at >= top.since) {
                let _ = at;
                *exact.entry(number).or_default() += units;
            }
            prop_assert_eq!(top.total, exact.values().sum::<u64>());
            for (number, units) in exact {
                match top.keys.iter().find(|counted| counted.key == key(number)) {
                    Some(counted) => prop_assert!((counted.at_least..=counted.at_most).contains(&units)),
                    None => prop_assert!(units <= top.missing_at_most),
                }
            }
        }
    }
}
