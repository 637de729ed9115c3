//! What SQLite's result codes mean.

use std::sync::Arc;

use super::{Location, OpenError, application};
use crate::store::StoreError;

const PERM: u32 = 3;
const BUSY: u32 = 5;
const LOCKED: u32 = 6;
const READONLY: u32 = 8;
const CORRUPT: u32 = 11;
const FULL: u32 = 13;
const CANTOPEN: u32 = 14;
const NOTADB: u32 = 26;
/// The file `-shm` can't be made as long as it must be: there is no room.
const IOERR_SHMSIZE: u32 = 4874;

/// SQLite's result code, without its extension.
fn code(error: &sqlx::Error) -> Option<u32> {
    Some(extended_code(error)? & 0xff)
}

fn extended_code(error: &sqlx::Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}

pub(super) fn store_error(error: sqlx::Error) -> StoreError {
    StoreError::Database {
        is_transient: matches!(code(&error), Some(BUSY | LOCKED | FULL)),
        source: Arc::new(error),
    }
}

/// Why a database could not be opened.
pub(super) fn open_error(location: &Location, error: sqlx::Error) -> OpenError {
    let path = location.path();
    if extended_code(&error) == Some(IOERR_SHMSIZE) {
        return OpenError::DiskFull(path);
    }
    match code(&error) {
        Some(BUSY | LOCKED) => OpenError::Locked(path),
        Some(FULL) => OpenError::DiskFull(path),
        Some(CORRUPT) => OpenError::Damaged(path),
        Some(CANTOPEN) if location.is_applications() => application::why_not_opened(path),
        Some(PERM | READONLY | CANTOPEN) => OpenError::NotWritable(path),
        Some(NOTADB) => OpenError::NotADatabase(path),
        _ => OpenError::failed(error),
    }
}
