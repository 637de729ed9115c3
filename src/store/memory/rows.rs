//! The counters, what is kept of each, and which go when there are too many.

use std::collections::HashMap;
use std::time::Duration;

use super::kept::{Kept, Place, Row};
use super::set_limits::SetLimits;
use crate::limit::algorithm::block::Block;
use crate::limit::algorithm::fixed_window::Usage;
use crate::limit::algorithm::sliding_counter::Pair;
use crate::limit::algorithm::sliding_window::Events;
use crate::limit::algorithm::token_bucket::Bucket;
use crate::limit::algorithm::{Found, State, Taken};
use crate::limit::few::Few;
use crate::limit::{Key, Timestamp};
use crate::store::{Charge, GiveBack, Outcome, Part, Reset, StoreError};

/// This part of the keys goes at once when the cap is reached, so that the search for them is rare.
const EVICTED_AT_ONCE: usize = 8;
/// Expired keys are looked for after so many new ones.
const SWEPT_EVERY: usize = 4_096;
/// While no room can be made, it is looked for this often.
const SEARCHED_AGAIN_AFTER: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(in crate::store) struct Rows {
    pub(in crate::store) limits: SetLimits,
    pub(super) counters: HashMap<Place, Row>,
    /// The events of all rows beyond the first of each.
    pub(super) events: usize,
    new_since_sweep: usize,
    /// When no room could be made: a flood of new keys must not search for some again and again.
    full_at: Option<Timestamp>,
}

impl Rows {
    /// Charges under the limits that are set.
    pub(in crate::store) fn charge(
        &mut self,
        charge: &Charge,
        at: Timestamp,
        max_keys: usize,
    ) -> Result<Outcome, StoreError> {
        let limited = charge.limited(|part| self.limits.in_force(part, at));
        self.charge_limited(limited.as_ref().unwrap_or(charge), at, max_keys)
    }

    /// Looks under the limits that are set.
    pub(in crate::store) fn look(&self, look: &Charge, at: Timestamp) -> Outcome {
        let limited = look.limited(|part| self.limits.in_force(part, at));
        let look = limited.as_ref().unwrap_or(look);
        let states = look.parts.map(|part| self.state(part, at));
        let mut found = look.look(at, &states);
        self.tell_waits(look, &mut found);
        Outcome { at, found }
    }

    fn charge_limited(
        &mut self,
        charge: &Charge,
        at: Timestamp,
        max_keys: usize,
    ) -> Result<Outcome, StoreError> {
        let states = charge.parts.map(|part| self.state(part, at));
        let mut found = charge.decide(at, &states);
        self.tell_waits(charge, &mut found);
        let is_admitted = found.iter().all(|found| found.fits);
        if let Err(error) = self.make_room(charge, &found, is_admitted, at, max_keys) {
            // A refusal is an answer also when there is no room to count it.
            return if is_admitted {
                Err(error)
            } else {
                Ok(Outcome { at, found })
            };
        }
        let units = if is_admitted { charge.cost } else { 0 };
        for (part, found) in charge.parts.iter().zip(found.iter()) {
            if self.is_changed(part, found, is_admitted, at) {
                self.store(part, at, found, units);
            }
        }
        Ok(Outcome { at, found })
    }

    /// Whether a charge changes what is kept for a part. What another policy refused is left as it is.
    fn is_changed(&self, part: &Part, found: &Found, is_admitted: bool, at: Timestamp) -> bool {
        let state = &found.state;
        if let State::Block(block) = state {
            return block.refused > 0 || self.has(part, at);
        }
        let is_counted = !found.fits && (state.counts_refusals() || self.has(part, at));
        is_admitted || is_counted || state.is_moved()
    }

    fn has(&self, part: &Part, at: Timestamp) -> bool {
        self.counters.contains_key(&Place::of(part, at))
    }

    /// What a key has used as of now.
    pub(super) fn state(&self, part: &Part, at: Timestamp) -> State {
        let policy = part.policy();
        let place = Place::of(part, at);
        let window = |place: &Place| match self.counters.get(place).map(|row| &row.kept) {
            Some(Kept::Window(usage)) => *usage,
            _ => Usage::default(),
        };
        match part.unused(at) {
            State::Window(_) => State::Window(window(&place)),
            State::Pair(_) => State::Pair(Pair {
                current: window(&place),
                previous: window(&Place::of(part, part.span_before(at).start)),
            }),
            unused => match self.counters.get(&place).map(|row| &row.kept) {
                Some(Kept::Events(events)) => State::Log(events.log(policy.period(), at)),
                Some(Kept::Bucket(bucket)) => State::of_bucket(*bucket, policy, at),
                Some(Kept::Block(block)) => {
                    State::Block(Block::as_of(block.refused, block.at, policy, at))
                }
                _ => unused,
            },
        }
    }

