//! The cap on rows of a database in memory.

use std::time::Duration;

use super::{Database, windows};
use crate::limit::Timestamp;
use crate::store::merge::Merged;
use crate::store::{Charge, Outcome, StoreError};

/// Some 40 MB.
pub(super) const DEFAULT_MAX_ROWS: u64 = 1 << 18;
/// So many rows go at once: the search for them is rare then, and takes some milliseconds.
const EVICTED_AT_ONCE: u64 = 4_096;
/// But not more than this part of the cap.
const PART_OF_CAP: u64 = 8;
/// While no room can be made, it is looked for this often: a flood of new keys must not search the table each time.
const SEARCHED_AGAIN_AFTER: Duration = Duration::from_secs(1);

const EVICT_EXPIRED: &str = "
DELETE FROM rate_limit_windows WHERE (policy, key, window_start) IN (
    SELECT policy, key, window_start FROM rate_limit_windows WHERE expires_at <= $1 LIMIT $2
)
";

/// Rows that were never refused, have used at most `$1`, and either have something left (`$2` is 0) or not.
const EVICT: &str = "
DELETE FROM rate_limit_windows WHERE (policy, key, window_start) IN (
    SELECT policy, key, window_start FROM rate_limit_windows
    WHERE denied = 0 AND used <= $1 AND (used >= last_limit) <= $2
    LIMIT $3
)
";

#[cfg(test)]
pub(super) const STATEMENTS: [&str; 2] = [EVICT_EXPIRED, EVICT];

/// How many rows there are, and how many there may be. No other connection sees a database in memory, so the count
/// stays true.
pub(super) struct Room {
    max_rows: u64,
    rows: u64,
    full_at: Option<Timestamp>,
    generation: u64,
}

impl Room {
    pub(super) fn new(max_rows: u64) -> Self {
        Self {
            max_rows,
            rows: 0,
            full_at: None,
            generation: 0,
        }
    }

    /// Notes that rows were deleted.
    pub(super) fn deleted(&mut self, count: u64) {
        self.rows = self.rows.saturating_sub(count);
    }

    /// Applies charges; those that would need a row when there is none left get an error.
    pub(super) async fn charge(
        &mut self,
        database: &mut Database,
        charges: &[Charge],
    ) -> Result<Vec<Result<Outcome, StoreError>>, StoreError> {
        let mut merged = Merged::of(charges);
        let mut admitted = vec![true; charges.len()];
        if !self.has_room_for(merged.len() as u64) {
            let is_known = self.make_room(database, charges).await?;
            admitted = is_known;
        }
        let rest: Vec<Charge>;
        if admitted.contains(&false) {
            rest = charges
                .iter()
                .zip(&admitted)
                .filter(|(_, is_admitted)| **is_admitted)
                .map(|(charge, _)| charge.clone())
                .collect();
            merged = Merged::of(&rest);
        }
        let applied = windows::charge(database, &merged).await?;
        if self.generation != database.generation() {
            // It was opened for this batch: it holds nothing else.
            *self = Self::new(self.max_rows);
            self.generation = database.generation();
        }
        let runs = merged.groups.iter().flat_map(|group| {
            let cost = u64::from(group.like.cost);
            group
                .runs
                .iter()
                .map(move |run| cost * u64::from(run.length))
        });
        // A row that holds just what this batch asked for is a new one: a reset one has an epoch.
        let new = runs.zip(&applied).filter(|(units, applied)| {
            applied.after.epoch == 0 && applied.after.used + applied.after.denied == *units
        });
        self.rows += new.count() as u64;
        let mut outcomes = merged.outcomes(&applied).into_iter();
        Ok(admitted
            .into_iter()
            .map(|is_admitted| {
                let outcome = if is_admitted { outcomes.next() } else { None };
                outcome.ok_or(StoreError::Full)
            })
            .collect())
    }

    fn has_room_for(&self, rows: u64) -> bool {
        self.rows.saturating_add(rows) <= self.max_rows
    }

    /// Deletes rows until the charges have room. Says which of them have it: all, or else those that have a row.
    async fn make_room(
        &mut self,
        database: &mut Database,
        charges: &[Charge],
    ) -> Result<Vec<bool>, StoreError> {
        let is_known = self.known(database, charges).await?;
        if self.has_room_for(new_rows(charges, &is_known)) {
            return Ok(vec![true; charges.len()]);
        }
        let now = charges.iter().map(|charge| charge.at).max();
        let now = now.unwrap_or(Timestamp::from_unix_millis(0));
        let is_known_full = self.full_at.is_some_and(|full_at| {
            full_at <= now && now < full_at.saturating_add(SEARCHED_AGAIN_AFTER)
        });
        if is_known_full {
            return Ok(is_known);
        }
        self.evict(database, now, new_rows(charges, &is_known))
            .await?;
        // What was evicted may be of this batch.
        let is_known = self.known(database, charges).await?;
        if self.has_room_for(new_rows(charges, &is_known)) {
            return Ok(vec![true; charges.len()]);
        }
        self.full_at = Some(now);
        Ok(is_known)
    }

    async fn known(
        &self,
        database: &mut Database,
        charges: &[Charge],
    ) -> Result<Vec<bool>, StoreError> {
        let rows = windows::read(database, charges).await?;
        Ok(rows.iter().map(Option::is_some).collect())
    }

    async fn evict(
        &mut self,
        database: &mut Database,
        now: Timestamp,
        wanted: u64,
    ) -> Result<(), StoreError> {
        let at_once = EVICTED_AT_ONCE.min(self.max_rows / PART_OF_CAP).max(wanted);
        let at_once = i64::try_from(at_once).unwrap_or(i64::MAX);
        let query = sqlx::query(EVICT_EXPIRED)
            .bind(now.unix_millis())
            .bind(at_once);
        self.deleted(database.execute(query).await?);
        // First those that lose a single unit, which is what a flood of made-up keys consists of; at last those that
        // have used all, and would get it once more.
        for (most_used, has_used_all) in [(1, 0), (i64::MAX, 0), (i64::MAX, 1)] {
            if self.has_room_for(wanted) {
                return Ok(());
            }
            let query = sqlx::query(EVICT)
                .bind(most_used)
                .bind(has_used_all)
                .bind(at_once);
            self.deleted(database.execute(query).await?);
        }
        Ok(())
    }
}

/// How many rows the charges need that are not there.
fn new_rows(charges: &[Charge], is_known: &[bool]) -> u64 {
    let new = charges
        .iter()
        .zip(is_known)
        .filter(|(_, is_known)| !**is_known);
    let new: Vec<Charge> = new.map(|(charge, _)| charge.clone()).collect();
    Merged::of(&new).len() as u64
}
