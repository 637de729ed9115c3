//! Where a charge took its units from, so that they can go back there and nowhere else.

use crate::limit::Timestamp;

/// Where a charge took its units from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The counter of a window, in one of its epochs: after a reset nothing of them is left there.
    Window { start: Timestamp, epoch: u64 },
    /// The event of an instant.
    Event { at: Timestamp },
    /// A bucket. What has drained since is no longer there to be given back.
    Bucket { at: Timestamp },
}
