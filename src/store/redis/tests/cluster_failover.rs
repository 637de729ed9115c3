//! A master of a cluster that is killed under load, and a replica that takes over.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::task::JoinHandle;

use super::cluster::{charge_of_key, key, open_cluster};
use super::nodes::Nodes;
use super::*;
use crate::store::suite::part_of;
use crate::store::{NewLimit, Reset, SetLimit};

/// An election takes a second or two, and longer on a busy machine.
const ELECTED_IN: Duration = Duration::from_secs(60);
const LIMIT: u32 = 300;
/// The last slot of each master.
const LAST_SLOTS: [u32; 3] = [5_460, 10_922, 16_383];

fn policy() -> Policy {
    Policy::daily(LIMIT).name("p").leases(false)
}

/// A cluster of which a master has a replica, and goes on without it in between.
fn nodes(replicated: usize) -> (Nodes, usize) {
    let mut nodes = Nodes::start();
    let replica = nodes.add_replica(replicated);
    for place in 0..=replica {
        nodes.cli(
            place,
            &["CONFIG", "SET", "cluster-require-full-coverage", "no"],
        );
    }
    (nodes, replica)
}

/// The place of the master that has a key at first.
fn master_of(nodes: &Nodes, n: u32) -> usize {
    let name = format!("{{{}}}", key(n).as_str());
    let slot = nodes.cli(0, &["CLUSTER", "KEYSLOT", &name]);
    let slot: u32 = slot.parse().unwrap();
    LAST_SLOTS.iter().position(|last| slot <= *last).unwrap()
}

/// Waits until a replica has all that its master has told anybody.
fn wait_for_replica(nodes: &Nodes, master: usize) {
    let number = |told: &str, name: &str| -> Option<u64> {
        let (_, rest) = told.split_once(name)?;
        let digits = rest.split(|char: char| !char.is_ascii_digit());
        digits.into_iter().next()?.parse().ok()
    };
    let is_there = |_| {
        let told = nodes.cli(master, &["INFO", "replication"]);
        let sent = number(&told, "master_repl_offset:");
        sent.is_some() && number(&told, ",offset=") >= sent
    };
    assert!((0..3_000).any(is_there), "the replica stays behind");
}

/// A key that is charged until it is refused.
struct Busy {
    is_of_killed: bool,
    admitted: Arc<AtomicU32>,
    /// Tells how often it was answered with an error.
    task: JoinHandle<u32>,
}

fn keep_busy(store: &RedisStore, n: u32, may_end: &Arc<AtomicBool>, is_of_killed: bool) -> Busy {
    let admitted = Arc::<AtomicU32>::default();
    let (store, may_end, counted) = (store.clone(), Arc::clone(may_end), Arc::clone(&admitted));
    let task = tokio::spawn(async move {
        let (mut errors, until) = (0, clock::monotonic() + ELECTED_IN);
        loop {
            match store.engine.charge(&charge_of_key(&policy(), n)).await {
                Ok(outcome) if outcome.is_admitted() => {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
                Ok(_) if may_end.load(Ordering::SeqCst) => return errors,
                Ok(_) => {}
                Err(error) => {
                    assert!(is_of_killed, "{error:?}");
                    assert!(clock::monotonic() < until, "{error:?}");
                    errors += 1;
                }
            }
            tokio::task::yield_now().await;
        }
    });
    Busy {
        is_of_killed,
        admitted,
        task,
    }
}

async fn fails_over(killed: usize) {
    let (nodes, replica) = nodes(killed);
    let store = open_cluster(&nodes, "t:").await.clock(&noon());
    let keys_of = |is_of_killed: bool| {
        let nodes = &nodes;
        (0..).filter(move |n| (master_of(nodes, *n) == killed) == is_of_killed)
    };
    let lost: Vec<u32> = keys_of(true).take(8).collect();
    let (quiet, busy) = lost.split_at(4);
    for n in quiet {
        for _ in 0..60 {
            let charged = store.engine.charge(&charge_of_key(&policy(), *n)).await;
            assert!(charged.unwrap().is_admitted());
        }
    }
    wait_for_replica(&nodes, killed);

    let may_end = Arc::<AtomicBool>::default();
    let busy = busy.iter().map(|n| (*n, true));
    let busy = busy.chain(keys_of(false).take(4).map(|n| (n, false)));
    let busy: Vec<_> = busy
        .map(|(n, is_of_killed)| keep_busy(&store, n, &may_end, is_of_killed))
        .collect();
    let admitted = |busy: &Busy| busy.admitted.load(Ordering::SeqCst);
    while busy.iter().any(|busy| admitted(busy) < 20) {
        tokio::task::yield_now().await;
    }
    nodes.signal(killed, "KILL");
    while !nodes.cli(killed, &["PING"]).is_empty() {}
    let before: Vec<_> = busy.iter().map(admitted).collect();
    may_end.store(true, Ordering::SeqCst);
    for (busy, before) in busy.into_iter().zip(before) {
        let errors = busy.task.await.unwrap();
        let admitted = busy.admitted.load(Ordering::SeqCst);
        if busy.is_of_killed {
            // What the replica had not got is admitted once more; one answer was not counted yet.
            let most = LIMIT + before + 1;
            assert!(admitted <= most, "{admitted} of {most}");
            assert!(admitted + errors >= LIMIT, "{admitted}, {errors} errors");
        } else {
            assert_eq!((admitted, errors), (LIMIT, 0));
        }
    }
    assert!(nodes.cli(replica, &["ROLE"]).starts_with("master"));

    // What it had is kept.
    for n in quiet {
        let mut admitted = 60;
        while is_admitted_of(&store, *n).await {
            admitted += 1;
        }
        assert_eq!(admitted, LIMIT);
    }
    resets_and_set_limits_go_on(&store, &lost).await;
    let urls = [nodes.url(killed), nodes.url(1)];
    let urls = urls.each_ref().map(|url| &**url);
    let other = RedisStore::connect_cluster_with_prefix(&urls, "t:").await;
    let other = other.unwrap().deadline(PATIENCE).clock(&noon());
    assert!(is_admitted_of(&other, lost[0]).await);
}

async fn is_admitted_of(store: &RedisStore, n: u32) -> bool {
    let charged = store.engine.charge(&charge_of_key(&policy(), n)).await;
    charged.unwrap().is_admitted()
}

/// Also while the one that was killed stays away.
async fn resets_and_set_limits_go_on(store: &RedisStore, keys: &[u32]) {
    store.engine.told_time().await.unwrap();
    let reset = Reset {
        part: part_of(&policy(), &key(keys[0])),
        // All nodes are looked through for them.
        with_keys_under: true,
        at: store.engine.now(),
    };
    let units = store.engine.reset(reset).await.unwrap();
    assert_eq!(units, u64::from(LIMIT));
    let set = SetLimit {
        filed_under: "p".to_owned(),
        key: Some(key(keys[1])),
        limit: Some(NewLimit {
            units: Some(LIMIT + 1),
            ends_at: None,
        }),
        now: store.engine.now(),
    };
    assert!(store.engine.set_limit(set).await.is_ok());
    assert!(is_admitted_of(store, keys[0]).await);
    assert!(is_admitted_of(store, keys[1]).await);
    assert!(!is_admitted_of(store, keys[1]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_replica_of_a_master_that_is_killed_is_found_and_no_other_key_fails() {
    fails_over(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_of_the_master_that_has_what_all_share() {
    fails_over(0).await;
}
