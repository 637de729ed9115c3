//! A failover to a replica: what it had not got is admitted once more, and nothing else.

use super::nodes::free_port;
use super::*;

/// A server, and a replica of it that is up to date.
fn master_and_replica() -> (RedisServer, RedisServer) {
    let port = free_port();
    let options = |options: String| &*options.leak();
    let master = RedisServer::start(options(format!(
        "--port {port} --repl-diskless-sync-delay 0"
    )));
    let replica = RedisServer::start(options(format!("--replicaof 127.0.0.1 {port}")));
    wait_until(&replica, &["INFO", "replication"], "master_link_status:up");
    (master, replica)
}

/// Each look takes some milliseconds.
fn wait_until(server: &RedisServer, ask: &[&str], told: &str) {
    let has_told = |_| server.cli(ask).contains(told);
    assert!((0..3_000).any(has_told), "{told} is not told");
}

/// What a key may have more than its limit then, with units charged ahead or without.
async fn fails_over(policy: &Policy) -> u32 {
    let (mut master, replica) = master_and_replica();
    let network = Network::before(place_of(&master)).await;
    let store = RedisStore::connect(&url_of(&network)).await.unwrap();
    let store = store.deadline(PATIENCE).clock(&noon());
    let mut admitted = 0;
    for _ in 0..40 {
        admitted += u32::from(is_admitted(&store, policy).await);
    }
    let counter = format!(
        "tollgate:{}:{{user:alice}}:{}",
        policy.counter_name(),
        day()
    );
    let stored = master.cli(&["HGET", &counter, "used"]);
    wait_until(&replica, &["HGET", &counter, "used"], &stored);
    // From here on the replica gets nothing any more.
    assert_eq!(replica.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
    for _ in 0..7 {
        admitted += u32::from(is_admitted(&store, policy).await);
    }
    assert_eq!(admitted, 47);
    network.lead_to(place_of(&replica));
    master.stop();
    // The first ones may be decided in memory, and any of those behind them may find the connection gone.
    while charge_patiently(&store, policy).await.0.is_admitted() {
        admitted += 1;
    }
    store.close().await.unwrap();
    let other = RedisStore::connect(&replica.url()).await.unwrap();
    admitted + fill(&other.deadline(PATIENCE).clock(&noon()), policy).await
}

fn day() -> i64 {
    NOON - NOON.rem_euclid(86_400_000)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_replica_had_not_got_is_admitted_once_more_and_no_more_than_that() {
    let policy = Policy::daily(100).name("p");
    assert_eq!(fails_over(&policy.clone().leases(false)).await, 107);
    // What was charged ahead is in the lost span too.
    let admitted = fails_over(&policy).await;
    assert!((100..=107 + 3 * 60 / 16).contains(&admitted), "{admitted}");
}
