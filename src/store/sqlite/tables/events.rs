//! `rate_limit_events`: what an exact sliding window admitted, with a running total.
//!
//! What lies inside a window is `newest.total - first.total + first.units`, so a decision takes two steps down the index,
//! however many events there are; and any event that has left the window may be deleted at any time.

use std::time::Duration;

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::{Slot, decoding, unsigned};
use crate::limit::Timestamp;
use crate::limit::algorithm::State;
use crate::limit::algorithm::sliding_window::{Event, Log};
use crate::limit::timestamp::millis;
use crate::store::{Part, Reset, StoreError};

/// Beyond it a key's totals begin anew, long before they could overflow.
const LARGEST_TOTAL: i64 = 1 << 62;
/// A key's own charge deletes what has left its window whenever so many units, or half of the limit, were admitted.
const TRIMMED_AFTER: u32 = 64;

/// Reads of each key the newest event, and the first one inside the window that ends at `$4`, or at the newest event when
/// that is later. `$2` is an array of `[policy, key, window]`.
pub(in crate::store::sqlite) const SELECT: &str = "
SELECT
    1, look.key, newest.at, newest.units, newest.total, newest.hold, first.at, first.units, first.total
FROM json_each($2) AS look
CROSS JOIN rate_limit_events AS newest
    ON newest.policy = look.value ->> 0 AND newest.key = look.value ->> 1
    AND newest.at = (
        SELECT max(at) FROM rate_limit_events
        WHERE policy = look.value ->> 0 AND key = look.value ->> 1)
LEFT JOIN rate_limit_events AS first
    ON first.policy = look.value ->> 0 AND first.key = look.value ->> 1
    AND first.at = (
        SELECT min(at) FROM rate_limit_events
        WHERE policy = look.value ->> 0 AND key = look.value ->> 1
            AND at > max(newest.at, $4) - (look.value ->> 2))
";

/// Adds units to the events of an instant, and sets the total. `$2` is an array of `Entry::row`.
pub(in crate::store::sqlite) const INSERT: &str = "
INSERT INTO rate_limit_events (policy, key, at, units, total, hold, expires_at)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6
FROM json_each($2)
WHERE true
ON CONFLICT (policy, key, at) DO UPDATE SET
    units = units + excluded.units,
    total = excluded.total,
    hold = excluded.hold,
    expires_at = max(expires_at, excluded.expires_at)
";

/// Deletes what has left the windows of some keys, and says how many rows those were. `$3` is an array of
/// `[policy, key, until]`.
pub(in crate::store::sqlite) const TRIM: &str = "
DELETE FROM rate_limit_events WHERE (policy, key, at) IN (
    SELECT events.policy, events.key, events.at
    FROM json_each($3) AS trim
    CROSS JOIN rate_limit_events AS events
        ON events.policy = trim.value ->> 0 AND events.key = trim.value ->> 1 AND events.at <= trim.value ->> 2
    LIMIT 1000);
SELECT changes() WHERE $3 <> '[]'
";

/// Counts the events of each key from an instant on, up to `$4`, and finds the one after so many. `$1` is an array of
/// `[policy, key, from]`.
pub(in crate::store::sqlite) const LATER: &str = "
SELECT
    0, look.key,
    (SELECT count(*) FROM (
        SELECT 1 FROM rate_limit_events
        WHERE policy = look.value ->> 0 AND key = look.value ->> 1 AND at >= look.value ->> 2
        LIMIT $4)),
    (SELECT at FROM rate_limit_events
        WHERE policy = look.value ->> 0 AND key = look.value ->> 1 AND at >= look.value ->> 2
        ORDER BY at LIMIT 1 OFFSET $4)
FROM json_each($1) AS look
";
/// What the rows of `LATER`, and of `OWN`, begin with; those of buckets begin with another number.
pub(in crate::store::sqlite) const LATER_TAG: i64 = 0;
pub(in crate::store::sqlite) const OWN_TAG: i64 = 1;

