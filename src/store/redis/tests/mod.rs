//! The store on a real server, which the tests start.

mod arithmetic;
mod clocks;
mod cluster;
mod cluster_failover;
mod failover;
mod keys;
mod leases;
mod networks;
mod nodes;
mod outages;
mod server;
mod shared_node;

use std::sync::Arc;
use std::time::Duration;

use self::server::RedisServer;
use super::RedisStore;
use crate::clock::{self, ManualClock};
use crate::limit::{Key, Policy, Timestamp};
use crate::store::engine::Engine;
use crate::store::networks::slow::LATENCY;
use crate::store::networks::{Network, Place, SlowNodes, slow_suite};
use crate::store::suite::{NOON, Subject, charge_of};
use crate::store::{Outcome, StoreError};

/// A busy machine is slow, and a test is not about that.
const PATIENCE: Duration = Duration::from_secs(10);

crate::__store_suite!(
    Subject::new(async |clock| (
        open(RedisServer::shared(), &RedisServer::prefix())
            .await
            .clock(&clock),
        ()
    ))
    .expiring()
);

async fn open(server: &RedisServer, prefix: &str) -> RedisStore {
    open_at(&server.url(), prefix).await
}

async fn open_at(url: &str, prefix: &str) -> RedisStore {
    let store = RedisStore::connect_with_prefix(url, prefix).await;
    store.unwrap().deadline(PATIENCE)
}

slow_suite!(open_slow);

async fn open_slow(nodes: SlowNodes) -> Vec<Arc<Engine>> {
    let prefix = RedisServer::prefix();
    let mut engines = Vec::new();
    for _ in 0..nodes.count {
        let network = Network::slow(place_of(RedisServer::shared()), LATENCY).await;
        let mut store = open_at(&url_of(&network), &prefix).await;
        store.move_server_clock(nodes.server_is_ahead);
        if let Some(clock) = &nodes.clock {
            store = store.clock(clock);
        }
        engines.push(store.engine);
    }
    engines
}

fn place_of(server: &RedisServer) -> Place {
    Place::Socket(server.url().trim_start_matches("unix://").into())
}

fn url_of(network: &Network) -> String {
    format!("redis://127.0.0.1:{}", network.port())
}

fn noon() -> ManualClock {
    ManualClock::new(Timestamp::from_unix_millis(NOON))
}

fn alice() -> Key {
    Key::new("user", "alice")
}

async fn charge(store: &RedisStore, policy: &Policy, cost: u32) -> Result<Outcome, StoreError> {
    let charge = charge_of(&[(policy, &alice())], cost);
    store.engine.charge(&charge).await
}

async fn is_admitted(store: &RedisStore, policy: &Policy) -> bool {
    charge(store, policy, 1).await.unwrap().is_admitted()
}

/// Asks until it is refused.
async fn fill(store: &RedisStore, policy: &Policy) -> u32 {
    let mut admitted = 0;
    while is_admitted(store, policy).await {
        admitted += 1;
    }
    admitted
}

async fn used(store: &RedisStore, policy: &Policy) -> u64 {
    let look = charge_of(&[(policy, &alice())], 1);
    let outcome = store.engine.peek(look).await.unwrap();
    outcome.found.first().state.used(policy, outcome.at)
}

/// Charges until there is an answer again, and tells it and how many errors came before.
async fn charge_patiently(store: &RedisStore, policy: &Policy) -> (Outcome, usize) {
    let until = clock::monotonic() + PATIENCE;
    let mut errors = 0;
    loop {
        match charge(store, policy, 1).await {
            Ok(outcome) => return (outcome, errors),
            Err(error) => assert!(clock::monotonic() < until, "{error:?}"),
        }
        errors += 1;
        tokio::task::yield_now().await;
    }
}
