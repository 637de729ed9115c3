//! What a store tells in numbers, by the facade `metrics`. Names and labels are stable, and none of them is a key.
//!
//! The recorder is asked each time, rather than once for a handle: a store may be made before a recorder is installed.

use metrics::{SharedString, counter, gauge};

use super::StoreError;

/// The numbers of one store, under its name.
pub(crate) struct Meters {
    pub(super) store: SharedString,
}

impl Meters {
    pub(super) fn new(store: &str) -> Self {
        Self {
            store: SharedString::from_shared(store.into()),
        }
    }

    /// So many charges were answered: by a `lease`, the `database`, a store in `memory`, or, in place of a store that gave no
    /// answer, by this process's memory, `local`.
    pub(super) fn charged(&self, answered_by: &'static str, count: u64) {
        counter!(
            "tollgate_charges_total",
            "store" => self.store.clone(),
            "answered_by" => answered_by,
        )
        .increment(count);
    }

    pub(super) fn failed(&self, error: &StoreError, count: u64) {
        let kind = match error {
            StoreError::Closed => "closed",
            StoreError::Overloaded => "overloaded",
            StoreError::DeadlineExceeded => "deadline_exceeded",
            StoreError::BreakerOpen => "breaker_open",
            StoreError::Full => "full",
            StoreError::Panicked => "panicked",
            StoreError::Database {
                is_transient: true, ..
            } => "database_transient",
            StoreError::Database { .. } => "database",
            // Of the caller, and not of the store.
            StoreError::KeyCount { .. }
            | StoreError::KeysApart
            | StoreError::ForeignDecision
            | StoreError::TooManyKeys
            | StoreError::UnknownPolicy(_)
            | StoreError::EndedLimit
            | StoreError::LongKey => return,
        };
        let store = self.store.clone();
        counter!("tollgate_store_errors_total", "store" => store, "kind" => kind).increment(count);
    }

    pub(super) fn degraded(&self, is_degraded: bool) {
        let value = if is_degraded { 1.0 } else { 0.0 };
        gauge!("tollgate_store_degraded", "store" => self.store.clone()).set(value);
    }

    pub(super) fn swept(&self, rows: u64) {
        counter!("tollgate_swept_rows_total", "store" => self.store.clone()).increment(rows);
    }
}