/// Reads the units of events. `$2` is an array of `[policy, key, at]`.
pub(in crate::store::sqlite) const OWN: &str = "
SELECT 1, look.key, own.units
FROM json_each($2) AS look
CROSS JOIN rate_limit_events AS own
    ON own.policy = look.value ->> 0 AND own.key = look.value ->> 1 AND own.at = look.value ->> 2
";

/// Takes units out of events, which have them. `$2` is an array of `[policy, key, at, units]`.
pub(in crate::store::sqlite) const TAKE_OUT: &str = "
INSERT INTO rate_limit_events (policy, key, at, units, total, hold, expires_at)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, 0, 0, 0
FROM json_each($2)
WHERE true
ON CONFLICT (policy, key, at) DO UPDATE SET units = units - excluded.units
";

/// Lowers the totals of stretches of events. `$3` is an array of `[policy, key, from, to, units]`, of which no two have an event
/// in common.
pub(in crate::store::sqlite) const LOWER: &str = "
INSERT INTO rate_limit_events (policy, key, at, units, total, hold, expires_at)
SELECT events.policy, events.key, events.at, 0, lower.value ->> 4, 0, 0
FROM json_each($3) AS lower
CROSS JOIN rate_limit_events AS events
    ON events.policy = lower.value ->> 0 AND events.key = lower.value ->> 1
    AND events.at >= lower.value ->> 2 AND events.at < lower.value ->> 3
WHERE true
ON CONFLICT (policy, key, at) DO UPDATE SET total = total - excluded.total
";

/// Deletes those events of which nothing is left, and says how many those were. `$2` is as above.
pub(in crate::store::sqlite) const DELETE_EMPTY: &str = "
DELETE FROM rate_limit_events WHERE (policy, key, at) IN (
    SELECT own.policy, own.key, own.at
    FROM json_each($2) AS back
    CROSS JOIN rate_limit_events AS own
        ON own.policy = back.value ->> 0 AND own.key = back.value ->> 1 AND own.at = back.value ->> 2
    WHERE own.units = 0);
SELECT changes()
";

/// The clock has stepped back: of each key, moves the events that are later than `$2` to `$2`, as one. What had left the
/// window before is deleted, or it would be inside again. `$1` is an array of `[policy, key, expires_at, left]`, the last
/// being the instant up to which events had left.
pub(in crate::store::sqlite) const MOVE: &str = "
INSERT INTO rate_limit_events (policy, key, at, units, total, hold, expires_at)
SELECT events.policy, events.key, $2, sum(units), max(total), max(hold), move.value ->> 2
FROM json_each($1) AS move
CROSS JOIN rate_limit_events AS events
    ON events.policy = move.value ->> 0 AND events.key = move.value ->> 1
    AND events.at > max($2, move.value ->> 3)
GROUP BY move.key
ON CONFLICT (policy, key, at) DO UPDATE SET
    units = units + excluded.units,
    total = excluded.total,
    hold = excluded.hold,
    expires_at = excluded.expires_at;
DELETE FROM rate_limit_events WHERE (policy, key, at) IN (
    SELECT events.policy, events.key, events.at
    FROM json_each($1) AS move
    CROSS JOIN rate_limit_events AS events
        ON events.policy = move.value ->> 0 AND events.key = move.value ->> 1
    WHERE events.at > $2 OR (events.at <= move.value ->> 3 AND events.at < $2))
";

/// Takes `$3` off the totals of a key.
pub(in crate::store::sqlite) const REBASE: &str = "
UPDATE rate_limit_events SET total = total - $3 WHERE policy = $1 AND key = $2
";

