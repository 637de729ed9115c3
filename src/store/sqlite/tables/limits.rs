//! `rate_limit_limits`: limits that were set at run time.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::{Slot, decoding, unsigned};
use crate::limit::{InForce, Key, Limit, StoredLimit, Timestamp};
use crate::store::sqlite::Database;
use crate::store::{Limits, LimitsAsk, Part, SetLimit, StoreError, Which};

/// No limit, where a statement counts with one: more than can ever be used, and what is left of it is still a number.
pub(in crate::store::sqlite) const NO_LIMIT: u64 = (1 << 53) - 1;

/// Reads the limits of keys, and those of their policies. `$5` is an array of `[policy, key]`. Where nothing was ever set it goes
/// through none of them.
pub(in crate::store::sqlite) const SELECT: &str = "
SELECT 3, look.key, limits.key <> '', limits.units, limits.ends_at
FROM json_each($5) AS look
CROSS JOIN rate_limit_limits AS limits
    ON limits.policy = look.value ->> 0 AND limits.key IN ('', look.value ->> 1)
WHERE EXISTS (SELECT 1 FROM rate_limit_limits)
";

/// Sets a limit, and tells whether there was one that had not ended at `$5`.
const SET: &str = "
BEGIN IMMEDIATE;
SELECT 1 FROM rate_limit_limits
WHERE policy = $1 AND key = $2 AND ifnull(ends_at, 9223372036854775807) > $5;
INSERT INTO rate_limit_limits (policy, key, units, ends_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (policy, key) DO UPDATE SET units = excluded.units, ends_at = excluded.ends_at;
INSERT INTO rate_limit_changes (kind, policy, first_key, last_key) VALUES (1, $1, $2, $2);
DELETE FROM rate_limit_changes WHERE seq <= (SELECT max(seq) FROM rate_limit_changes) - 10000;
COMMIT
";

/// Removes a limit, and tells whether there was one that had not ended at `$3`.
const REMOVE: &str = "
BEGIN IMMEDIATE;
DELETE FROM rate_limit_limits WHERE policy = $1 AND key = $2
RETURNING ifnull(ends_at, 9223372036854775807) > $3 AS was_in_force;
INSERT INTO rate_limit_changes (kind, policy, first_key, last_key) VALUES (1, $1, $2, $2);
DELETE FROM rate_limit_changes WHERE seq <= (SELECT max(seq) FROM rate_limit_changes) - 10000;
COMMIT
";

/// The limit of a key that has not ended at `$3`.
const FIND: &str = "
SELECT key, units, ends_at FROM rate_limit_limits
WHERE policy = $1 AND key = $2 AND ifnull(ends_at, 9223372036854775807) > $3
";

/// The limits of the keys after `$2` that have not ended at `$3`: the first `$4`.
const LIST: &str = "
SELECT key, units, ends_at FROM rate_limit_limits
WHERE policy = $1 AND key > $2 AND ifnull(ends_at, 9223372036854775807) > $3
ORDER BY key LIMIT $4
";

#[cfg(test)]
pub(super) fn statements() -> [&'static str; 4] {
    [SET, REMOVE, FIND, LIST]
}

/// The limits of a key, as a batch finds them.
pub(in crate::store::sqlite) struct Entry<'a> {
    part: &'a Part,
    /// What is found of the key itself, and of all keys.
    key: Option<StoredLimit>,
    all: Option<StoredLimit>,
}

impl Slot for Entry<'_> {
    fn read(&mut self, row: &SqliteRow) -> Result<(), StoreError> {
        let is_own: bool = row.try_get(2).map_err(decoding)?;
        let stored = stored(row, 3, None)?;
        *if is_own { &mut self.key } else { &mut self.all } = Some(stored);
        Ok(())
    }
}

impl<'a> Entry<'a> {
    pub(in crate::store::sqlite) fn new(part: &'a Part) -> Self {
        Self {
            part,
            key: None,
            all: None,
        }
    }

    /// What `SELECT` takes.
    pub(in crate::store::sqlite) fn look(&self) -> (&str, &str) {
        (&self.part.rule.limits, self.part.key.as_str())
    }

    pub(in crate::store::sqlite) fn has_any(&self) -> bool {
        self.key.is_some() || self.all.is_some()
    }

