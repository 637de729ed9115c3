//! The cap on rows of a database in memory.

use std::time::Duration;

use super::ledger::{self, Cap};
use super::tables::unsigned;
use super::{Database, upsert};
use crate::clock::Clock;
use crate::limit::algorithm::State;
use crate::limit::{Policy, Timestamp};
use crate::store::engine::{Batch, Charged};
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

/// Expired rows of all tables, up to `$2` of each.
const EVICT_EXPIRED: [&str; 3] = [
    "DELETE FROM rate_limit_windows WHERE (policy, key, window_start) IN (
        SELECT policy, key, window_start FROM rate_limit_windows WHERE expires_at <= $1 LIMIT $2)",
    "DELETE FROM rate_limit_events WHERE (policy, key, at) IN (
        SELECT policy, key, at FROM rate_limit_events WHERE expires_at <= $1 LIMIT $2)",
    "DELETE FROM rate_limit_buckets WHERE (policy, key) IN (
        SELECT policy, key FROM rate_limit_buckets WHERE expires_at <= $1 LIMIT $2)",
];

/// Up to `$2` rows, or keys, of each table that hold out no longer than `$1`. A refusal keeps all windows of its key, since that
/// of a sliding counter is due to the one before. Of the events it is the newest row that tells.
const EVICT: [&str; 3] = [
    "DELETE FROM rate_limit_windows WHERE (policy, key, window_start) IN (
        SELECT policy, key, window_start FROM rate_limit_windows AS row
        WHERE iif(used >= last_limit, 2, used > 1) <= $1 AND NOT EXISTS (
            SELECT 1 FROM rate_limit_windows WHERE policy = row.policy AND key = row.key AND denied > 0)
        LIMIT $2)",
    "DELETE FROM rate_limit_events WHERE (policy, key) IN (
        SELECT policy, key FROM rate_limit_events AS newest
        WHERE hold <= $1 AND at = (
            SELECT max(at) FROM rate_limit_events WHERE policy = newest.policy AND key = newest.key)
        LIMIT $2)",
    "DELETE FROM rate_limit_buckets WHERE (policy, key) IN (
        SELECT policy, key FROM rate_limit_buckets WHERE hold <= $1 LIMIT $2)",
];

const COUNT: &str = "
SELECT (SELECT count(*) FROM rate_limit_windows)
    + (SELECT count(*) FROM rate_limit_events)
    + (SELECT count(*) FROM rate_limit_buckets)
";

#[cfg(test)]
pub(super) fn statements() -> impl Iterator<Item = &'static str> {
    EVICT_EXPIRED.into_iter().chain(EVICT).chain([COUNT])
}

/// How long a row holds out when there is no room. What was refused never goes before it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hold {
    /// A single unit is used, which is what a flood of made-up keys consists of.
    OneUnit,
    /// Some are used, and some are left.
    Some,
    /// All are used, and would be had once more.
    All,
    Refused,
}

impl Hold {
    pub(super) fn of(state: &State, fits: bool, policy: &Policy, now: Timestamp) -> Self {
        if !fits {
            return Self::Refused;
        }
        match (state.used(policy, now), state.remaining(policy, now)) {
            (_, 0) => Self::All,
            (0 | 1, _) => Self::OneUnit,
            _ => Self::Some,
        }
    }

    /// As it is stored in `hold`.
    pub(super) fn rank(self) -> u8 {
        self as u8
    }
}

/// How many rows there are, and how many there may be. No other connection sees a database in memory, so that there are
/// never more than are counted.
pub(super) struct Room {
    max_rows: u64,
    rows: u64,
    full_at: Option<Timestamp>,
    generation: u64,
    /// Whether rows were lost that had not expired, since that was told last.
    has_evicted: bool,
}

