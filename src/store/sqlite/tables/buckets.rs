//! `rate_limit_buckets`: how much of each token bucket is used, as of an instant; and how many refusals a key has had in a row,
//! where they block it.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::{Slot, decoding, unsigned};
use crate::limit::Timestamp;
use crate::limit::algorithm::State;
use crate::limit::algorithm::block::Block;
use crate::limit::algorithm::token_bucket::Bucket;
use crate::store::{Part, Reset, StoreError};

/// Reads buckets. `$3` is an array of `[policy, key]`.
pub(in crate::store::sqlite) const SELECT: &str = "
SELECT 2, look.key, at, used, parts, hold, since
FROM json_each($3) AS look
CROSS JOIN rate_limit_buckets AS buckets
    ON buckets.policy = look.value ->> 0 AND buckets.key = look.value ->> 1
";

/// Writes buckets as they are to be. `$4` is an array of `Entry::row`.
pub(in crate::store::sqlite) const INSERT: &str = "
INSERT INTO rate_limit_buckets (policy, key, at, used, parts, hold, expires_at, since)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7
FROM json_each($4)
WHERE true
ON CONFLICT (policy, key) DO UPDATE SET
    at = excluded.at,
    used = excluded.used,
    parts = excluded.parts,
    hold = excluded.hold,
    expires_at = excluded.expires_at,
    since = excluded.since
";

/// Forgets refusals in a row of which the last was at an instant or later. `$5` is an array of `[policy, key, since]`.
pub(in crate::store::sqlite) const FORGET_REFUSALS: &str = "
INSERT INTO rate_limit_buckets (policy, key, at, used, parts, hold, expires_at)
SELECT refusals.policy, refusals.key, refusals.at, 0, 0, 0, refusals.expires_at
FROM json_each($5) AS forget
CROSS JOIN rate_limit_buckets AS refusals
    ON refusals.policy = forget.value ->> 0 AND refusals.key = forget.value ->> 1
    AND refusals.at >= forget.value ->> 2
WHERE true
ON CONFLICT (policy, key) DO UPDATE SET used = 0, hold = 0
";

/// Empties the buckets of the keys from `$2` to `$3`, both included, and below `$4`, and tells what they were. Nothing that was
/// taken up to now, `$5`, goes back to them. They expire when they would have.
pub(super) const RESET: &str = "
BEGIN IMMEDIATE;
SELECT at, used, parts, since FROM rate_limit_buckets
WHERE policy = $1 AND key >= $2 AND key <= $3 AND key < $4;
UPDATE rate_limit_buckets SET at = $5, used = 0, parts = 0, since = $5 + 1, hold = 0
WHERE policy = $1 AND key >= $2 AND key <= $3 AND key < $4;
INSERT INTO rate_limit_changes (kind, policy, first_key, last_key) VALUES (2, $1, $2, $3);
DELETE FROM rate_limit_changes WHERE seq <= (SELECT max(seq) FROM rate_limit_changes) - 10000;
COMMIT
";

/// The key that ends a page of the keys after `$2` and below `$3`.
pub(super) const KEY_PAGE_END: &str = "
SELECT key FROM rate_limit_buckets
WHERE policy = $1 AND key > $2 AND key < $3
ORDER BY key LIMIT 1 OFFSET $4
";

/// A bucket, as a batch finds it and leaves it.
pub(in crate::store::sqlite) struct Entry<'a> {
    /// The part of the charge that came last, for its policy.
    pub(in crate::store::sqlite) part: &'a Part,
    /// As it was stored, or as the last charge that was admitted has left it.
    pub(in crate::store::sqlite) bucket: Bucket,
    pub(in crate::store::sqlite) hold: u8,
    pub(in crate::store::sqlite) exists: bool,
    pub(in crate::store::sqlite) is_changed: bool,
}

impl Slot for Entry<'_> {
    fn read(&mut self, row: &SqliteRow) -> Result<(), StoreError> {
        self.bucket = bucket(row, 2, 6)?;
        self.hold = u8::try_from(unsigned(row, 5)?).unwrap_or(u8::MAX);
        self.exists = true;
        Ok(())
    }
}

fn bucket(row: &SqliteRow, column: usize, since: usize) -> Result<Bucket, StoreError> {
    let at = row.try_get(column).map_err(decoding)?;
    let since = row.try_get(since).map_err(decoding)?;
    Ok(Bucket {
        at: Timestamp::from_unix_millis(at),
        used: unsigned(row, column + 1)?,
        parts: unsigned(row, column + 2)?,
        since: Timestamp::from_unix_millis(since),
        is_moved: false,
    })
}

impl<'a> Entry<'a> {
    pub(in crate::store::sqlite) fn new(part: &'a Part, now: Timestamp) -> Self {
        Self {
            part,
            bucket: Bucket::full(now),
            hold: 0,
            exists: false,
            is_changed: false,
        }
    }

    /// What a decision at `now` finds.
    pub(in crate::store::sqlite) fn state(&self, part: &Part, now: Timestamp) -> State {
        let Bucket { at, used, .. } = self.bucket;
        if part.is_block() {
            State::Block(Block::as_of(used, at, part.policy(), now))
        } else {
            State::of_bucket(self.bucket, part.policy(), now)
        }
    }

    /// Takes in what a decision has left of a block. Says whether that is something else.
    pub(in crate::store::sqlite) fn set_block(&mut self, block: &Block) -> bool {
        let Bucket { at, used, .. } = self.bucket;
        let is_other = used != block.refused || (block.refused > 0 && at != block.at);
        if is_other {
            self.bucket.used = block.refused;
            self.bucket.at = block.at;
        }
        is_other
    }

    /// What `SELECT` takes.
    pub(in crate::store::sqlite) fn look(&self) -> (&str, &str) {
        (&self.part.rule.counter, self.part.key.as_str())
    }

    /// What `INSERT` takes.
    pub(in crate::store::sqlite) fn row(&self) -> impl serde::Serialize {
        let Bucket {
            at,
            used,
            parts,
            since,
            ..
        } = self.bucket;
        let state = self.state(self.part, at);
        let expires_at = state.expires_at(self.part.policy(), at);
        (
            &self.part.rule.counter,
            self.part.key.as_str(),
            at.unix_millis(),
            used,
            parts,
            self.hold,
            expires_at.unix_millis(),
            since.unix_millis(),
        )
    }
}

/// The units in force of the buckets that `RESET` told.
pub(super) fn used(reset: &Reset, rows: &[SqliteRow]) -> Result<u64, StoreError> {
    let policy = reset.part.policy();
    let mut units: u64 = 0;
    for row in rows.iter().filter(|_| !reset.part.is_block()) {
        let state = State::of_bucket(bucket(row, 0, 3)?, policy, reset.at);
        units = units.saturating_add(state.used(policy, reset.at));
    }
    Ok(units)
}
