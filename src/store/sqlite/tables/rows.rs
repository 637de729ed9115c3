//! What goes into statements, and what comes out of them.

use std::sync::Arc;

use serde::Serialize;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::store::StoreError;

/// A state that a row is read into.
pub(in crate::store::sqlite) trait Slot {
    fn read(&mut self, row: &SqliteRow) -> Result<(), StoreError>;
}

/// Rows as JSON: it is how a statement takes a whole batch as one parameter.
pub(in crate::store::sqlite) fn json(rows: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(rows).map_err(|_| fault("a batch can't be written as JSON"))
}

/// A count, which is never negative.
pub(in crate::store::sqlite) fn unsigned(
    row: &SqliteRow,
    column: usize,
) -> Result<u64, StoreError> {
    let value: i64 = row.try_get(column).map_err(decoding)?;
    Ok(u64::try_from(value).unwrap_or(0))
}

pub(in crate::store::sqlite) fn decoding(error: sqlx::Error) -> StoreError {
    StoreError::Database {
        is_transient: false,
        source: Arc::new(error),
    }
}

pub(in crate::store::sqlite) fn fault(what: &'static str) -> StoreError {
    decoding(sqlx::Error::Protocol(what.to_owned()))
}
