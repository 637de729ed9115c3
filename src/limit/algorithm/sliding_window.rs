//! The exact sliding window: never more than the limit in any window, whatever its position.
//!
//! Each admitted charge is an event. An event keeps, beside its units, the running total of the key: what lies inside a
//! window is then `newest.total - first.total + first.units`, two look-ups however many events there are. Since only
//! differences count, any event that has left the window may be deleted at any time.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Placed, place};
use crate::limit::Timestamp;

/// Units that were admitted in one millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: Timestamp,
    pub(crate) units: u64,
    /// The units of this event and of all before it, from an arbitrary beginning.
    pub(crate) total: i64,
}

/// What a decision needs to know of a key's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    /// The instant of the decision, or that of the newest event when that is slightly later.
    pub(crate) at: Timestamp,
    /// Units inside the window that ends at `at`.
    pub(crate) used: u64,
    /// The oldest event inside: its instant, and its units.
    pub(crate) first: Option<(Timestamp, u64)>,
    /// The instant of the newest event inside.
    pub(crate) newest: Option<Timestamp>,
    /// The instant of the newest event before that of the decision.
    pub(crate) newest_before: Option<Timestamp>,
    /// The event after whose leaving a refused charge fits, when it takes more than the first one.
    pub(crate) leaves: Option<Timestamp>,
    /// The clock has stepped back behind events, and they were moved to now: that must be stored also when nothing is
    /// used.
    pub(crate) is_moved: bool,
}

impl Log {
    /// What is known from the newest event of all, and from the first one inside the window.
    pub(crate) fn of(now: Timestamp, newest: Option<Event>, first: Option<Event>) -> Self {
        let Some(newest) = newest else {
            return Self {
                at: now,
                used: 0,
                first: None,
                newest: None,
                newest_before: None,
                leaves: None,
                is_moved: false,
            };
        };
        let Placed { at, is_moved } = place(now, newest.at);
        let used = first.map_or(0, |first| {
            let after_first = newest.total.wrapping_sub(first.total);
            u64::try_from(after_first)
                .unwrap_or(0)
                .saturating_add(first.units)
        });
        Self {
            at,
            used,
            // What is ahead of a clock that has stepped back is moved to now.
            first: first.map(|first| {
                if first.at <= at {
                    (first.at, first.units)
                } else {
                    (at, used)
                }
            }),
            newest: first.map(|_| newest.at.min(at)),
            newest_before: None,
            leaves: None,
            is_moved,
        }
    }

    /// Whether `cost` units still fit.
    pub(crate) fn fits(self, limit: u32, cost: u32) -> bool {
        self.used.saturating_add(u64::from(cost)) <= u64::from(limit) || cost == 0
    }

    pub(crate) fn take(&mut self, cost: u32) {
        let units = u64::from(cost);
        self.used = self.used.saturating_add(units);
        self.newest_before = self.newest.filter(|newest| *newest < self.at);
        self.newest = Some(self.at);
        match &mut self.first {
            None => self.first = Some((self.at, units)),
            Some((at, first)) if *at == self.at => *first = first.saturating_add(units),
            Some(_) => {}
        }
    }

    /// Takes back units of the event of the decision itself, never below zero.
    pub(crate) fn give_back(&mut self, units: u32) {
        let units = u64::from(units).min(self.used);
        self.used -= units;
        if let Some((at, first)) = &mut self.first
            && *at == self.at
        {
            *first = first.saturating_sub(units);
        }
        if self.used == 0 {
            (self.first, self.newest) = (None, None);
        } else if let Some(before) = self.newest_before {
            self.newest = Some(before);
        }
    }

    /// How many units must leave until `cost` units fit, when it takes more than the first event.
    pub(crate) fn wanted(self, limit: u32, cost: u32) -> Option<u64> {
        let wanted = self.must_leave(limit, cost);
        let first = self.first.map_or(0, |(_, units)| units);
        (cost <= limit && wanted > first).then_some(wanted)
    }

    /// The milliseconds from `now` until `cost` units fit, if nobody else uses the key.
    pub(crate) fn fits_after(self, limit: u32, cost: u32, window: Duration, now: Timestamp) -> u64 {
        if self.must_leave(limit, cost) == 0 {
            return 0;
        }
        let first = self.first.map(|(at, _)| at);
        let leaves = match self.wanted(limit, cost) {
            Some(_) => self.leaves.or(self.newest),
            None => first,
        };
        leaves.map_or(0, |leaves| leaves.saturating_add(window).millis_since(now))
    }

    /// The milliseconds from `now` until nothing is used.
    pub(crate) fn empty_after(self, window: Duration, now: Timestamp) -> u64 {
        self.newest
            .map_or(0, |newest| newest.saturating_add(window).millis_since(now))
    }