/// Finds the event with which a total is reached, by halving the time between `from` and `to`: a step down the index for
/// each bit of it, however many events lie between. `$1` is an array of `[policy, key, from, to, total]`.
///
/// Each halving is two rows: one that looks whether the total is reached in the middle, and one that goes on from there.
pub(in crate::store::sqlite) const FIND: &str = "
SELECT wait.key, (
    WITH RECURSIVE search(low, high, reached) AS (
        SELECT wait.value ->> 2, wait.value ->> 3, NULL
        UNION ALL
        SELECT
            CASE reached WHEN 0 THEN low + (high - low) / 2 + 1 ELSE low END,
            CASE reached WHEN 1 THEN low + (high - low) / 2 ELSE high END,
            CASE WHEN reached IS NULL THEN wait.value ->> 4 <= (
                SELECT total FROM rate_limit_events
                WHERE policy = wait.value ->> 0 AND key = wait.value ->> 1 AND at <= low + (high - low) / 2
                ORDER BY at DESC LIMIT 1) END
        FROM search WHERE low < high
    )
    SELECT low FROM search WHERE low >= high LIMIT 1)
FROM json_each($1) AS wait
";

/// Deletes the events of the keys from `$2` to `$3`, both included, and below `$4`, and tells the units of those later
/// than `$5`.
pub(super) const RESET: &str = "
BEGIN IMMEDIATE;
SELECT coalesce(sum(units), 0) FROM rate_limit_events
WHERE policy = $1 AND key >= $2 AND key <= $3 AND key < $4 AND at > $5;
DELETE FROM rate_limit_events
WHERE policy = $1 AND key >= $2 AND key <= $3 AND key < $4;
INSERT INTO rate_limit_changes (kind, policy, first_key, last_key) VALUES (2, $1, $2, $3);
DELETE FROM rate_limit_changes WHERE seq <= (SELECT max(seq) FROM rate_limit_changes) - 10000;
COMMIT
";

/// The key that ends a page of the keys after `$2` and below `$3`.
pub(super) const KEY_PAGE_END: &str = "
SELECT key FROM rate_limit_events
WHERE policy = $1 AND key > $2 AND key < $3
ORDER BY key LIMIT 1 OFFSET $4
";

/// The events of a key, as a batch finds them and leaves them.
pub(in crate::store::sqlite) struct Entry<'a> {
    /// The part of the charge that came last, for its policy.
    pub(in crate::store::sqlite) part: &'a Part,
    now: Timestamp,
    newest: Option<Event>,
    first: Option<Event>,
    /// How long the newest row holds out.
    pub(in crate::store::sqlite) hold: u8,
    pub(in crate::store::sqlite) log: Log,
    /// What was in force before the batch.
    used_before: u64,
    /// What the batch has admitted.
    pub(in crate::store::sqlite) units: u64,
    /// Whether the newest row is to be kept by a cap, though nothing was admitted.
    pub(in crate::store::sqlite) is_held: bool,
}

impl Slot for Entry<'_> {
    fn read(&mut self, row: &SqliteRow) -> Result<(), StoreError> {
        let newest = event(row, 2)?;
        self.hold = u8::try_from(unsigned(row, 5)?).unwrap_or(u8::MAX);
        let has_first = row
            .try_get::<Option<i64>, _>(6)
            .map_err(decoding)?
            .is_some();
        self.first = has_first.then(|| event(row, 6)).transpose()?;
        self.newest = Some(newest);
        self.log = Log::of(self.now, self.newest, self.first);
        self.used_before = self.log.used;
        Ok(())
    }
}

fn event(row: &SqliteRow, column: usize) -> Result<Event, StoreError> {
    let at = row.try_get(column).map_err(decoding)?;
    Ok(Event {
        at: Timestamp::from_unix_millis(at),
        units: unsigned(row, column + 1)?,
        total: row.try_get(column + 2).map_err(decoding)?,
    })
}

impl<'a> Entry<'a> {
    pub(in crate::store::sqlite) fn new(part: &'a Part, now: Timestamp) -> Self {
        Self {
            part,
            now,
            newest: None,
            first: None,
            hold: 0,
            log: Log::of(now, None, None),
            used_before: 0,
            units: 0,
            is_held: false,
        }
    }

