//! `rate_limit_changes`: what others must know who answer from memory: units that came back, resets, and limits that were set.
//!
//! Each row is written in the transaction of the change, and only the newest are kept: who is further behind knows nothing any more.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::{decoding, unsigned};
use crate::store::StoreError;
use crate::store::engine::{Changes, Freed};
use crate::store::sqlite::Database;

/// So many are read at once, and some more are kept: some pages of a thousand units that go back, which come within a look of others.
const MOST: i64 = 8_000;
const OF_LIMIT: u64 = 1;
const OF_RESET: u64 = 2;

/// Tells of windows to which units go back, when something of their key was refused since. `$1` is what `windows::GIVE_BACK`
/// takes.
pub(in crate::store::sqlite) const OF_WINDOWS: &str = "
INSERT INTO rate_limit_changes (kind, policy, first_key, last_key)
SELECT DISTINCT 0, back.value ->> 0, back.value ->> 1, back.value ->> 1
FROM json_each($1) AS back
WHERE EXISTS (
    SELECT 1 FROM rate_limit_windows
    WHERE policy = back.value ->> 0 AND key = back.value ->> 1
        AND window_start >= back.value ->> 2 AND denied > 0)
";

/// Tells of events, of buckets and of blocks to which units go back. `$3` is what `events::LOWER` takes, `$4` rows of buckets, `$5`
/// what `buckets::FORGET_REFUSALS` takes: the counter is that of the policy, without its `;block`.
pub(in crate::store::sqlite) const OF_OTHERS: &str = "
INSERT INTO rate_limit_changes (kind, policy, first_key, last_key)
SELECT DISTINCT 0, value ->> 0, value ->> 1, value ->> 1 FROM json_each($3)
UNION SELECT DISTINCT 0, value ->> 0, value ->> 1, value ->> 1 FROM json_each($4)
UNION SELECT DISTINCT
    0, substr(value ->> 0, 1, length(value ->> 0) - 6), value ->> 1, value ->> 1
FROM json_each($5)
";

/// Forgets what is old.
pub(in crate::store::sqlite) const PRUNE: &str = "
DELETE FROM rate_limit_changes WHERE seq <= (SELECT max(seq) FROM rate_limit_changes) - 10000
";

/// Reads which changes there are, and then those after `$1`: the first `$2`.
const READ: &str = "
SELECT coalesce(min(seq), 1), coalesce(max(seq), 0) FROM rate_limit_changes;
SELECT kind, policy, first_key, last_key FROM rate_limit_changes WHERE seq > $1 ORDER BY seq LIMIT $2
";

#[cfg(test)]
pub(super) fn statements() -> [&'static str; 2] {
    [PRUNE, READ]
}

/// What became free since `after`.
pub(in crate::store::sqlite) async fn read(
    database: &mut Database,
    after: Option<i64>,
) -> Result<Changes, StoreError> {
    let query = sqlx::query(READ).bind(after.unwrap_or(i64::MAX)).bind(MOST);
    let rows = database.read(query).await?;
    let Some((ends, rows)) = rows.split_first() else {
        return Ok(Changes::default());
    };
    let (first, last) = (number(ends, 0)?, number(ends, 1)?);
    let is_continued = after.is_none_or(|after| first <= after.saturating_add(1) && after <= last);
    let is_whole = is_continued && (rows.len() as u64) < MOST.unsigned_abs();
    Ok(Changes {
        last,
        freed: if is_whole {
            Some(rows.iter().map(freed).collect::<Result<_, _>>()?)
        } else {
            None
        },
    })
}

fn number(row: &SqliteRow, column: usize) -> Result<i64, StoreError> {
    row.try_get(column).map_err(decoding)
}

fn freed(row: &SqliteRow) -> Result<Freed, StoreError> {
    let text = |column: usize| row.try_get::<String, _>(column).map_err(decoding);
    let kind = unsigned(row, 0)?;
    Ok(if kind == OF_LIMIT {
        Freed::Limit {
            filed_under: text(1)?,
            key: text(2)?,
        }
    } else {
        Freed::Keys {
            counter: text(1)?,
            first: text(2)?,
            last: text(3)?,
            is_reset: kind == OF_RESET,
        }
    })
}
