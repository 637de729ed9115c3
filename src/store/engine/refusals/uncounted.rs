//! What was refused without asking, and is still to be counted.

use std::collections::HashMap;

use crate::limit::Timestamp;
use crate::limit::algorithm::State;
use crate::store::Part;
use crate::store::engine::backend::Attempts;

/// Units that were refused, by the part that has refused them.
#[derive(Default)]
pub(in crate::store::engine) struct Uncounted(HashMap<Part, Vec<Attempts>>);

impl Uncounted {
    pub(in crate::store::engine) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds some, of `most` parts together: of others less is told than was refused.
    pub(in crate::store::engine) fn put(
        &mut self,
        attempts: impl IntoIterator<Item = Attempts>,
        most: usize,
    ) {
        for attempts in attempts {
            if self.0.len() < most || self.0.contains_key(&attempts.part) {
                let of_part = self.0.entry(attempts.part.clone()).or_default();
                of_part.push(attempts);
            }
        }
    }

    /// Units of a part, of the window that it is in.
    pub(in crate::store::engine) fn of(&self, part: &Part, at: Timestamp, state: &State) -> u64 {
        let attempts = self.0.get(part).into_iter().flatten();
        let own = attempts.filter(|attempts| attempts.are_of(part, at, state));
        own.map(|attempts| attempts.units).sum()
    }

    /// Takes out those of `most` parts.
    pub(in crate::store::engine) fn take(&mut self, most: usize) -> Vec<Attempts> {
        if self.0.len() <= most {
            return std::mem::take(&mut self.0)
                .into_values()
                .flatten()
                .collect();
        }
        let parts: Vec<_> = self.0.keys().take(most).cloned().collect();
        let taken = parts.iter().filter_map(|part| self.0.remove(part));
        taken.flatten().collect()
    }
}
