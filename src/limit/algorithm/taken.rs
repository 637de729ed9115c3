//! Where a charge took its units from, so that they can go back there and nowhere else.

use crate::limit::Timestamp;

/// Where a charge took its units from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The counter of a window, in one of its epochs: after a reset nothing of them is left there.
    Window { start: Timestamp, epoch: u64 },
    /// The event of an instant.
    Event { at: Timestamp },
    /// The totals of the events after an instant, which still have what was taken out of an event before them.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "redis", feature = "sqlite")),
        expect(dead_code, reason = "only large logs are gone through by pages")
    )]
    EventsAfter { at: Timestamp },
    /// A bucket. What has drained since is no longer there to be given back.
    Bucket { at: Timestamp },
    /// The refusals that block a key. Those from an instant on were met while the units were out, and would not have been without.
    Refusals { since: Timestamp },
}
