//! `rate_limit_windows`: a counter for each window of a key.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::{Slot, decoding, unsigned};
use crate::limit::algorithm::State;
use crate::limit::algorithm::fixed_window::Usage;
use crate::limit::algorithm::sliding_counter::Pair;
use crate::store::{Part, Reset, StoreError};

/// Reads counters. `$1` is an array of `[policy, key, window_start]`. Without CROSS JOIN the planner may go through the
/// whole table for each element.
pub(in crate::store::sqlite) const SELECT: &str = "
SELECT 0, look.key, used, denied, epoch
FROM json_each($1) AS look
CROSS JOIN rate_limit_windows AS windows
    ON windows.policy = look.value ->> 0
    AND windows.key = look.value ->> 1
    AND windows.window_start = look.value ->> 2
";

/// Writes counters as they are to be. `$1` is an array of `Entry::row`.
pub(in crate::store::sqlite) const INSERT: &str = "
INSERT INTO rate_limit_windows
    (policy, key, window_start, used, denied, granted, epoch, expires_at, last_limit, last_cost)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, 0, value ->> 5, value ->> 6, value ->> 7, value ->> 8
FROM json_each($1)
WHERE true
ON CONFLICT (policy, key, window_start) DO UPDATE SET
    used = excluded.used,
    denied = excluded.denied,
    granted = 0,
    expires_at = max(expires_at, excluded.expires_at),
    last_limit = excluded.last_limit,
    last_cost = excluded.last_cost
";

/// Gives units back. `$1` is an array of `[policy, key, window_start, epoch, units]`. An UPDATE … FROM would go through the
/// whole table.
pub(in crate::store::sqlite) const GIVE_BACK: &str = "
INSERT INTO rate_limit_windows
    (policy, key, window_start, used, denied, granted, epoch, expires_at, last_limit, last_cost)
SELECT
    windows.policy, windows.key, windows.window_start, back.value ->> 4, 0, 0, windows.epoch, windows.expires_at, 0, 0
FROM json_each($1) AS back
CROSS JOIN rate_limit_windows AS windows
    ON windows.policy = back.value ->> 0
    AND windows.key = back.value ->> 1
    AND windows.window_start = back.value ->> 2
    AND windows.epoch = back.value ->> 3
WHERE true
ON CONFLICT (policy, key, window_start) DO UPDATE SET used = max(0, used - excluded.used)
";

/// Counts units that were refused without asking, where their window is still counted. `$1` is an array of `[policy, key,
/// window_start, epoch, units]`.
pub(in crate::store::sqlite) const COUNT_REFUSED: &str = "
INSERT INTO rate_limit_windows
    (policy, key, window_start, used, denied, granted, epoch, expires_at, last_limit, last_cost)
SELECT
    windows.policy, windows.key, windows.window_start, 0, refused.value ->> 4, 0, windows.epoch, windows.expires_at, 0, 0
FROM json_each($1) AS refused
CROSS JOIN rate_limit_windows AS windows
    ON windows.policy = refused.value ->> 0
    AND windows.key = refused.value ->> 1
    AND windows.window_start = refused.value ->> 2
    AND windows.epoch = refused.value ->> 3
WHERE true
ON CONFLICT (policy, key, window_start) DO UPDATE SET denied = min(9007199254740991, denied + excluded.denied)
";

/// Resets the counters of the keys from `$2` to `$3`, both included, and below `$4`, and tells those of the windows `$5`
/// and `$6`.
pub(super) const RESET: &str = "
BEGIN IMMEDIATE;
SELECT key, window_start, used FROM rate_limit_windows
WHERE policy = $1 AND key >= $2 AND key <= $3 AND key < $4 AND window_start IN ($5, $6)
ORDER BY key, window_start;
UPDATE rate_limit_windows SET used = 0, denied = 0, granted = 0, epoch = epoch + 1
WHERE policy = $1 AND key >= $2 AND key <= $3 AND key < $4;
INSERT INTO rate_limit_changes (kind, policy, first_key, last_key) VALUES (2, $1, $2, $3);
DELETE FROM rate_limit_changes WHERE seq <= (SELECT max(seq) FROM rate_limit_changes) - 10000;
COMMIT
";

/// The key that ends a page of the keys after `$2` and below `$3`.
pub(super) const KEY_PAGE_END: &str = "
SELECT key FROM rate_limit_windows
WHERE policy = $1 AND key > $2 AND key < $3
ORDER BY key LIMIT 1 OFFSET $4
";

/// A counter, as a batch finds it and leaves it.
pub(in crate::store::sqlite) struct Entry<'a> {
    /// The part of the charge that came last, for its policy.
    pub(in crate::store::sqlite) part: &'a Part,
    pub(in crate::store::sqlite) start: i64,
    pub(in crate::store::sqlite) expires_at: i64,
    pub(in crate::store::sqlite) usage: Usage,
    pub(in crate::store::sqlite) last_cost: u32,
    pub(in crate::store::sqlite) exists: bool,
    pub(in crate::store::sqlite) is_changed: bool,
}

impl Slot for Entry<'_> {
    fn read(&mut self, row: &SqliteRow) -> Result<(), StoreError> {
        self.exists = true;
        self.usage = Usage {
            used: unsigned(row, 2)?,
            denied: unsigned(row, 3)?,
            epoch: unsigned(row, 4)?,
        };
        Ok(())
    }
}

impl Entry<'_> {
    /// What `SELECT` takes.
    pub(in crate::store::sqlite) fn look(&self) -> (&str, &str, i64) {
        (&self.part.rule.counter, self.part.key.as_str(), self.start)
    }

    /// What `INSERT` takes.
    pub(in crate::store::sqlite) fn row(&self) -> impl serde::Serialize {
        (
            &self.part.rule.counter,
            self.part.key.as_str(),
            self.start,
            self.usage.used,
            self.usage.denied,
            self.usage.epoch,
            self.expires_at,
            self.part.policy().limit(),
            self.last_cost,
        )
    }
}

/// The windows whose counters are in force: the current one, and the one before where that counts too.
pub(super) fn in_force(reset: &Reset) -> [i64; 2] {
    let current = reset.part.span(reset.at).start;
    let previous = match reset.part.unused(reset.at) {
        State::Pair(_) => reset.part.span_before(reset.at).start,
        _ => current,
    };
    [previous.unix_millis(), current.unix_millis()]
}

fn usage(row: &SqliteRow) -> Result<Usage, StoreError> {
    Ok(Usage {
        used: unsigned(row, 2)?,
        ..Usage::default()
    })
}

/// The units in force of the keys that `RESET` told.
pub(super) fn used(reset: &Reset, rows: &[SqliteRow]) -> Result<u64, StoreError> {
    let policy = reset.part.policy();
    let [previous, current] = in_force(reset);
    let mut units: u64 = 0;
    let mut rows = rows.iter().peekable();
    while let Some(row) = rows.next() {
        let key: &str = row.try_get(0).map_err(decoding)?;
        let mut pair = Pair::default();
        let start: i64 = row.try_get(1).map_err(decoding)?;
        if start == current {
            pair.current = usage(row)?;
        } else {
            pair.previous = usage(row)?;
            if let Some(next) =
                rows.next_if(|next| next.try_get(0).is_ok_and(|next: &str| next == key))
            {
                pair.current = usage(next)?;
            }
        }
        let state = if previous == current {
            State::Window(pair.current)
        } else {
            State::Pair(pair)
        };
        units = units.saturating_add(state.used(policy, reset.at));
    }
    Ok(units)
}
