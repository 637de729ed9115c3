//! A cluster of which the node is down that has what all share.

use super::cluster::{charge_of_key, key, open_cluster};
use super::nodes::Nodes;
use super::*;
use crate::limit::algorithm::Taken;
use crate::store::{Charge, GiveBack};

/// What all share is the first node's.
const SHARED: usize = 0;

fn nodes() -> Nodes {
    let nodes = Nodes::start();
    for place in 0..3 {
        // The others go on by themselves then.
        nodes.cli(
            place,
            &["CONFIG", "SET", "cluster-require-full-coverage", "no"],
        );
    }
    nodes
}

/// Keys of a policy that are not on the node of what all share.
fn elsewhere(nodes: &Nodes, count: usize) -> Vec<u32> {
    let is_elsewhere = |n: &u32| {
        let name = format!("{{{}}}", key(*n).as_str());
        let slot = nodes.cli(SHARED, &["CLUSTER", "KEYSLOT", &name]);
        slot.parse::<u32>().unwrap() > 5_460
    };
    (0..200).filter(is_elsewhere).take(count).collect()
}

async fn admits(store: &RedisStore, policy: &Policy, n: u32) -> Result<bool, StoreError> {
    let outcome = store.engine.charge(&charge_of_key(policy, n)).await?;
    Ok(outcome.is_admitted())
}

/// What goes back of a charge.
fn back(charge: &Charge, outcome: &Outcome, units: u32) -> GiveBack {
    let part = charge.parts.first().clone();
    let start = part.span(outcome.at).start;
    let epoch = outcome.found.first().state.window().unwrap().epoch;
    GiveBack {
        part,
        units,
        from: Taken::Window { start, epoch },
        taken_at: outcome.at,
    }
}

#[tokio::test]
async fn what_others_can_not_be_told_goes_back_once_and_is_told_later() {
    let nodes = nodes();
    let store = open_cluster(&nodes, "t:").await.clock(&noon());
    let policy = Policy::daily(10).name("p").leases(false);
    let n = elsewhere(&nodes, 1)[0];
    for _ in 0..10 {
        assert!(admits(&store, &policy, n).await.unwrap());
    }
    // Who was refused is told that something went back.
    assert!(!admits(&store, &policy, n).await.unwrap());
    let charge = charge_of_key(&policy, n);
    let outcome = store.engine.peek(charge.clone()).await.unwrap();
    nodes.cli(SHARED, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let units = vec![back(&charge, &outcome, 3)];
    store.engine.give_back(units).await.unwrap();
    let changes = || nodes.cli(SHARED, &["LRANGE", "t:{shared}:changes", "0", "-1"]);
    assert!(!changes().contains(key(n).as_str()));
    nodes.cli(SHARED, &["CONFIG", "SET", "min-replicas-to-write", "0"]);
    let until = clock::monotonic() + PATIENCE;
    while !changes().contains(key(n).as_str()) {
        assert!(clock::monotonic() < until, "nobody is told");
        store.engine.peek(charge.clone()).await.unwrap();
    }
    for is_admitted in [true, true, true, false] {
        assert_eq!(admits(&store, &policy, n).await.unwrap(), is_admitted);
    }
}

#[tokio::test]
async fn what_goes_back_to_no_node_is_an_error_and_the_store_closes() {
    let nodes = nodes();
    let store = open_cluster(&nodes, "t:").await.clock(&noon());
    let policy = Policy::daily(10).name("p").leases(false);
    let mut units = Vec::new();
    for n in elsewhere(&nodes, 4) {
        let charge = charge_of_key(&policy, n);
        assert!(admits(&store, &policy, n).await.unwrap());
        let outcome = store.engine.peek(charge.clone()).await.unwrap();
        units.push(back(&charge, &outcome, 1));
    }
    for place in 1..3 {
        nodes.cli(place, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    }
    let error = store.engine.give_back(units).await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    let closed = tokio::time::timeout(PATIENCE, store.close());
    closed.await.expect("the store closes").unwrap();
}

#[tokio::test]
async fn set_limits_hold_as_they_were_known_last_while_they_can_not_be_read() {
    let nodes = nodes();
    let store = open_cluster(&nodes, "t:").await.clock(&noon());
    let policy = Policy::daily(4).name("p").leases(false);
    let keys = elsewhere(&nodes, 3);
    let limits = "t:{shared}:limits:p";
    nodes.cli(SHARED, &["HSET", limits, key(keys[0]).as_str(), "2"]);
    for n in &keys[..2] {
        assert!(admits(&store, &policy, *n).await.unwrap());
    }
    nodes.signal(SHARED, "KILL");
    let mut admitted = [0; 3];
    for _ in 0..6 {
        for (n, admitted) in keys.iter().zip(&mut admitted) {
            *admitted += u32::from(admits(&store, &policy, *n).await.unwrap());
        }
    }
    assert_eq!(admitted, [1, 3, 4]);
    let unknown = Policy::daily(4).name("unknown").leases(false);
    let error = admits(&store, &unknown, keys[0]).await.unwrap_err();
    // Whether it may have been done hangs on when the connection broke: nothing was asked of the other nodes.
    assert!(matches!(error, StoreError::Database { .. }), "{error:?}");
}
