//! Where a decision stands when the clock has stepped back.

use std::time::Duration;

use crate::limit::Timestamp;

/// What is stored so little ahead of now was stored by another thread or process, or before a small correction of the
/// clock: it counts as now.
const SLIGHTLY_AHEAD: Duration = Duration::from_secs(1);

/// The instant that a decision counts as made at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) at: Timestamp,
    /// What is stored lies so far ahead that the clock must have stepped back: it is moved to now, or it would keep its
    /// key locked for the step and a window more.
    pub(crate) is_moved: bool,
}

/// Places a decision at `now`, when the newest that is stored lies at `stored`.
pub(crate) fn place(now: Timestamp, stored: Timestamp) -> Placed {
    let is_slightly_ahead = stored <= now.saturating_add(SLIGHTLY_AHEAD);
    Placed {
        at: if is_slightly_ahead {
            now.max(stored)
        } else {
            now
        },
        is_moved: !is_slightly_ahead,
    }
}
