//! Counters in a database of somebody's own, of which no more is asked than records that change together or not at all.
//!
//! `records.rs` is what the database must do, and `record_store.rs` the store that is made of it. What the engine calls
//! (`backend.rs`) reads the records that a call is about into memory (`page.rs`), has the rows of the memory store decide
//! (`charging.rs`, `giving_back.rs`, `resetting.rs`), and writes back what has changed, if nobody else has changed it meanwhile.
//! `limits.rs` is about limits that are set, `feed.rs` about what others are told, `names.rs` and `values.rs` about what is stored.

mod backend;
mod charging;
mod feed;
mod giving_back;
mod limits;
mod names;
mod page;
mod record_store;
#[expect(
    clippy::module_inception,
    reason = "a file is named after its one public type"
)]
mod records;
mod resetting;
mod values;

use std::error::Error;

pub use self::record_store::RecordStore;
pub use self::records::{ReadRecords, RecordChange, RecordWrite, Records};
use super::StoreError;

/// Each time somebody else has changed the same records first, so all together get on. Among equals nobody loses as often by chance.
/// A node that is farther from the database than others loses more often, and may be answered with an error while those charge one key
/// without a pause. Leases make it rare: with them they seldom meet.
const MOST_TRIES: usize = 64;

/// Records that change together: some databases take no more in one transaction.
const MOST_WRITES: usize = 100;
/// Keys that do, of each of which there are some windows, and what others are told of them.
const KEYS_TOGETHER: usize = 32;

fn tries() -> impl Iterator<Item = usize> {
    0..MOST_TRIES
}

/// Records changed too often to be changed here.
fn conflict() -> StoreError {
    database_error(
        "the same records were changed by others again and again: let the policy have leases, or another key",
        true,
    )
}

/// The database, or what is in it, is not as it must be.
fn fault(what: &'static str) -> StoreError {
    database_error(what, false)
}

fn database_error(what: &'static str, is_transient: bool) -> StoreError {
    let source: Box<dyn Error + Send + Sync> = what.into();
    StoreError::Database {
        is_transient,
        source: source.into(),
    }
}
