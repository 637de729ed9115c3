//! What is asked for ahead of the charges that will spend it: read, decided and written with the charges of its batch.

use std::borrow::Cow;

use super::states::{Answers, Ledger};
use crate::limit::algorithm::Found;
use crate::limit::few::Few;
use crate::store::engine::{Batch, Grant, worth_granting};
use crate::store::{Charge, Outcome};

/// The charges of a batch, and behind them what is asked for ahead.
pub(super) fn with_ahead(batch: Batch<'_>) -> Cow<'_, [Charge]> {
    if batch.ahead.is_empty() {
        return Cow::Borrowed(batch.charges);
    }
    let ahead = batch.ahead.iter().map(|ahead| Charge {
        parts: Few::one(ahead.part.clone()),
        cost: ahead.units,
        is_forced: false,
    });
    Cow::Owned(batch.charges.iter().cloned().chain(ahead).collect())
}

impl<'a> Ledger<'a> {
    /// Grants what is asked for ahead, each from what was read in its place behind the charges: up to an eighth of what is left, so
    /// that other processes find some too.
    pub(super) fn grant(
        &mut self,
        ahead: &'a [Charge],
        (charges, answers): (&[Charge], &Answers),
        is_capped: bool,
    ) -> Vec<Grant> {
        let fits = |outcome: &Outcome| outcome.found.iter().all(|found| found.fits);
        let admitted = answers.iter().map(|answer| answer.as_ref().is_ok_and(fits));
        let worth_it = worth_granting(charges.iter().zip(admitted));
        let mut grants = Vec::with_capacity(ahead.len());
        for (index, ask) in ahead.iter().enumerate() {
            let index = charges.len() + index;
            let (part, place) = (ask.parts.first(), *self.places[index].first());
            let mut state = *self.states(ask, index).first();
            // Rows are for charges when there may be no more than so many.
            let has_no_room = is_capped && !self.exists(place);
            let left = if has_no_room || worth_it.get(part) == Some(&false) {
                0
            } else {
                state.remaining(part.policy(), self.now)
            };
            let units = ask.cost.min(left / 8);
            if units > 0 {
                state.take(units);
                self.apply(part, place, &Found::new(true, state), units, 1, is_capped);
            }
            grants.push(Grant {
                at: self.now,
                span: part.span(self.now),
                units,
                state,
                in_force: part.policy().in_force(),
            });
        }
        grants
    }
}
