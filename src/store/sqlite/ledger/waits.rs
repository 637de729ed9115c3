//! When refused charges fit, where that takes a search for the event after whose leaving they do.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::states::{Answers, Ledger, Place};
use crate::limit::Timestamp;
use crate::limit::algorithm::{Found, State};
use crate::limit::few::Few;
use crate::store::sqlite::tables::{decoding, json, unsigned};
use crate::store::{Charge, StoreError};

/// So many searches take some 20 ms. Refusals beyond them are told to wait until all has left, which is never too short.
const MOST_SEARCHES: usize = 128;

/// A search, and the refusals that it tells when they are over. Equal ones share it: a client that hammers must not make the
/// database search as often.
pub(super) struct Wait {
    events: usize,
    wanted: u64,
    /// The charge and its part.
    refused: Vec<(usize, usize)>,
}

impl Ledger<'_> {
    /// Notes the refusals of which it takes a search to tell when they are over.
    pub(super) fn note_waits(&mut self, charge: &Charge, index: usize, found: &Few<Found>) {
        let parts = charge.parts.iter().zip(found.iter()).enumerate();
        for (part_index, (part, found)) in parts {
            if let (false, State::Log(log)) = (found.fits, found.state)
                && let Some(wanted) = log.wanted(part.policy().limit(), charge.cost)
                && let Some(Place::Log(events)) = self.places[index].iter().nth(part_index)
            {
                let refused = (index, part_index);
                let same = |wait: &Wait| (wait.events, wait.wanted) == (*events, wanted);
                if let Some(place) = self.waits.iter().position(same) {
                    self.waits[place].refused.push(refused);
                } else if self.waits.len() < MOST_SEARCHES {
                    self.waits.push(Wait {
                        events: *events,
                        wanted,
                        refused: vec![refused],
                    });
                }
            }
        }
    }

    /// What `FIND` takes, if there is anything to find. What is left of the waits is in the same order.
    pub(super) fn finds(&mut self) -> Result<Option<String>, StoreError> {
        let entries = &self.events.entries;
        let find = |wait: &Wait| entries[wait.events].find(wait.wanted);
        self.waits.retain(|wait| find(wait).is_some());
        if self.waits.is_empty() {
            return Ok(None);
        }
        json(&self.waits.iter().filter_map(find).collect::<Vec<_>>()).map(Some)
    }

    pub(super) fn tell_waits(
        &self,
        rows: &[SqliteRow],
        answers: &mut Answers,
    ) -> Result<(), StoreError> {
        for row in rows {
            let index = usize::try_from(unsigned(row, 0)?).unwrap_or(usize::MAX);
            let leaves: Option<i64> = row.try_get(1).map_err(decoding)?;
            let (Some(wait), Some(leaves)) = (self.waits.get(index), leaves) else {
                continue;
            };
            for (charge, part) in &wait.refused {
                if let Some(Ok(outcome)) = answers.get_mut(*charge)
                    && let Some(found) = outcome.found.iter_mut().nth(*part)
                    && let State::Log(log) = &mut found.state
                {
                    log.leaves = Some(Timestamp::from_unix_millis(leaves).min(log.at));
                }
            }
        }
        Ok(())
    }
}
