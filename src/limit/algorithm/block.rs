//! The block: a key that was refused, or was refused often, is refused for a while, whatever it has left.
//!
//! It is a counter of its own beside that of its policy: it counts refusals in a row. What is refused while a block lasts
//! does not count, so nobody makes a block longer by asking again.

use std::time::Duration;

use super::{Placed, place};
use crate::limit::{Policy, Timestamp};

/// After how many refusals in a row a policy blocks a key, at least 1, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Blocking {
    pub(crate) after: u32,
    pub(crate) lasts: Duration,
}

/// The refusals of a key in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) refused: u64,
    /// When the last of them was.
    pub(crate) at: Timestamp,
    /// The clock has stepped back behind it, and it was moved to now: that must be stored also when nothing else changes.
    pub(crate) is_moved: bool,
}

impl Block {
    /// Of a key that was never refused.
    pub(crate) fn none(now: Timestamp) -> Self {
        Self {
            refused: 0,
            at: now,
            is_moved: false,
        }
    }

    /// What was stored, as it is now: a block that is over is forgotten, and so are refusals of which the last is a window ago.
    pub(crate) fn as_of(refused: u64, at: Timestamp, policy: &Policy, now: Timestamp) -> Self {
        let Placed { is_moved, .. } = place(now, at);
        let block = Self {
            refused,
            at: if is_moved { now } else { at },
            is_moved,
        };
        let is_over = block.over_at(policy) <= now;
        if refused == 0 || is_over {
            return Self::none(now);
        }
        block
    }

    /// Until when the key is blocked, if it is.
    pub(crate) fn until(&self, policy: &Policy) -> Option<Timestamp> {
        let Blocking { after, lasts } = policy.blocking()?;
        (self.refused >= u64::from(after)).then(|| self.at.saturating_add(lasts))
    }

    /// When it is forgotten.
    pub(crate) fn over_at(&self, policy: &Policy) -> Timestamp {
        let unblocked = || self.at.saturating_add(policy.window());
        self.until(policy).unwrap_or_else(unblocked)
    }

    /// Counts a refusal.
    pub(super) fn refuse(&mut self, now: Timestamp) {
        self.refused = self.refused.saturating_add(1);
        self.at = now;
    }

    /// Forgets them: something was admitted.
    pub(super) fn admit(&mut self) {
        self.refused = 0;
    }
}