    fn must_leave(self, limit: u32, cost: u32) -> u64 {
        self.used
            .saturating_add(u64::from(cost))
            .saturating_sub(u64::from(limit))
    }
}

/// All events of a key, in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events(VecDeque<Event>);

impl Events {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The instants of the events, from the oldest on, and their units.
    #[cfg(feature = "records")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Timestamp, u64)> {
        self.0.iter().map(|event| (event.at, event.units))
    }

    /// Adds an event behind the others.
    #[cfg(feature = "records")]
    pub(crate) fn push(&mut self, at: Timestamp, units: u64) {
        let before = self.0.back().map_or(0, |newest| newest.total);
        let total = before.wrapping_add_unsigned(units);
        self.0.push_back(Event { at, units, total });
    }

    /// What a decision at `now` needs to know. `wanted` is asked how many units must leave.
    pub(crate) fn log(&self, window: Duration, now: Timestamp) -> Log {
        let newest = self.0.back().copied();
        let at = newest.map_or(now, |newest| place(now, newest.at).at);
        Log::of(
            now,
            newest,
            self.first_inside(window, at).map(|i| self.0[i]),
        )
    }

    /// The instant of the event with which `wanted` units have left the window that ends at `log.at`.
    pub(crate) fn leaves(&self, log: &Log, window: Duration, wanted: u64) -> Option<Timestamp> {
        let first = self.first_inside(window, log.at)?;
        let before = self.0[first]
            .total
            .wrapping_sub_unsigned(self.0[first].units);
        let has_left =
            |event: &Event| u64::try_from(event.total.wrapping_sub(before)).unwrap_or(0) >= wanted;
        // Those before the first are told from the rest by a difference below 0.
        let index = self.0.partition_point(|event| !has_left(event));
        self.0.get(index).map(|event| event.at.min(log.at))
    }

    /// Stores what a decision has made of the log: `units` more, and the moves of a clock that has stepped back.
    pub(crate) fn apply(&mut self, log: &Log, window: Duration, units: u64) {
        let total = self.0.back().map_or(0, |newest| newest.total);
        let mut moved = 0_u64;
        while self.0.back().is_some_and(|event| event.at >= log.at) {
            moved = moved.saturating_add(self.0.pop_back().map_or(0, |event| event.units));
        }
        let units_now = moved.saturating_add(units);
        if units_now > 0 {
            self.0.push_back(Event {
                at: log.at,
                units: units_now,
                total: total.wrapping_add_unsigned(units),
            });
        }
        while self
            .0
            .front()
            .is_some_and(|event| !is_inside(*event, window, log.at))
        {
            self.0.pop_front();
        }
    }

    /// Takes units out of the event of an instant, if it is still there, and out of all later totals. An event without units is
    /// none.
    pub(crate) fn give_back(&mut self, at: Timestamp, units: u32) {
        let Ok(index) = self.0.binary_search_by_key(&at, |event| event.at) else {
            return;
        };
        let units = u64::from(units).min(self.0[index].units);
        self.0[index].units -= units;
        for event in self.0.range_mut(index..) {
            event.total = event.total.wrapping_sub_unsigned(units);
        }
        if self.0[index].units == 0 {
            self.0.remove(index);
        }
    }

    fn first_inside(&self, window: Duration, at: Timestamp) -> Option<usize> {
        let index = self
            .0
            .partition_point(|event| !is_inside(*event, window, at));
        (index < self.0.len()).then_some(index)
    }
}

