//! Rows of another store, for as long as it decides about them here.

use super::kept::{Kept, Place, Row};
use super::rows::Rows;
use super::set_limits::SetLimits;
use crate::limit::algorithm::Found;
use crate::limit::{StoredLimit, Timestamp};
use crate::store::engine::{Ahead, Attempts, Grant};

impl Rows {
    /// Takes in what another store keeps at a place.
    pub(in crate::store) fn put(&mut self, place: Place, kept: Kept, expires_at: Timestamp) {
        let row = Row {
            kept,
            // They only say which rows go first.
            is_used_up: false,
            was_refused: false,
            expires_at,
        };
        self.events += row.more_events();
        self.counters.insert(place, row);
    }

    /// What is kept at a place now, and until when.
    pub(in crate::store) fn kept(&self, place: &Place) -> Option<(&Kept, Timestamp)> {
        let row = self.counters.get(place)?;
        Some((&row.kept, row.expires_at))
    }

    /// Grants what is asked for ahead, up to an eighth of what is left, so that others find some too.
    pub(in crate::store) fn grant(
        &mut self,
        ahead: &Ahead,
        is_worth_it: bool,
        at: Timestamp,
    ) -> Grant {
        let in_force = self.limits.in_force(&ahead.part, at);
        let limited = in_force.map(|in_force| ahead.part.limited(in_force));
        let part = limited.as_ref().unwrap_or(&ahead.part);
        let mut state = self.state(part, at);
        let left = if is_worth_it {
            state.remaining(part.policy(), at)
        } else {
            0
        };
        let units = ahead.units.min(left / 8);
        if units > 0 {
            state.take(units);
            self.store(part, at, &Found::new(true, state), units);
        }
        Grant {
            at,
            span: part.span(at),
            units,
            state,
            in_force,
        }
    }

    /// Counts what was refused without asking, where it is still counted.
    pub(in crate::store) fn count_refused(&mut self, attempts: &Attempts, place: &Place) {
        if let Some(row) = self.counters.get_mut(place)
            && let Kept::Window(usage) = &mut row.kept
            && usage.epoch == attempts.epoch
        {
            usage.count_refused(attempts.units);
        }
    }

    /// Whether something was refused at a place, as far as that is counted, since it began.
    pub(in crate::store) fn has_refused(&self, place: &Place) -> bool {
        match self.counters.get(place).map(|row| &row.kept) {
            Some(Kept::Window(usage)) => usage.denied > 0,
            Some(_) => true,
            None => false,
        }
    }
}

impl SetLimits {
    /// Takes in a limit of another store.
    pub(in crate::store) fn put(&mut self, filed_under: &str, limit: StoredLimit) {
        let key = limit.key().map_or("", |key| key.as_str()).to_owned();
        let of_policy = self.0.entry(filed_under.to_owned()).or_default();
        of_policy.insert(key, limit);
    }
}