    /// Adds to refusals when enough events will have left, where that takes a search.
    fn tell_waits(&self, charge: &Charge, found: &mut Few<Found>) {
        for (part, found) in charge.parts.iter().zip(found.iter_mut()) {
            let (false, State::Log(log)) = (found.fits, &mut found.state) else {
                continue;
            };
            let policy = part.policy();
            let place = Place::of(part, log.at);
            if let Some(wanted) = log.wanted(policy.limit(), charge.cost)
                && let Some(Kept::Events(events)) = self.counters.get(&place).map(|row| &row.kept)
            {
                log.leaves = events.leaves(log, policy.period(), wanted);
            }
        }
    }

    /// Stores what a decision has left.
    pub(super) fn store(&mut self, part: &Part, at: Timestamp, found: &Found, units: u32) {
        let (policy, state) = (part.policy(), &found.state);
        let row = self
            .counters
            .entry(Place::of(part, at))
            .or_insert_with(|| Row {
                kept: match state {
                    State::Window(usage) => Kept::Window(*usage),
                    State::Pair(pair) => Kept::Window(pair.current),
                    State::Log(_) => Kept::Events(Events::default()),
                    State::Bucket(bucket) => Kept::Bucket(*bucket),
                    State::Block(block) => Kept::Block(*block),
                },
                is_used_up: false,
                was_refused: false,
                expires_at: at,
            });
        let more_before = row.more_events();
        match (&mut row.kept, state) {
            (Kept::Window(usage), State::Window(after)) => *usage = *after,
            (Kept::Window(usage), State::Pair(after)) => *usage = after.current,
            (Kept::Events(events), State::Log(log)) => {
                events.apply(log, policy.period(), u64::from(units));
            }
            // A refusal leaves the bucket as it was: another rate may ask next.
            (Kept::Bucket(bucket), State::Bucket(after)) if units > 0 || after.is_moved => {
                *bucket = *after;
            }
            (Kept::Block(block), State::Block(after)) => *block = *after,
            // A counter's name tells its algorithm, so a place never changes what it keeps.
            _ => {}
        }
        self.events = self.events + row.more_events() - more_before;
        row.is_used_up = state.remaining(policy, at) == 0;
        // A window stays what it is until it ends; of the others a refusal is over when there is something left.
        let lasts = state.counts_refusals() || row.is_used_up;
        let is_refusal = !found.fits || matches!(state, State::Block(block) if block.refused > 0);
        row.was_refused = is_refusal || (row.was_refused && lasts);
        row.expires_at = state.expires_at(policy, at);
        if let (false, State::Pair(_)) = (found.fits, state) {
            // It is the window before that refuses.
            let before = Place::of(part, part.span_before(at).start);
            if let Some(row) = self.counters.get_mut(&before) {
                row.was_refused = true;
            }
        }
    }

    /// Takes units back where they were taken from.
    pub(in crate::store) fn give_back(&mut self, back: &GiveBack, now: Timestamp) {
        let place = Place {
            part: back.part.clone(),
            window_start: match back.from {
                Taken::Window { start, .. } => start.unix_millis(),
                _ => 0,
            },
        };
        let Some(row) = self.counters.get_mut(&place) else {
            return;
        };
        let more_before = row.more_events();
        match (&mut row.kept, back.from) {
            (Kept::Window(usage), Taken::Window { epoch, .. }) if usage.epoch == epoch => {
                usage.give_back(back.units);
            }
            (Kept::Events(events), Taken::Event { at }) => events.give_back(at, back.units),
            (Kept::Bucket(bucket), Taken::Bucket { at }) => {
                *bucket = State::bucket_without(*bucket, back.part.policy(), back.units, at, now);
            }
            (Kept::Block(block), Taken::Refusals { since }) if block.at >= since => {
                block.refused = 0;
                row.was_refused = false;
            }
            _ => return,
        }
        row.is_used_up = false;
        self.events = self.events + row.more_events() - more_before;
    }

    pub(super) fn len(&self) -> usize {
        self.counters.len() + self.events
    }

    #[cfg(test)]
    pub(super) fn counts_are_right(&self) -> bool {
        self.events == self.counters.values().map(Row::more_events).sum::<usize>()
    }

