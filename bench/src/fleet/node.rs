//! A node: what it knows of the key, and holds of it. The rules are those of the crate's engine (decisions 12 and 20).

use super::counter::Counter;

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000 * MILLI;
/// A lease that was used up within these was much too small, or too small; one that lasted so long was too large.
const AT_ONCE: u64 = 250 * MILLI;
const SOON: u64 = 2 * SECOND;
const LONG: u64 = 8 * SECOND;
const FIRST_AHEAD: u32 = 4;
const MOST_AHEAD: u32 = 1 << 20;
/// What was not touched for so long goes back.
const IDLE: u64 = 2_500 * MILLI;
const REMEMBERED: u64 = 60 * SECOND;
/// What others have freed is seen so much later.
const SEEN_AFTER: u64 = 250 * MILLI;

/// Where a request was decided, and how.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Decided {
    FromLease,
    ByStore { is_admitted: bool },
    KnownToBeOver,
}

/// What a node has leased.
struct Lease {
    left: u32,
    granted: u32,
    ahead: u32,
    asked_at: u64,
    spent_at: u64,
}

/// A node. Instants are in microseconds.
#[derive(Default)]
pub(super) struct Node {
    lease: Option<Lease>,
    /// When the store has refused, if it has in this window.
    refused_at: Option<u64>,
}

impl Node {
    /// The next window begins.
    pub(super) fn begin(&mut self) {
        self.refused_at = None;
        if let Some(lease) = &mut self.lease {
            lease.left = 0;
        }
    }

    /// Decides a request for one unit.
    pub(super) fn decide(&mut self, now: u64, counter: &mut Counter, has_leases: bool) -> Decided {
        if let Some(lease) = self.lease.as_mut().filter(|lease| lease.left > 0) {
            lease.left -= 1;
            lease.spent_at = now;
            counter.spent();
            if lease.left < lease.granted / 2 {
                let ahead = lease.ask(now);
                lease.take(counter.refill(ahead), now);
            }
            return Decided::FromLease;
        }
        if self.is_known_to_be_over(now, counter) {
            return Decided::KnownToBeOver;
        }
        let ahead = match &mut self.lease {
            Some(lease) => lease.ask(now),
            None => 0,
        };
        let answer = counter.charge(ahead);
        match &mut self.lease {
            Some(lease) => lease.take(answer.granted, now),
            None if has_leases => self.lease = Some(Lease::new(now)),
            None => {}
        }
        self.refused_at = (!answer.is_admitted).then_some(now);
        Decided::ByStore {
            is_admitted: answer.is_admitted,
        }
    }

    /// Gives back what it has not touched for a while, and forgets the key in the end.
    pub(super) fn rest(&mut self, now: u64, counter: &mut Counter) {
        let Some(lease) = &mut self.lease else {
            return;
        };
        let since = now.saturating_sub(lease.spent_at);
        if since >= IDLE && lease.left > 0 {
            counter.give_back(lease.left, now);
            lease.left = 0;
        }
        let remembered = if lease.ahead > 0 { REMEMBERED } else { IDLE };
        if since >= remembered {
            self.lease = None;
        }
    }

    fn is_known_to_be_over(&self, now: u64, counter: &Counter) -> bool {
        let is_seen = |freed_at: u64| freed_at + SEEN_AFTER <= now;
        self.refused_at
            .is_some_and(|refused_at| !counter.freed_after(refused_at).is_some_and(is_seen))
    }
}

impl Lease {
    fn new(now: u64) -> Self {
        Self {
            left: 0,
            granted: 0,
            ahead: 0,
            asked_at: now,
            spent_at: now,
        }
    }

    /// How much to ask for now.
    fn ask(&mut self, now: u64) -> u32 {
        let lasted = now - self.asked_at;
        let is_at_once = lasted <= AT_ONCE;
        if lasted > LONG {
            self.ahead /= 2;
        } else if self.ahead == 0 && lasted <= SOON {
            self.ahead = if is_at_once { FIRST_AHEAD } else { 1 };
        } else if self.granted > 0 && lasted <= SOON {
            let times = if is_at_once { 4 } else { 2 };
            self.ahead = self.ahead.saturating_mul(times).min(MOST_AHEAD);
        }
        self.asked_at = now;
        self.ahead
    }

    fn take(&mut self, granted: u32, now: u64) {
        self.left += granted;
        self.granted = granted;
        self.spent_at = now;
    }
}