impl Room {
    pub(super) fn new(max_rows: u64) -> Self {
        Self {
            max_rows,
            rows: 0,
            full_at: None,
            generation: 0,
            has_evicted: false,
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
        batch: Batch<'_>,
        clock: &Clock,
    ) -> Result<Charged, StoreError> {
        let is_asked = !self.is_nearly_full();
        let ahead = if is_asked { batch.ahead } else { &[] };
        let batch = Batch { ahead, ..batch };
        if upsert::can_charge(batch) {
            return self.upsert(database, batch, clock.now()).await;
        }
        let applied = self.charge_by_ledger(database, batch, clock).await?;
        Ok(Charged {
            has_evicted: std::mem::take(&mut self.has_evicted),
            is_nearly_full: self.is_nearly_full(),
            ..Charged::of(applied.answers, applied.grants)
        })
    }

    async fn charge_by_ledger(
        &mut self,
        database: &mut Database,
        batch: Batch<'_>,
        clock: &Clock,
    ) -> Result<ledger::Applied, StoreError> {
        let cap = |room: &Self, is_last_attempt| {
            Some(Cap {
                rows_left: room.max_rows.saturating_sub(room.rows),
                is_last_attempt,
            })
        };
        let mut applied = ledger::charge(database, batch, clock, cap(self, false)).await?;
        if applied.is_none() {
            let now = clock.now();
            if !self.is_known_full(now) {
                let parts = batch.charges.iter().map(|charge| charge.parts.len() as u64);
                self.evict(database, now, parts.sum()).await?;
            }
            // Where room must be made, nothing is granted ahead.
            let batch = Batch {
                ahead: &[],
                ..batch
            };
            applied = ledger::charge(database, batch, clock, cap(self, true)).await?;
            let is_full = |answer: &Result<_, _>| matches!(answer, Err(StoreError::Full));
            if applied
                .iter()
                .any(|applied| applied.answers.iter().any(is_full))
            {
                self.full_at = Some(now);
            }
        }
        self.notice_new_database(database);
        // The last attempt applies what fits.
        let applied = applied.ok_or(StoreError::Full)?;
        self.rows += applied.new_rows;
        self.deleted(applied.deleted_rows);
        Ok(applied)
    }

    fn notice_new_database(&mut self, database: &Database) {
        if self.generation != database.generation() {
            // It was opened for this batch: it holds nothing else.
            *self = Self::new(self.max_rows);
            self.generation = database.generation();
            self.has_evicted = true;
        }
    }

    async fn upsert(
        &mut self,
        database: &mut Database,
        batch: Batch<'_>,
        now: Timestamp,
    ) -> Result<Charged, StoreError> {
        let Batch { charges, ahead } = batch;
        let mut merged = Merged::of(charges.iter(), ahead, now);
        let mut admitted = vec![true; charges.len()];
        let mut limited = None;
        if !self.has_room_for(merged.len() as u64) {
            (admitted, limited) = self.make_room(database, charges, now).await?;
            let rest = charges
                .iter()
                .zip(&admitted)
                .filter(|(_, is_admitted)| **is_admitted);
            let rest: Vec<_> = rest.map(|(charge, _)| charge).collect();
            // Where room must be made, nothing is granted ahead.
            merged = Merged::of(rest.into_iter(), &[], now);
        }
        let applied = upsert::charge(database, &merged).await?;
        self.notice_new_database(database);
        let runs = merged.groups.iter().flat_map(|group| {
            let cost = u64::from(group.cost);
            group
                .runs
                .iter()
                .map(move |run| cost * u64::from(run.length))
        });
        // A row that holds just what this batch asked for is a new one: a reset one has an epoch.
        let new = runs.zip(&applied).filter(|(units, applied)| {
            let all = applied.after.used + applied.after.denied;
            applied.after.epoch == 0 && all == *units + u64::from(applied.extra)
        });
        self.rows += new.count() as u64;
        let Charged {
            answers, grants, ..
        } = merged.charged(&applied);
        let mut answers = answers.into_iter();
        let charges = limited.as_deref().unwrap_or(charges);
        let answer = |(charge, has_room): (&Charge, bool)| {
            let answer = if has_room { answers.next() } else { None };
            answer.unwrap_or_else(|| without_room(charge, now))
        };
        Ok(Charged {
            answers: charges.iter().zip(admitted).map(answer).collect(),
            grants,
            has_evicted: std::mem::take(&mut self.has_evicted),
            is_nearly_full: self.is_nearly_full(),
        })
    }

    /// Whether rows will soon have to go, and with them what is known of units that were charged ahead.
    fn is_nearly_full(&self) -> bool {
        let at_once = EVICTED_AT_ONCE.min(self.max_rows / PART_OF_CAP);
        self.rows.saturating_add(2 * at_once) > self.max_rows
    }

    fn has_room_for(&self, rows: u64) -> bool {
        self.rows.saturating_add(rows) <= self.max_rows
    }

    fn is_known_full(&self, now: Timestamp) -> bool {
        self.full_at.is_some_and(|full_at| {
            full_at <= now && now < full_at.saturating_add(SEARCHED_AGAIN_AFTER)
        })
    }

    /// Deletes rows until the charges have room. Says which of them have it: all, or else those that have a row; and what the
    /// charges are under limits that were set at run time, if any were.
    async fn make_room(
        &mut self,
        database: &mut Database,
        charges: &[Charge],
        now: Timestamp,
    ) -> Result<(Vec<bool>, Option<Vec<Charge>>), StoreError> {
        let (is_known, limited) = ledger::known(database, charges, now).await?;
        if self.has_room_for(new_rows(charges, &is_known, now)) {
            return Ok((vec![true; charges.len()], None));
        }
        if self.is_known_full(now) {
            return Ok((is_known, limited));
        }
        self.evict(database, now, new_rows(charges, &is_known, now))
            .await?;
        // What was evicted may be of this batch.
        let (is_known, limited) = ledger::known(database, charges, now).await?;
        if self.has_room_for(new_rows(charges, &is_known, now)) {
            return Ok((vec![true; charges.len()], None));
        }
        self.full_at = Some(now);
        Ok((is_known, limited))
    }

    async fn evict(
        &mut self,
        database: &mut Database,
        now: Timestamp,
        wanted: u64,
    ) -> Result<(), StoreError> {
        let at_once = EVICTED_AT_ONCE.min(self.max_rows / PART_OF_CAP).max(wanted);
        let at_once = i64::try_from(at_once).unwrap_or(i64::MAX);
        // Resets and clocks that step delete rows too, which nobody counts.
        let count = database.read(sqlx::query(COUNT)).await?;
        self.rows = count.first().map_or(Ok(0), |row| unsigned(row, 0))?;
        for statement in EVICT_EXPIRED {
            let query = sqlx::query(statement).bind(now.unix_millis()).bind(at_once);
            self.deleted(database.execute(query).await?);
        }
        let goal = self.max_rows.saturating_sub(at_once.unsigned_abs());
        for hold in [Hold::OneUnit, Hold::Some, Hold::All] {
            for statement in EVICT {
                self.evict_down_to(goal, database, statement, hold).await?;
            }
            if self.has_room_for(wanted) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Evicts keys of a table, one at first since a key may have many rows, and twice as many when they do not.
    async fn evict_down_to(
        &mut self,
        goal: u64,
        database: &mut Database,
        statement: &'static str,
        hold: Hold,
    ) -> Result<(), StoreError> {
        let mut keys = 1;
        while self.rows > goal {
            let query = sqlx::query(statement)
                .bind(i64::from(hold.rank()))
                .bind(keys.min(self.rows - goal).cast_signed());
            let deleted = database.execute(query).await?;
            if deleted == 0 {
                break;
            }
            self.has_evicted = true;
            self.deleted(deleted);
            if deleted <= keys {
                keys *= 2;
            }
        }
        Ok(())
    }
}

/// The answer to a charge of a key that has no row, and gets none: refused if it would be anyway. A refusal is an answer also
/// when there is no room to count it.
fn without_room(charge: &Charge, now: Timestamp) -> Result<Outcome, StoreError> {
    let unused = charge.parts.map(|part| part.unused(now));
    let found = charge.look(now, &unused);
    if found.iter().all(|found| found.fits) {
        return Err(StoreError::Full);
    }
    Ok(Outcome { at: now, found })
}

/// How many rows the charges need that are not there.
fn new_rows(charges: &[Charge], is_known: &[bool], now: Timestamp) -> u64 {
    let new = charges
        .iter()
        .zip(is_known)
        .filter(|(_, is_known)| !**is_known);
    let new: Vec<_> = new.map(|(charge, _)| charge).collect();
    Merged::of(new.into_iter(), &[], now).len() as u64
}
