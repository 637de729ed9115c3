//! The counter of one key in the store that all nodes share.

/// What a node finds that asks for a unit, and for more ahead of it.
pub(super) struct Answer {
    pub(super) is_admitted: bool,
    /// Units that the node may spend by itself.
    pub(super) granted: u32,
}

/// The counter, in the window in force.
pub(super) struct Counter {
    limit: u32,
    used: u32,
    /// Of the used ones those that a node holds and has not spent.
    held: u32,
    /// How often it was read or written.
    pub(super) calls: u64,
    /// When units came back in this window while none was left, in microseconds.
    freed_at: Vec<u64>,
}

impl Counter {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            limit,
            used: 0,
            held: 0,
            calls: 0,
            freed_at: Vec::new(),
        }
    }

    /// The next window begins: what was held of the last one is lost.
    pub(super) fn begin(&mut self) {
        self.used = 0;
        self.held = 0;
        self.freed_at.clear();
    }

    /// When units came back for the first time after an instant, if they did.
    pub(super) fn freed_after(&self, instant: u64) -> Option<u64> {
        let next = self
            .freed_at
            .partition_point(|freed_at| *freed_at < instant);
        self.freed_at.get(next).copied()
    }

    /// Whether a unit fits that nobody holds, or one is held that nobody spends.
    pub(super) fn has_unspent(&self) -> bool {
        self.used - self.held < self.limit
    }

    /// Charges a unit, and what is asked for ahead as far as there is more than enough.
    pub(super) fn charge(&mut self, ahead: u32) -> Answer {
        self.calls += 1;
        let is_admitted = self.used < self.limit;
        self.used += u32::from(is_admitted);
        let granted = self.take(ahead);
        Answer {
            is_admitted,
            granted,
        }
    }

    /// Charges units ahead.
    pub(super) fn refill(&mut self, ahead: u32) -> u32 {
        self.calls += 1;
        self.take(ahead)
    }

    fn take(&mut self, ahead: u32) -> u32 {
        let units = ahead.min((self.limit - self.used) / 8);
        self.used += units;
        self.held += units;
        units
    }

    /// A node has spent what it held.
    pub(super) fn spent(&mut self) {
        self.held -= 1;
    }

    pub(super) fn give_back(&mut self, units: u32, now: u64) {
        self.calls += 1;
        if self.used == self.limit {
            self.freed_at.push(now);
        }
        self.used -= units;
        self.held -= units;
    }
}
