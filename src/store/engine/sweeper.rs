//! When the store sweeps by itself.

use std::time::{Duration, Instant};

use super::backend::{Cursor, Page};
use crate::limit::Timestamp;

/// Rows that a page covers at the least while charges come: some 0.5 ms, which is what a charge may wait for it.
const SHORT_PAGE: u32 = 250;
/// The same while none do, and at the most. Fewer pages take less time together: some 2 ms.
const LONG_PAGE: u32 = 1_000;
/// Between long pages of a pass, and as much less between short ones: decisions keep more than nine tenths of the time.
const BETWEEN_PAGES: Duration = Duration::from_millis(25);
/// The same while pages are mostly expired, so that a flood of new keys is not faster than the sweep.
const BETWEEN_FULL_PAGES: Duration = Duration::from_millis(5);
/// Between passes. Rows are kept for a window longer than they count, so there is no hurry.
const BETWEEN_PASSES: Duration = Duration::from_secs(30);

/// The pace of the store's own sweep: along the table a page at a time, then a rest. While the table is known to be
/// empty it sleeps.
#[derive(Debug)]
pub(super) struct Sweeper {
    after: Option<Cursor>,
    due_at: Option<Instant>,
    /// What the clock showed when the last pass began, and what this pass sweeps up to.
    seen: Timestamp,
    horizon: Timestamp,
    /// Whether this pass met rows that stay, or charges came while it went on.
    found_rows: bool,
    /// Whether most rows of the last page had expired, and how many rows were charged since.
    is_mostly_expired: bool,
    charged: u32,
}

impl Sweeper {
    /// A file may hold rows of an earlier run: the first pass is due at once.
    pub(super) fn new(now: Instant, started_at: Timestamp) -> Self {
        Self {
            after: None,
            seen: started_at,
            horizon: started_at,
            due_at: Some(now + BETWEEN_PAGES),
            found_rows: false,
            is_mostly_expired: false,
            charged: 0,
        }
    }

    /// How many rows the next page covers. While rows expire, twice as many as were charged since the last page: batches take
    /// longer than the pause between pages, so there is one page to a batch, which must not delete fewer rows than come.
    pub(super) fn page_rows(&self, is_quiet: bool) -> u32 {
        match (is_quiet, self.is_mostly_expired) {
            (true, _) => LONG_PAGE,
            (false, true) => self.charged.saturating_mul(2).clamp(SHORT_PAGE, LONG_PAGE),
            (false, false) => SHORT_PAGE,
        }
    }

    /// Notes that so many rows were charged.
    pub(super) fn charged(&mut self, rows: usize) {
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        self.charged = self.charged.saturating_add(rows);
    }

    /// When the next page is due, if any.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.due_at
    }

    /// Where the next page starts.
    pub(super) fn after(&self) -> Option<Cursor> {
        self.after.clone()
    }

    /// Up to when rows must have expired to go now. It is what the clock showed a pass ago, unless it has stepped back
    /// since: a clock that jumps ahead for a moment must not cost the counts of today.
    pub(super) fn horizon(&mut self, now: Timestamp) -> Timestamp {
        if self.after.is_none() {
            self.horizon = self.seen;
            self.seen = now;
        }
        self.horizon.min(now)
    }

    /// Notes that there are rows.
    pub(super) fn wrote(&mut self, now: Instant) {
        self.found_rows = true;
        self.due_at.get_or_insert(now + BETWEEN_PASSES);
    }

    /// Notes what a page of so many rows did.
    pub(super) fn swept(&mut self, page: Page, rows: u32, now: Instant) {
        self.found_rows |= page.kept > 0;
        self.is_mostly_expired = page.count > page.kept;
        self.charged = 0;
        self.after = page.next;
        self.due_at = if self.after.is_some() {
            let between_long_pages = if self.is_mostly_expired {
                BETWEEN_FULL_PAGES
            } else {
                BETWEEN_PAGES
            };
            Some(now + between_long_pages * rows / LONG_PAGE)
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
            key: "k".into(),
            ..Cursor::default()
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
        let mut sweeper = Sweeper::new(now, at(0));
        sweeper.swept(page(1_000, true), LONG_PAGE, now);
        assert_eq!(sweeper.due_at(), Some(now + BETWEEN_PAGES));
        sweeper.swept(page(0, false), LONG_PAGE, now);
        assert_eq!(sweeper.due_at(), Some(now + BETWEEN_PASSES));
        assert_eq!(sweeper.after(), None);
    }

    #[test]
    fn short_pages_follow_each_other_so_much_sooner() {
        let now = monotonic();
        let mut sweeper = Sweeper::new(now, at(0));
        let rows = sweeper.page_rows(false);
        sweeper.swept(page(250, true), rows, now);
        let part = LONG_PAGE / rows;
        assert_eq!(sweeper.due_at(), Some(now + BETWEEN_PAGES / part));
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_millis(seconds * 1_000)
    }

    #[test]
    fn a_clock_that_jumps_ahead_for_a_moment_sweeps_nothing_of_today() {
        let now = monotonic();
        let mut sweeper = Sweeper::new(now, at(100));
        assert_eq!(sweeper.horizon(at(9_999)), at(100));
        sweeper.swept(page(1, true), LONG_PAGE, now);
        assert_eq!(sweeper.horizon(at(101)), at(100), "the same pass");
        sweeper.swept(page(1, false), LONG_PAGE, now);
        assert_eq!(sweeper.horizon(at(130)), at(130), "the jump is over");
        sweeper.swept(page(1, false), LONG_PAGE, now);
        assert_eq!(sweeper.horizon(at(160)), at(130));
        sweeper.swept(page(1, false), LONG_PAGE, now);
        assert_eq!(sweeper.horizon(at(50)), at(50), "a step back");
    }

    /// The writer does one page between two batches, however long those take: 512 new keys some 13 ms.
    #[test]
    fn a_flood_of_new_keys_is_not_faster_than_the_sweep() {
        let mut now = monotonic();
        let mut sweeper = Sweeper::new(now, at(0));
        let (mut added, mut swept) = (0_u64, 0_u64);
        for _ in 0..100 {
            now += Duration::from_millis(13);
            added += 512;
            sweeper.charged(512);
            let rows = sweeper.page_rows(false);
            if sweeper.due_at().is_some_and(|due_at| due_at <= now) {
                let count = u64::from(rows);
                let expired = Page {
                    count,
                    ..page(0, true)
                };
                sweeper.swept(expired, rows, now);
                swept += count;
            }
        }
        assert!(swept + 1_024 >= added, "{added} came and {swept} went");
    }

    #[test]
    fn an_empty_table_is_left_alone_until_something_is_written() {
        let now = monotonic();
        let mut sweeper = Sweeper::new(now, at(0));
        sweeper.swept(page(0, false), LONG_PAGE, now);
        assert_eq!(sweeper.due_at(), None);
        sweeper.wrote(now);
        assert_eq!(sweeper.due_at(), Some(now + BETWEEN_PASSES));
        sweeper.swept(page(0, false), LONG_PAGE, now);
        assert!(sweeper.due_at().is_some(), "rows came since the last pass");
    }
}
