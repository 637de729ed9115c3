//! What comes out of statements.

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::sql_state::store_error;
use crate::limit::algorithm::fixed_window::Usage;
use crate::limit::{Key, Limit, StoredLimit, Timestamp};
use crate::store::StoreError;

/// Numbers of which some may not be there.
pub(super) type Numbers = Vec<Option<i64>>;

pub(super) fn column<'r, T>(row: &'r PgRow, name: &str) -> Result<T, StoreError>
where
    T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    row.try_get(name).map_err(store_error)
}

/// A count, which is never negative.
pub(super) fn unsigned(row: &PgRow, name: &str) -> Result<u64, StoreError> {
    Ok(count(column(row, name)?))
}

/// A place in what was asked.
pub(super) fn place(row: &PgRow, name: &str) -> Result<usize, StoreError> {
    Ok(usize::try_from(unsigned(row, name)?).unwrap_or(usize::MAX))
}

pub(super) fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

pub(super) fn instant(millis: i64) -> Timestamp {
    Timestamp::from_unix_millis(millis)
}

pub(super) fn fault(what: &'static str) -> StoreError {
    store_error(sqlx::Error::Decode(what.into()))
}

/// The number at a place, if it is there.
pub(super) fn number(numbers: &[Option<i64>], place: usize) -> Option<i64> {
    numbers.get(place).copied().flatten()
}

/// The counter that begins at a place.
pub(super) fn usage(numbers: &[Option<i64>], place: usize) -> Usage {
    let of = |place| count(number(numbers, place).unwrap_or(0));
    Usage {
        used: of(place),
        denied: of(place + 1),
        epoch: of(place + 2),
    }
}

/// A limit that was set: its units, which are not there when there is no limit, and its end.
pub(super) fn stored_limit(numbers: &[Option<i64>], key: Option<Key>) -> StoredLimit {
    // What somebody else has written there is a limit all the same.
    let units = number(numbers, 0).map(|units| u32::try_from(units.max(0)).unwrap_or(u32::MAX));
    let ends_at = number(numbers, 1).map(instant);
    StoredLimit::new(key, Limit::of_stored(units), ends_at)
}
