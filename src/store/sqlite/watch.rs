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
    #[cfg(test)]
    hangs_until: Option<std::sync::mpsc::Receiver<()>>,
}

/// A look at the files, to be done on a thread beside.
pub(super) struct Look {
    files: Files,
    is_open: bool,
    #[cfg(test)]
    hangs_until: Option<std::sync::mpsc::Receiver<()>>,
}

impl Look {
    /// Whether the files are still in their place.
    pub(super) fn finds_them_at(&self, location: &Location) -> bool {
        #[cfg(test)]
        if let Some(end) = &self.hangs_until {
            let _ = end.recv();
        }
        if self.is_open {
            self.files.are_at(location)
        } else {
            // The WAL goes when the last connection is closed.
            self.files.is_database_at(location)
        }
    }
}

impl Watch {
    pub(super) fn new() -> Self {
        Self {
            files: None,
            are_gone: false,
            has_lost: false,
            look_at: clock::monotonic(),
            #[cfg(test)]
            hangs_until: None,
        }
    }

    /// The files that were opened last.
    pub(super) fn files(&self) -> Option<Files> {
        self.files
    }

    /// Notes which files were found before a database was opened: should others have taken their place meanwhile, that is noticed
    /// later.
    pub(super) fn opened(&mut self, files: Option<Files>) {
        self.files = files;
        self.are_gone = false;
        self.look_at = clock::monotonic() + BETWEEN_LOOKS;
    }

    /// What is to be looked at, if it is time to. While the database is not open, it is looked each time: it is about to be opened.
    pub(super) fn next_look(&mut self, is_open: bool) -> Option<Look> {
        let files = self.files?;
        let now = clock::monotonic();
        if self.are_gone || (is_open && now < self.look_at) {
            return None;
        }
        self.look_at = now + BETWEEN_LOOKS;
        Some(Look {
            files,
            is_open,
            #[cfg(test)]
            hangs_until: self.hangs_until.take(),
        })
    }

    /// Notes that the files are not in their place any more.
    pub(super) fn lost(&mut self, location: &Location) {
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

    /// Makes the next look hang until the other end is dropped, as one on a dying mount does.
    #[cfg(test)]
    pub(super) fn hang_until(&mut self, end: std::sync::mpsc::Receiver<()>) {
        self.rest();
        self.hangs_until = Some(end);
    }
}
