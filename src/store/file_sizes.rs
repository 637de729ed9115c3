//! How long the files of a database are.

use std::sync::atomic::{AtomicU64, Ordering};

/// The lengths of a database's files, as they were last seen by the thread that looks at them.
#[derive(Debug)]
pub(super) struct FileSizes {
    database: AtomicU64,
    wal: AtomicU64,
}

/// No file is as long.
const UNKNOWN: u64 = u64::MAX;

impl Default for FileSizes {
    fn default() -> Self {
        Self {
            database: AtomicU64::new(UNKNOWN),
            wal: AtomicU64::new(UNKNOWN),
        }
    }
}

impl FileSizes {
    /// Notes what was seen.
    #[cfg(feature = "sqlite")]
    pub(super) fn seen(&self, database: Option<u64>, wal: u64) {
        let wal = database.map(|_| wal);
        self.database
            .store(database.unwrap_or(UNKNOWN), Ordering::Relaxed);
        self.wal.store(wal.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }

    pub(super) fn database(&self) -> Option<u64> {
        known(&self.database)
    }

    pub(super) fn wal(&self) -> Option<u64> {
        known(&self.wal)
    }
}

fn known(bytes: &AtomicU64) -> Option<u64> {
    Some(bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes != UNKNOWN)
}