    /// The limit that holds for a part of this key, in place of its policy's own.
    pub(in crate::store::sqlite) fn in_force(
        &self,
        part: &Part,
        now: Timestamp,
    ) -> Option<InForce> {
        let own = part.policy().limit();
        InForce::of(self.key.as_ref(), self.all.as_ref(), own, now)
    }
}

/// A limit, and the key that it is of.
pub(in crate::store::sqlite) fn stored(
    row: &SqliteRow,
    column: usize,
    key: Option<Key>,
) -> Result<StoredLimit, StoreError> {
    let units: Option<i64> = row.try_get(column).map_err(decoding)?;
    let ends_at: Option<i64> = row.try_get(column + 1).map_err(decoding)?;
    // What somebody else has written there is a limit all the same.
    let units = units.map(|units| u32::try_from(units.max(0)).unwrap_or(u32::MAX));
    let ends_at = ends_at.map(Timestamp::from_unix_millis);
    Ok(StoredLimit::new(key, Limit::of_stored(units), ends_at))
}

/// Sets a limit, or removes it, and says whether there was one.
pub(in crate::store::sqlite) async fn set(
    database: &mut Database,
    set: &SetLimit,
) -> Result<bool, StoreError> {
    let (statement, new) = match set.limit {
        Some(new) => (
            SET,
            Some((new.units, new.ends_at.map(Timestamp::unix_millis))),
        ),
        None => (REMOVE, None),
    };
    let mut query = sqlx::query(statement)
        .bind(&set.filed_under)
        .bind(set.key_text());
    if let Some((units, ends_at)) = new {
        query = query.bind(units).bind(ends_at);
    }
    let rows = database
        .fetch_all(query.bind(set.now.unix_millis()))
        .await?;
    rows.first()
        .map_or(Ok(false), |row| row.try_get(0).map_err(decoding))
}

pub(in crate::store::sqlite) async fn list(
    database: &mut Database,
    ask: &LimitsAsk,
) -> Result<Limits, StoreError> {
    let text = |key: &Option<Key>| match key {
        Some(key) => key.as_str().to_owned(),
        None => SetLimit::OF_ALL.to_owned(),
    };
    match &ask.which {
        Which::Of(key) => {
            let (found, _) = read(database, ask, FIND, &text(key), None).await?;
            Ok(found)
        }
        Which::Keys { after, most } => {
            let most = *most;
            let mut after = text(after);
            let mut limits = Limits::new();
            loop {
                let left = most.saturating_sub(u32::try_from(limits.len()).unwrap_or(u32::MAX));
                let (mut page, end) = read(database, ask, LIST, &after, Some(left)).await?;
                limits.append(&mut page);
                match end {
                    // What is left out makes room for what comes after it.
                    Some(end) if limits.len() < most as usize => after = end,
                    _ => return Ok(limits),
                }
            }
        }
    }
}

/// Reads limits, and tells where the page ends when there may be another one. What somebody has written for a text that is no key
/// holds for nobody, and is left out.
async fn read(
    database: &mut Database,
    ask: &LimitsAsk,
    statement: &'static str,
    key: &str,
    most: Option<u32>,
) -> Result<(Limits, Option<String>), StoreError> {
    let mut query = sqlx::query(statement)
        .bind(&ask.filed_under)
        .bind(key.to_owned())
        .bind(ask.now.unix_millis());
    if let Some(most) = most {
        query = query.bind(most);
    }
    let rows = database.read(query).await?;
    let mut limits = Limits::with_capacity(rows.len());
    let mut end = None;
    for row in &rows {
        let text: String = row.try_get(0).map_err(decoding)?;
        let key = match &*text {
            SetLimit::OF_ALL => Ok(None),
            text => text.parse().map(Some),
        };
        if let Ok(key) = key {
            limits.push(stored(row, 1, key)?);
        }
        end = Some(text);
    }
    let is_full = most.is_some_and(|most| rows.len() >= most as usize && most > 0);
    Ok((limits, end.filter(|_| is_full)))
}

/// What a statement has counted with, as a limit.
pub(in crate::store::sqlite) fn counted_with(
    row: &SqliteRow,
    column: usize,
) -> Result<Option<u32>, StoreError> {
    let units = unsigned(row, column)?;
    Ok((units != NO_LIMIT).then(|| u32::try_from(units).unwrap_or(u32::MAX)))
}