    /// Makes room for what a charge adds.
    fn make_room(
        &mut self,
        charge: &Charge,
        found: &Few<Found>,
        is_admitted: bool,
        now: Timestamp,
        max_keys: usize,
    ) -> Result<(), StoreError> {
        let is_new = |(part, found): &(&Part, &Found)| {
            let is_event = is_admitted && matches!(found.state, State::Log(_));
            self.is_changed(part, found, is_admitted, now) && (is_event || !self.has(part, now))
        };
        let new = charge.parts.iter().zip(found.iter()).filter(is_new).count();
        if new == 0 {
            return Ok(());
        }
        self.new_since_sweep += new;
        if self.len() + new <= max_keys {
            if self.new_since_sweep >= SWEPT_EVERY {
                self.sweep(now);
            }
            return Ok(());
        }
        let is_known_full = self.full_at.is_some_and(|full_at| {
            full_at <= now && now < full_at.saturating_add(SEARCHED_AGAIN_AFTER)
        });
        if !is_known_full {
            self.sweep(now);
            if self.len() + new > max_keys {
                self.evict(charge, max_keys.div_ceil(EVICTED_AT_ONCE).max(new));
            }
            if self.len() + new <= max_keys {
                return Ok(());
            }
            self.full_at = Some(now);
        }
        Err(StoreError::Full)
    }

    /// Forgets keys until `count` rows and events are gone, in the order of their rank, but none of those that are being
    /// charged: what was decided about them stands on their state.
    fn evict(&mut self, charge: &Charge, count: usize) {
        let rank = |place: &Place, row: &Row| {
            let is_charged = charge.parts.iter().any(|part| *part == place.part);
            row.eviction_rank().filter(|_| !is_charged)
        };
        let ranks = self
            .counters
            .iter()
            .filter_map(|(place, row)| Some((rank(place, row)?, 1 + row.more_events())));
        let mut ranks: Vec<_> = ranks.collect();
        ranks.sort_unstable();
        let mut left = count;
        let last = ranks.iter().find(|(_, rows)| {
            left = left.saturating_sub(*rows);
            left == 0
        });
        let Some((last_rank, _)) = last.or(ranks.last()).copied() else {
            return;
        };
        // Those below the last rank first: of those that have it some may stay.
        let mut left = count;
        for goes_whole in [true, false] {
            self.counters.retain(|place, row| {
                let rank = rank(place, row);
                let goes = left > 0
                    && rank
                        .is_some_and(|rank| rank < last_rank || (!goes_whole && rank == last_rank));
                if goes {
                    left = left.saturating_sub(1 + row.more_events());
                    self.events -= row.more_events();
                }
                !goes
            });
        }
    }

    pub(super) fn sweep(&mut self, now: Timestamp) -> u64 {
        self.new_since_sweep = 0;
        let before = self.counters.len();
        self.counters.retain(|_, row| {
            let stays = row.expires_at > now;
            if !stays {
                self.events -= row.more_events();
            }
            stays
        });
        (before - self.counters.len()) as u64
    }

    pub(in crate::store) fn reset(&mut self, reset: &Reset) -> u64 {
        let (from, to) = reset.part.key.under();
        let is_meant = |place: &Place| {
            let key = &place.part.key;
            let is_under = || reset.with_keys_under && (&*from..&*to).contains(&key.as_str());
            place.part.rule == reset.part.rule && (*key == reset.part.key || is_under())
        };
        let places = self
            .counters
            .keys()
            .filter(|place| is_meant(place))
            .cloned();
        let places: Vec<_> = places.collect();
        let mut keys: Vec<_> = places.iter().map(|place| &place.part.key).collect();
        keys.sort_unstable();
        keys.dedup();
        let policy = reset.part.policy();
        let used = |key: &Key| {
            let part = Part {
                key: key.clone(),
                ..reset.part.clone()
            };
            self.state(&part, reset.at).used(policy, reset.at)
        };
        // A record of a database may hold anything.
        let units = keys.into_iter().map(used).fold(0, u64::saturating_add);
        for place in &places {
            let Some(row) = self.counters.get_mut(place) else {
                continue;
            };
            row.was_refused = false;
            row.is_used_up = false;
            match &mut row.kept {
                Kept::Window(usage) => usage.reset(),
                Kept::Bucket(bucket) => *bucket = Bucket::reset(reset.at),
                Kept::Events(_) | Kept::Block(_) => {
                    self.events -= row.more_events();
                    self.counters.remove(place);
                }
            }
        }
        units
    }
}
