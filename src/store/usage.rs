//! What was used.

/// What was used by requests that were recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    requests: u64,
    units: u64,
}

impl Usage {
    pub(super) fn new(requests: u64, units: u64) -> Self {
        Self { requests, units }
    }

    /// The requests that were allowed, those that have used nothing included.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The units that they have used: what was charged, without what was given back, and with what handlers have charged more
    /// until the head of the response.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.units
    }
}