    /// Whether there is a row of the instant at which the next unit is stored.
    pub(in crate::store::sqlite) fn has_row(&self) -> bool {
        self.units > 0 || self.newest.is_some_and(|newest| newest.at == self.log.at)
    }

    /// Whether the key has any row.
    pub(in crate::store::sqlite) fn exists(&self) -> bool {
        self.newest.is_some()
    }

    pub(in crate::store::sqlite) fn is_changed(&self) -> bool {
        self.units > 0 || self.is_held
    }

    /// What `MOVE` takes, when the clock has stepped back.
    pub(in crate::store::sqlite) fn moved(&self) -> Option<(&str, &str, i64, i64)> {
        let newest = self.newest?.at.unix_millis();
        let left = newest.saturating_sub(millis(self.window()));
        let state = State::Log(self.log);
        let expires_at = state.expires_at(self.part.policy(), self.log.at);
        self.log.is_moved.then(|| {
            let counter = &*self.part.rule.counter;
            (
                counter,
                self.part.key.as_str(),
                expires_at.unix_millis(),
                left,
            )
        })
    }

    /// What must be taken off the totals before there can be more.
    pub(in crate::store::sqlite) fn excess(&self) -> Option<i64> {
        let total = self.newest?.total;
        (total > LARGEST_TOTAL).then_some(total)
    }

    /// What `SELECT` takes.
    pub(in crate::store::sqlite) fn look(&self) -> (&str, &str, i64) {
        (
            &self.part.rule.counter,
            self.part.key.as_str(),
            millis(self.window()),
        )
    }

    /// What `INSERT` takes: the units go to the instant of the decision, what is only held is the newest row.
    pub(in crate::store::sqlite) fn row(&self) -> impl serde::Serialize {
        let newest = self.newest.map(|newest| newest.at);
        let at = match self.units {
            0 => newest.unwrap_or(self.log.at),
            _ => self.log.at,
        };
        let expires_at = State::Log(self.log).expires_at(self.part.policy(), self.log.at);
        (
            &self.part.rule.counter,
            self.part.key.as_str(),
            at.unix_millis(),
            self.units,
            self.total(),
            self.hold,
            expires_at.unix_millis(),
        )
    }

    /// What `TRIM` takes, when it is time to.
    pub(in crate::store::sqlite) fn trim(&self) -> Option<(&str, &str, i64)> {
        let step = i64::from((self.part.policy().limit() / 2).clamp(1, TRIMMED_AFTER));
        let before = self.newest?.total;
        let is_due = before.div_euclid(step) != self.total().div_euclid(step);
        let until = self
            .log
            .at
            .unix_millis()
            .saturating_sub(millis(self.window()));
        (self.units > 0 && is_due).then(|| {
            let counter = &*self.part.rule.counter;
            (counter, self.part.key.as_str(), until)
        })
    }

    /// What `FIND` takes for the instant at which `wanted` units have left, when that is not the batch's own.
    pub(in crate::store::sqlite) fn find(
        &self,
        wanted: u64,
    ) -> Option<(&'a str, &'a str, i64, i64, i64)> {
        let (newest, first) = (self.newest?, self.first?);
        if wanted > self.used_before {
            return None;
        }
        let before = first.total.wrapping_sub_unsigned(first.units);
        Some((
            &self.part.rule.counter,
            self.part.key.as_str(),
            first.at.unix_millis(),
            newest.at.unix_millis(),
            before.wrapping_add_unsigned(wanted),
        ))
    }

    fn total(&self) -> i64 {
        let total = self.newest.map_or(0, |newest| newest.total);
        total.saturating_add_unsigned(self.units)
    }

    fn window(&self) -> Duration {
        self.part.policy().period()
    }
}

/// The instant after which events are in force.
pub(super) fn in_force_after(reset: &Reset) -> i64 {
    let window = millis(reset.part.policy().period());
    reset.at.unix_millis().saturating_sub(window)
}