/// An event counts until just before it is a window old.
fn is_inside(event: Event, window: Duration, at: Timestamp) -> bool {
    at.saturating_duration_since(event.at) < window
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_unix_millis(millis)
    }

    /// Charges as a store does.
    fn charge(
        events: &mut Events,
        window: Duration,
        limit: u32,
        cost: u32,
        now: i64,
    ) -> (bool, Log) {
        let mut log = events.log(window, at(now));
        let fits = log.fits(limit, cost);
        if fits {
            log.take(cost);
        } else if let Some(wanted) = log.wanted(limit, cost) {
            log.leaves = events.leaves(&log, window, wanted);
        }
        if fits || log.is_moved {
            events.apply(&log, window, if fits { u64::from(cost) } else { 0 });
        }
        (fits, log)
    }

    #[test]
    fn an_event_stops_counting_exactly_a_window_later() {
        let window = Duration::from_secs(60);
        let mut events = Events::default();
        assert!(charge(&mut events, window, 1, 1, 0).0);
        let (fits, log) = charge(&mut events, window, 1, 1, 59_999);
        assert!(!fits);
        assert_eq!(log.fits_after(1, 1, window, at(59_999)), 1);
        assert!(charge(&mut events, window, 1, 1, 60_000).0);
        assert_eq!(events.len(), 1, "what has left is forgotten");
    }

    #[test]
    fn a_larger_cost_waits_for_as_many_events_as_it_needs() {
        let window = Duration::from_secs(60);
        let mut events = Events::default();
        for second in 0..10 {
            assert!(charge(&mut events, window, 10, 1, second * 1_000).0);
        }
        let (fits, log) = charge(&mut events, window, 10, 4, 10_000);
        assert!(!fits);
        // The fourth event leaves at 63 s.
        assert_eq!(log.fits_after(10, 4, window, at(10_000)), 53_000);
        assert!(!charge(&mut events, window, 10, 4, 62_999).0);
        assert!(charge(&mut events, window, 10, 4, 63_000).0);
    }

    #[test]
    fn a_client_that_keeps_hammering_gets_its_share() {
        let window = Duration::from_secs(60);
        let mut events = Events::default();
        let passed = (0..600).filter(|second| charge(&mut events, window, 10, 1, second * 1_000).0);
        assert_eq!(passed.count(), 100);
    }

    #[test]
    fn a_clock_that_steps_back_far_moves_the_events_to_now() {
        let window = Duration::from_secs(60);
        let mut events = Events::default();
        for millis in 0..3 {
            assert!(charge(&mut events, window, 3, 1, 3_600_000 + millis).0);
        }
        let (fits, log) = charge(&mut events, window, 3, 1, 0);
        assert!(!fits && log.is_moved);
        assert_eq!(log.fits_after(3, 1, window, at(0)), 60_000);
        assert_eq!(events.len(), 1);
        assert!(!charge(&mut events, window, 3, 1, 59_999).0);
        assert!(charge(&mut events, window, 3, 3, 60_000).0);
    }

    /// A record of a database may hold anything.
    #[test]
    fn no_number_of_units_is_too_large_to_be_added_up() {
        let window = Duration::from_secs(60);
        let mut events = Events::default();
        for millis in 0..3 {
            let log = Log {
                newest: None,
                ..events.log(window, at(3_600_000 + millis))
            };
            events.apply(&log, window, u64::MAX);
        }
        assert!(!charge(&mut events, window, 3, 1, 3_600_003).0);
        // It moves them all to one instant.
        assert!(!charge(&mut events, window, 3, 1, 0).0);
        assert_eq!(events.len(), 1);
        assert!(charge(&mut events, window, 3, 1, 60_000).0);
    }

    #[test]
    fn a_small_step_back_counts_as_no_step() {
        let window = Duration::from_secs(60);
        let mut events = Events::default();
        assert!(charge(&mut events, window, 2, 1, 1_000).0);
        let (fits, log) = charge(&mut events, window, 2, 1, 0);
        assert!(fits && !log.is_moved);
        assert_eq!(log.at, at(1_000));
        let (_, log) = charge(&mut events, window, 2, 1, 0);
        assert_eq!(log.fits_after(2, 1, window, at(0)), 61_000);
    }

    #[test]
    fn the_ends_of_time_admit_no_more_than_the_limit() {
        let window = Duration::from_hours(87_840);
        for millis in [i64::MIN, i64::MAX] {
            let mut events = Events::default();
            assert!(charge(&mut events, window, u32::MAX, u32::MAX, millis).0);
            assert!(!charge(&mut events, window, u32::MAX, 1, millis).0);
        }
        let mut events = Events(VecDeque::from([Event {
            at: at(0),
            units: 1,
            total: i64::MAX,
        }]));
        assert!(charge(&mut events, window, 2, 1, 1).0, "the total wraps");
        assert!(!charge(&mut events, window, 2, 1, 1).0);
    }

    proptest! {
        /// As a model that keeps every unit's instant: admitted alike, and let in at the told instant, not before.
        #[test]
        fn it_decides_like_a_list_of_all_instants(
            steps in proptest::collection::vec((0_i64..80, 1_u32..5, 1_u32..9), 1..80),
            window in 1_u64..200,
        ) {
            let length = i64::try_from(window).unwrap();
            let window = Duration::from_millis(window);
            let mut events = Events::default();
            let mut model: Vec<i64> = Vec::new();
            let mut now = 0;
            for (wait, cost, limit) in steps {
                now += wait;
                let inside = |now: i64| model.iter().filter(|at| **at + length > now).count();
                let fits = |now: i64| inside(now) + cost as usize <= limit as usize;
                let expected = fits(now);
                let used = inside(now) as u64;
                let log = events.log(window, at(now));
                prop_assert_eq!(log.used, used);
                let (admitted, log) = charge(&mut events, window, limit, cost, now);
                prop_assert_eq!(admitted, expected);
                if !admitted && cost <= limit {
                    let wait = log.fits_after(limit, cost, window, at(now));
                    let wait = i64::try_from(wait).unwrap();
                    prop_assert!(fits(now + wait));
                    prop_assert!(!fits(now + wait - 1));
                }
                if admitted {
                    model.extend(std::iter::repeat_n(now, cost as usize));
                }
            }
        }
    }
}
