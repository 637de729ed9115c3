//! Leases that are half empty, and are to be filled: many at once.

use std::mem;
use std::time::{Duration, Instant};

use crate::clock;
use crate::store::Part;

/// Nobody waits for them, and half of a lease lasts much longer once it has grown. A batch for each would cost more than all that
/// is in it.
const GATHERED_FOR: Duration = Duration::from_millis(5);

/// Whose leases are half empty.
#[derive(Default)]
pub(super) struct Refills {
    parts: Vec<Part>,
    due_at: Option<Instant>,
}

impl Refills {
    /// Says whether it is the first, whom the writer does not know of.
    pub(super) fn put(&mut self, part: Part) -> bool {
        let is_first = self.parts.is_empty();
        if is_first {
            self.due_at = Some(clock::monotonic() + GATHERED_FOR);
        }
        self.parts.push(part);
        is_first
    }

    /// Takes all when it is time, unless the backend is not asked, or when a batch is made in any case.
    pub(super) fn take(&mut self, is_batch_made: bool, is_asked: bool) -> Vec<Part> {
        let is_past = |due_at: Instant| due_at <= clock::monotonic();
        let is_due = is_asked && self.due_at.is_some_and(is_past);
        if !is_batch_made && !is_due {
            return Vec::new();
        }
        self.due_at = None;
        mem::take(&mut self.parts)
    }

    /// When to take them, if there are any.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.due_at
    }
}
