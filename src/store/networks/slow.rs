//! What a store keeps to on a network that is slow all the time: its limits, its windows, and the server's clock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{self, Clock, ManualClock};
use crate::limit::{Key, Policy, Timestamp};
use crate::store::engine::Engine;
use crate::store::suite::{NOON, charge_of};

/// How long a byte takes, each way.
pub(in crate::store) const LATENCY: Duration = Duration::from_millis(30);
const HOUR: i64 = 3_600_000;
/// By how much a clock that is read twice may seem to step back, in milliseconds.
const ROUNDED: i64 = 2;
/// What takes longer will not come.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to open on one server: so many stores that share their counters, each on a slow network of its own.
pub(in crate::store) struct SlowNodes {
    pub(in crate::store) count: usize,
    /// What all of them decide by, in place of the server's clock.
    pub(in crate::store) clock: Option<ManualClock>,
    /// By how many milliseconds the server's clock is ahead of this machine's.
    pub(in crate::store) server_is_ahead: i64,
}

/// Makes a test of each, with what opens stores.
macro_rules! slow_suite {
    ($open:expr) => {
        $crate::store::networks::slow_suite!($open;
            nodes_admit_exactly_the_limit_together,
            the_servers_clock_is_never_behind_and_ahead_by_a_call_at_most,
            what_was_charged_ahead_is_spent_in_its_own_window,
        );
    };
    ($open:expr; $($test:ident,)*) => {
        mod on_a_slow_network {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $test() {
                    $crate::store::networks::slow::$test($open).await;
                }
            )*
        }
    };
}
pub(in crate::store) use slow_suite;

fn policies() -> [Policy; 4] {
    [
        Policy::daily(40).name("quota"),
        Policy::sliding_counter(40, 86_400).name("counter"),
        Policy::sliding(40, 86_400).name("log"),
        Policy::token_bucket(40, 86_400).name("bucket"),
    ]
}

fn users() -> [Key; 2] {
    ["alice", "bob"].map(|name| Key::new("user", name))
}

/// The server is on this machine, so that this is its time.
fn servers_millis() -> i64 {
    Clock::System.now().unix_millis()
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap()
}

/// What passes when three nodes charge each key of each policy 60 times, and then another one until it is refused.
async fn admitted_of_each(mut nodes: Vec<Arc<Engine>>, is_leased: bool) -> HashMap<String, u32> {
    let last = nodes.pop().unwrap();
    let policies = policies().map(|policy| policy.leases(is_leased));
    let users = users();
    let mut admitted = HashMap::<String, u32>::new();
    let counters = || {
        policies
            .iter()
            .flat_map(|p| users.iter().map(move |u| (p, u)))
    };
    for _ in 0..10 {
        let began = clock::monotonic();
        let mut replies = Vec::new();
        for (policy, user) in counters() {
            for node in nodes.iter().cycle().take(6) {
                let charge = charge_of(&[(policy, user)], 1);
                replies.push((format!("{policy} {user:?}"), node.charge(&charge)));
            }
        }
        for (counter, reply) in replies {
            let is_decided = reply.is_ready();
            // Each is answered, and only what is decided in memory comes sooner than a call can.
            let outcome = reply.await.unwrap();
            assert!(is_decided || clock::monotonic() - began >= 2 * LATENCY);
            *admitted.entry(counter).or_default() += u32::from(outcome.is_admitted());
        }
    }
    if !is_leased {
        assert!(admitted.values().all(|units| *units == 40), "{admitted:?}");
    }
    assert!(admitted.values().all(|units| *units <= 40), "{admitted:?}");
    for node in nodes {
        node.close().await.unwrap();
    }
    for (policy, user) in counters() {
        let charge = charge_of(&[(policy, user)], 1);
        let admitted = admitted.get_mut(&format!("{policy} {user:?}")).unwrap();
        while last.charge(&charge).await.unwrap().is_admitted() {
            *admitted += 1;
        }
    }
    admitted
}

pub(in crate::store) async fn nodes_admit_exactly_the_limit_together(
    open: impl AsyncFn(SlowNodes) -> Vec<Arc<Engine>>,
) {
    for is_leased in [false, true] {
        let nodes = open(SlowNodes {
            count: 4,
            clock: Some(ManualClock::new(Timestamp::from_unix_millis(NOON))),
            server_is_ahead: 0,
        });
        let admitted = admitted_of_each(nodes.await, is_leased).await;
        assert_eq!(admitted.len(), 8);
        assert!(admitted.values().all(|units| *units == 40), "{admitted:?}");
    }
}

pub(in crate::store) async fn the_servers_clock_is_never_behind_and_ahead_by_a_call_at_most(
    open: impl AsyncFn(SlowNodes) -> Vec<Arc<Engine>>,
) {
    let policy = Policy::daily(1_000).leases(false);
    let ask = charge_of(&[(&policy, &users()[0])], 1);
    for hours in [0, 1, -1] {
        let nodes = open(SlowNodes {
            count: 1,
            clock: None,
            server_is_ahead: hours * HOUR,
        });
        let node = &nodes.await[0];
        let mut is_close = false;
        for _ in 0..5 {
            let began = clock::monotonic();
            node.charge(&ask).await.unwrap();
            let before = servers_millis() + hours * HOUR;
            let ahead = node.now().unix_millis() - before;
            let took = millis(clock::monotonic() - began);
            assert!(ahead >= -ROUNDED, "{ahead} ms ahead");
            assert!(took >= 2 * millis(LATENCY));
            // Another call may have been heard last, which took longer.
            is_close |= ahead <= took + ROUNDED;
        }
        assert!(is_close);
    }
}

pub(in crate::store) async fn what_was_charged_ahead_is_spent_in_its_own_window(
    open: impl AsyncFn(SlowNodes) -> Vec<Arc<Engine>>,
) {
    let nodes = open(SlowNodes {
        count: 3,
        clock: None,
        server_is_ahead: 0,
    });
    let nodes = nodes.await;
    let policy = Policy::fixed(2_000, 1).name("second");
    let ask = charge_of(&[(&policy, &users()[0])], 1);
    let mut windows = HashMap::<i64, u32>::new();
    let mut at_once = 0;
    let until = clock::monotonic() + PATIENCE;
    while windows.len() < 4 {
        assert!(clock::monotonic() < until, "{windows:?}");
        let mut replies = Vec::new();
        for node in nodes.iter().cycle().take(12) {
            replies.push((servers_millis(), node.charge(&ask)));
        }
        for (asked_at, reply) in replies {
            let is_decided = reply.is_ready();
            let outcome = reply.await.unwrap();
            // So nothing is spent when its window is over by the server's clock.
            let ahead = outcome.at.unix_millis() - asked_at;
            assert!(ahead >= -ROUNDED, "{ahead} ms ahead");
            if outcome.is_admitted() {
                at_once += u32::from(is_decided);
                let window = outcome.at.unix_millis().div_euclid(1_000);
                *windows.entry(window).or_default() += 1;
            }
        }
        tokio::task::yield_now().await;
    }
    assert!(at_once > 0, "nothing was decided in memory");
    assert!(windows.values().all(|units| *units <= 2_000), "{windows:?}");
}
