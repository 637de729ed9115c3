//! When the store sweeps by itself.

use std::time::{Duration, Instant};

use super::backend::{Cursor, Page};

/// Between the pages of a pass: a page takes some 2 ms, so decisions keep more than nine tenths of the time.
const BETWEEN_PAGES: Duration = Duration::from_millis(25);
/// Between passes. Rows are kept for a window longer than they count, so there is no hurry.
const BETWEEN_PASSES: Duration = Duration::from_secs(30);

/// The pace of the store's own sweep: along the table a page at a time, then a rest. While the table is known to be
/// empty it sleeps.
#[derive(Debug)]
pub(super) struct Sweeper {
    after: Option<Cursor>,
    due_at: Option<Instant>,
    /// Whether this pass met rows that stay, or charges came while it went on.
    found_rows: bool,
}

impl Sweeper {
    /// A file may hold rows of an earlier run: the first pass is due at once.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            after: None,
            due_at: Some(now + BETWEEN_PAGES),
            found_rows: false,
        }
    }

    /// When the next page is due, if any.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.due_at
    }

    /// Where the next page starts.
    pub(super) fn after(&self) -> Option<Cursor> {
        self.after.clone()
    }

    /// Notes that there are rows.
    pub(super) fn wrote(&mut self, now: Instant) {
        self.found_rows = true;
        self.due_at.get_or_insert(now + BETWEEN_PASSES);
    }

    /// Notes what a page did.
    pub(super) fn swept(&mut self, page: Page, now: Instant) {
        self.found_rows |= page.kept > 0;
        self.after = page.next;
        self.due_at = if self.after.is_some() {
            Some(now + BETWEEN_PAGES)
        } else {
            std::mem::take(&mut self.found_rows).then(|| now + BETWEEN_PASSES)
        };
    }

    /// Notes that a page failed: the pass begins anew after a rest.
    pub(super) fn failed(&mut self, now: Instant) {
        self.after = None;
        self.due_at = Some(now + BETWEEN_PASSES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic;

    fn page(kept: u64, has_next: bool) -> Page {
        let next = has_next.then(|| Cursor {
            policy: "p".into(),
            key: "k".into(),
            window_start: 0,
        });
        Page {
            count: 0,
            kept,
            next,
        }
    }

    #[test]
    fn a_pass_goes_on_page_by_page_and_then_rests() {
        let now = monotonic();
        let mut sweeper = Sweeper::new(now);
        sweeper.swept(page(1_000, true), now);
        assert_eq!(sweeper.due_at(), Some(now + BETWEEN_PAGES));
        sweeper.swept(page(0, false), now);
        assert_eq!(sweeper.due_at(), Some(now + BETWEEN_PASSES));
        assert_eq!(sweeper.after(), None);
    }

    #[test]
    fn an_empty_table_is_left_alone_until_something_is_written() {
        let now = monotonic();
        let mut sweeper = Sweeper::new(now);
        sweeper.swept(page(0, false), now);
        assert_eq!(sweeper.due_at(), None);
        sweeper.wrote(now);
        assert_eq!(sweeper.due_at(), Some(now + BETWEEN_PASSES));
        sweeper.swept(page(0, false), now);
        assert!(sweeper.due_at().is_some(), "rows came since the last pass");
    }
}
