//! When refused charges fit, where that takes a search for the event after whose leaving they do.

use super::replay::{Replay, Stored};
use crate::limit::algorithm::{Found, State};
use crate::limit::few::Few;
use crate::store::postgres::database::Database;
use crate::store::postgres::rows::{fault, instant};
use crate::store::postgres::sql_state::store_error;
use crate::store::{Charge, Outcome, StoreError, TARGET};

/// So many searches take some 20 ms. Refusals beyond them are told to wait until all has left, which is never too short.
const MOST_SEARCHES: usize = 128;

/// A search, and the refusals that it tells when they are over. Equal ones share it: a client that hammers must not make the
/// database search as often.
pub(super) struct Wait {
    slot: usize,
    wanted: u64,
    /// The charge and its part.
    refused: Vec<(usize, usize)>,
}

impl Replay<'_> {
    /// Notes the refusals of which it takes a search to tell when they are over.
    pub(super) fn note_waits(&mut self, charge: &Charge, index: usize, found: &Few<Found>) {
        let parts = charge.parts.iter().zip(found.iter());
        let places = self.slots.places[index].iter();
        for (part_index, ((part, found), slot)) in parts.zip(places).enumerate() {
            if let (false, State::Log(log)) = (found.fits, found.state)
                && let Some(wanted) = log.wanted(part.policy().limit(), charge.cost)
            {
                let refused = (index, part_index);
                let same = |wait: &&mut Wait| (wait.slot, wait.wanted) == (*slot, wanted);
                if let Some(wait) = self.waits.iter_mut().find(same) {
                    wait.refused.push(refused);
                } else if self.waits.len() < MOST_SEARCHES {
                    self.waits.push(Wait {
                        slot: *slot,
                        wanted,
                        refused: vec![refused],
                    });
                }
            }
        }
    }

    /// Has the server search, when there is anything to find. What it does not find is told to wait until all has left: the batch
    /// is stored, and an error would be about something else.
    pub(super) async fn find_waits(&mut self, database: &mut Database, answers: &mut [Outcome]) {
        if let Err(error) = self.search_waits(database, answers).await {
            tracing::debug!(target: TARGET, "a wait of a rate limit is told too long: {error}");
        }
    }

    async fn search_waits(
        &mut self,
        database: &mut Database,
        answers: &mut [Outcome],
    ) -> Result<(), StoreError> {
        let entries = &self.entries;
        let search = |wait: &Wait| search(&entries[wait.slot].stored, wait.wanted);
        self.waits.retain(|wait| search(wait).is_some());
        if self.waits.is_empty() {
            return Ok(());
        }
        let likes = self
            .waits
            .iter()
            .map(|wait| self.slots.each[wait.slot].like);
        let names = likes.map(|part| (&*part.rule.counter, part.key.as_str()));
        let (policies, keys): (Vec<_>, Vec<_>) = names.unzip();
        let searches: Vec<_> = self.waits.iter().filter_map(search).collect();
        let numbers =
            |of: fn(&(i64, i64, i64)) -> i64| -> Vec<i64> { searches.iter().map(of).collect() };
        let rows = database
            .call(|statements| {
                sqlx::query(statements.find.sql())
                    .bind(policies.clone())
                    .bind(keys.clone())
                    .bind(numbers(|search| search.0))
                    .bind(numbers(|search| search.1))
                    .bind(numbers(|search| search.2))
            })
            .await?;
        let found = rows.first();
        let found = found.ok_or_else(|| fault("a search came back without a row"))?;
        let found: Vec<i64> = sqlx::Row::try_get(found, 0).map_err(store_error)?;
        for (wait, leaves) in self.waits.iter().zip(found) {
            for (charge, part) in &wait.refused {
                if let Some(outcome) = answers.get_mut(*charge)
                    && let Some(found) = outcome.found.iter_mut().nth(*part)
                    && let State::Log(log) = &mut found.state
                {
                    log.leaves = Some(instant(leaves).min(log.at));
                }
            }
        }
        Ok(())
    }
}

/// Between which instants which total is searched for, when that is not the batch's own.
fn search(stored: &Stored, wanted: u64) -> Option<(i64, i64, i64)> {
    let Stored::Log {
        newest: Some(newest),
        first: Some(first),
        used_before,
        ..
    } = stored
    else {
        return None;
    };
    let before = first.total.wrapping_sub_unsigned(first.units);
    let total = before.wrapping_add_unsigned(wanted);
    let between = (first.at.unix_millis(), newest.at.unix_millis());
    (wanted <= *used_before).then_some((between.0, between.1, total))
}
