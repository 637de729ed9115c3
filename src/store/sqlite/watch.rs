//! When it is looked whether the files of a database are still in their place, and what that has shown.

use std::time::{Duration, Instant};

use tracing::Level;

use super::{Files, Location};
use crate::clock;
use crate::store::TARGET;

/// How often it is looked, which takes some microseconds.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// The files that were opened last, and whether they were lost.
#[derive(Debug)]
pub(super) struct Watch {
    files: Option<Files>,
    /// They were lost, and nothing has been opened since.
    are_gone: bool,
    /// They were lost, and that was not asked for yet.
    has_lost: bool,
    look_at: Instant,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self {
            files: None,
            are_gone: false,
            has_lost: false,
            look_at: clock::monotonic(),
        }
    }

    /// The files that were opened last.
    pub(super) fn files(&self) -> Option<&Files> {
        self.files.as_ref()
    }

    /// Notes which files were found before a database was opened: should others have taken their place meanwhile, that is noticed
    /// later.
    pub(super) fn opened(&mut self, files: Option<Files>, location: &Location) {
        self.files = files.map(|files| files.with_wal_at(location));
        self.are_gone = false;
        self.look_at = clock::monotonic() + BETWEEN_LOOKS;
    }

    /// Looks, if it is time to, and says whether the files were lost since. While the database is not open, it is looked each
    /// time: it is about to be opened.
    pub(super) fn notices_loss(&mut self, location: &Location, is_open: bool) -> bool {
        let now = clock::monotonic();
        let Some(files) = &self.files else {
            return false;
        };
        if self.are_gone || (is_open && now < self.look_at) {
            return false;
        }
        self.look_at = now + BETWEEN_LOOKS;
        let is_in_place = if is_open {
            files.are_at(location)
        } else {
            // The WAL goes when the last connection is closed.
            files.is_database_at(location)
        };
        if is_in_place {
            return false;
        }
        self.are_gone = true;
        self.has_lost = true;
        tracing::event!(
            name: "tollgate.file_lost",
            target: TARGET,
            Level::ERROR,
            store = location.name(),
            "the file of the rate limit store was deleted, or another one was put in its place: what was counted in it is \
             gone, and what is there now is opened"
        );
        true
    }

    /// Whether files were lost, and `take_lost` has not told it yet.
    pub(super) fn has_lost(&self) -> bool {
        self.has_lost
    }

    /// Whether files were lost since this was last asked.
    pub(super) fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.has_lost)
    }

    /// Makes the next call look, as one that comes a while later does.
    #[cfg(test)]
    pub(super) fn rest(&mut self) {
        self.look_at = clock::monotonic();
    }
}
