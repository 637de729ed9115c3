//! What is kept of a counter, and where.

use crate::limit::algorithm::block::Block;
use crate::limit::algorithm::fixed_window::Usage;
use crate::limit::algorithm::sliding_window::Events;
use crate::limit::algorithm::token_bucket::Bucket;
use crate::limit::{Algorithm, Timestamp};
use crate::store::Part;

/// Where something is kept.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(in crate::store) struct Place {
    pub(in crate::store) part: Part,
    /// Where the window starts, when it has a beginning.
    pub(in crate::store) window_start: i64,
}

impl Place {
    /// The place that a charge at `at` writes to.
    pub(in crate::store) fn of(part: &Part, at: Timestamp) -> Self {
        let has_beginning = !part.is_block()
            && !matches!(
                part.policy().algorithm(),
                Algorithm::SlidingWindow | Algorithm::TokenBucket
            );
        Self {
            part: part.clone(),
            window_start: if has_beginning {
                part.span(at).start.unix_millis()
            } else {
                0
            },
        }
    }

    /// That of the window before, where it counts too.
    #[cfg(feature = "records")]
    pub(in crate::store) fn before(part: &Part, at: Timestamp) -> Option<Self> {
        Self::is_one_of_several(part).then(|| Self::of(part, part.span_before(at).start))
    }

    /// That of the window after, where what is used now will count too.
    #[cfg(feature = "records")]
    pub(in crate::store) fn after(part: &Part, at: Timestamp) -> Option<Self> {
        Self::is_one_of_several(part).then(|| Self::of(part, part.span(at).end))
    }

    /// Whether the windows before and after it matter to a charge.
    #[cfg(feature = "records")]
    pub(in crate::store) fn is_one_of_several(part: &Part) -> bool {
        !part.is_block() && part.policy().algorithm() == Algorithm::SlidingCounter
    }
}

/// What is kept at a place, and what is known of it.
pub(super) struct Row {
    pub(super) kept: Kept,
    pub(super) is_used_up: bool,
    pub(super) was_refused: bool,
    pub(super) expires_at: Timestamp,
}

/// What is kept at a place.
pub(in crate::store) enum Kept {
    Window(Usage),
    Events(Events),
    Bucket(Bucket),
    Block(Block),
}

impl Row {
    /// Which rows go first when there are too many: the least. `None` never goes.
    pub(super) fn eviction_rank(&self) -> Option<(bool, u64)> {
        let used = match &self.kept {
            Kept::Window(usage) => usage.used,
            Kept::Events(events) => events.len() as u64,
            Kept::Bucket(bucket) => bucket.used_ceil(),
            Kept::Block(block) => block.refused,
        };
        (!self.was_refused).then_some((self.is_used_up, used))
    }

    /// How many events it has beyond the first.
    pub(super) fn more_events(&self) -> usize {
        match &self.kept {
            Kept::Events(events) => events.len().saturating_sub(1),
            Kept::Window(_) | Kept::Bucket(_) | Kept::Block(_) => 0,
        }
    }
}
