//! Windows of one key, request by request.

use super::counter::Counter;
use super::node::{Decided, Node};

const SECOND: u64 = 1_000_000;
/// A window of a minute.
const WINDOW: u64 = 60 * SECOND;
/// Windows that are counted, after one that is not.
const WINDOWS: u64 = 5;
/// How often a node looks for what is idle.
const BETWEEN_RESTS: u64 = SECOND;

/// A key, and who asks for it.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) nodes: usize,
    /// Units of a minute.
    pub(super) limit: u32,
    /// Requests a second, of all nodes together.
    pub(super) rate: u32,
    pub(super) has_leases: bool,
}

/// What came of it.
#[derive(Clone, Copy, Default)]
pub(super) struct Outcome {
    pub(super) requests: u64,
    /// Reads and writes of the counter.
    pub(super) calls: u64,
    pub(super) admitted: u64,
    /// Refused while the limit was not used up, since other nodes held what was left.
    pub(super) refused_early: u64,
    /// Admitted after another request of the window had been refused.
    pub(super) admitted_late: u64,
}

impl Outcome {
    pub(super) fn calls_per_request(&self) -> f64 {
        self.calls as f64 / self.requests as f64
    }

    /// How full the windows were, when more was asked for than fits.
    pub(super) fn fill(&self, plan: &Plan) -> f64 {
        self.admitted as f64 / (u64::from(plan.limit) * WINDOWS) as f64
    }

    /// The part of the limit that some got while others were refused.
    pub(super) fn late(&self, plan: &Plan) -> f64 {
        self.admitted_late as f64 / (u64::from(plan.limit) * WINDOWS) as f64
    }

    pub(super) fn early(&self) -> f64 {
        self.refused_early as f64 / self.requests as f64
    }
}

/// Simulates the windows. Requests come at random, each to any node; a call to the store takes no time.
pub(super) fn simulate(plan: Plan, seed: u64) -> Outcome {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut counter = Counter::new(plan.limit);
    let mut nodes: Vec<_> = (0..plan.nodes).map(|_| Node::default()).collect();
    let mut outcome = Outcome::default();
    let (mut now, mut window_end, mut rest_at) = (0, WINDOW, BETWEEN_RESTS);
    let mut has_refused = false;
    loop {
        now += gap(&mut random, plan.rate);
        while rest_at <= now {
            for node in &mut nodes {
                node.rest(rest_at, &mut counter);
            }
            rest_at += BETWEEN_RESTS;
        }
        if now >= window_end {
            if window_end == WINDOW {
                // Until then the leases have grown.
                outcome = Outcome::default();
                counter.calls = 0;
            }
            if window_end == WINDOW * (WINDOWS + 1) {
                outcome.calls = counter.calls;
                return outcome;
            }
            window_end += WINDOW;
            has_refused = false;
            counter.begin();
            nodes.iter_mut().for_each(Node::begin);
        }
        outcome.requests += 1;
        let node = random.usize(..nodes.len());
        match nodes[node].decide(now, &mut counter, plan.has_leases) {
            Decided::FromLease | Decided::ByStore { is_admitted: true } => {
                outcome.admitted += 1;
                outcome.admitted_late += u64::from(has_refused);
            }
            Decided::ByStore { is_admitted: false } | Decided::KnownToBeOver => {
                has_refused = true;
                outcome.refused_early += u64::from(counter.has_unspent());
            }
        }
    }
}

/// The time to the next of so many requests a second that know nothing of each other.
fn gap(random: &mut fastrand::Rng, rate: u32) -> u64 {
    let seconds = -(1.0 - random.f64()).ln() / f64::from(rate);
    std::time::Duration::from_secs_f64(seconds)
        .as_micros()
        .try_into()
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(nodes: usize, limit: u32, rate: u32) -> Plan {
        Plan {
            nodes,
            limit,
            rate,
            has_leases: true,
        }
    }

    #[test]
    fn never_more_than_the_limit_and_without_leases_exactly_it() {
        for nodes in [1, 10, 100] {
            let leased = plan(nodes, 600, 40);
            let outcome = simulate(leased, 7);
            assert!(outcome.admitted <= 600 * WINDOWS, "{}", outcome.admitted);
            let unleased = Plan {
                has_leases: false,
                ..leased
            };
            let outcome = simulate(unleased, 7);
            assert_eq!(outcome.admitted, 600 * WINDOWS);
            assert_eq!((outcome.refused_early, outcome.admitted_late), (0, 0));
        }
    }

    #[test]
    fn one_node_asks_seldom_and_refuses_nobody_early() {
        let alone = plan(1, 60_000, 2_000);
        let outcome = simulate(alone, 7);
        assert_eq!(outcome.admitted, 60_000 * WINDOWS);
        assert!(outcome.calls_per_request() < 0.01);
        assert_eq!(outcome.refused_early, 0);
    }
}
