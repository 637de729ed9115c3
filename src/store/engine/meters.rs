//! What the queue and its writer tell in numbers.

use std::time::Duration;

use metrics::{counter, gauge, histogram};

use crate::store::meters::Meters;

impl Meters {
    /// A batch of so many charges was answered, and those that were there to hear it have waited so long.
    pub(super) fn answered(&self, size: usize, waits: impl Iterator<Item = Duration>) {
        let store = || self.store.clone();
        histogram!("tollgate_batch_size", "store" => store()).record(in_float(size));
        let duration = histogram!("tollgate_charge_duration_seconds", "store" => store());
        let mut count = 0;
        for wait in waits {
            duration.record(wait);
            count += 1;
        }
        self.charged("database", count);
    }

    /// So many allowed requests were to be recorded, and are not.
    pub(super) fn unrecorded(&self, count: u64) {
        counter!("tollgate_audit_dropped_total", "store" => self.store.clone()).increment(count);
    }

    /// The writer has found so many charges and looks that waited.
    pub(super) fn queued(&self, depth: usize) {
        gauge!("tollgate_queue_depth", "store" => self.store.clone()).set(in_float(depth));
    }
}

/// A queue holds some thousands, which a float has exactly.
fn in_float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
