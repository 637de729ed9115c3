//! Leases of several policies at once, and of sliding counters, on a real file.

use super::*;

async fn open_at(path: &Path, clock: &ManualClock) -> SqliteStore {
    let store = SqliteStore::open(path).await.unwrap();
    store.deadline(PATIENCE).clock(clock)
}

fn burst_and_quota() -> [Policy; 2] {
    let quota = Policy::daily(50_000).name("quota");
    [Policy::fixed(4_000, 1).name("burst"), quota]
}

fn charge_of_all(policies: &[Policy]) -> Charge {
    let key = Key::new("user", "a");
    let parts: Vec<_> = policies.iter().map(|policy| (policy, &key)).collect();
    charge_of(&parts, 1)
}

/// Asks until it is refused.
async fn fill(store: &SqliteStore, charge: &Charge) -> u32 {
    let mut admitted = 0;
    while store.engine.charge(charge).await.unwrap().is_admitted() {
        admitted += 1;
    }
    admitted
}

/// Has both stores ask at a time until each of them is refused.
async fn fill_both(stores: &[SqliteStore; 2], charge: &Charge) -> u32 {
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let (store, charge) = (stores[n % 2].clone(), charge.clone());
            tokio::spawn(async move { fill(&store, &charge).await })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    admitted
}

async fn used(path: &Path, policy: &str) -> i64 {
    let query = "SELECT policy, used FROM rate_limit_windows";
    let rows = rows(path, query).await;
    let own = rows
        .iter()
        .filter(|row| row.get::<&str, _>(0).starts_with(policy));
    own.map(|row| row.get::<i64, _>(1)).sum()
}

#[tokio::test]
async fn most_charges_of_several_policies_need_no_database() {
    let (_folder, path) = folder();
    let clock = clock_at(NOW - NOW % 1_000);
    let store = open_at(&path, &clock).await;
    let charge = charge_of_all(&burst_and_quota());
    let (mut at_once, mut admitted) = (0, 0);
    for _ in 0..5 {
        for _ in 0..3_000 {
            let reply = store.engine.charge(&charge);
            at_once += u32::from(reply.is_ready());
            admitted += i64::from(reply.await.unwrap().is_admitted());
        }
        clock.advance(Duration::from_secs(1));
    }
    assert_eq!(admitted, 15_000);
    assert!(at_once > 13_500, "{at_once}");
    store.close().await.unwrap();
    assert_eq!(
        [used(&path, "quota").await, used(&path, "burst").await],
        [15_000; 2]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_stores_fill_every_window_of_each_policy_and_no_more() {
    let (_folder, path) = folder();
    let clock = clock_at(NOW - NOW % 1_000);
    let stores = [open_at(&path, &clock).await, open_at(&path, &clock).await];
    let charge = charge_of_all(&burst_and_quota());
    let mut admitted = Vec::new();
    for _ in 0..14 {
        admitted.push(fill_both(&stores, &charge).await);
        clock.advance(Duration::from_secs(1));
    }
    // The quota has 50,000.
    let mut expected = vec![4_000; 12];
    expected.extend([2_000, 0]);
    assert_eq!(admitted, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_stores_fill_a_sliding_counter_and_no_more() {
    let (_folder, path) = folder();
    let clock = clock_at(NOW - NOW % 60_000);
    let stores = [open_at(&path, &clock).await, open_at(&path, &clock).await];
    let charge = charge_of_all(&[Policy::sliding_counter(3_000, 60).name("counter")]);
    let mut admitted = Vec::new();
    for _ in 0..4 {
        admitted.push(fill_both(&stores, &charge).await);
        clock.advance(Duration::from_secs(20));
    }
    // Nothing leaves within the first window; then a third of it has left.
    assert_eq!(admitted, [3_000, 0, 0, 0]);
    assert_eq!(fill_both(&stores, &charge).await, 1_000);
    clock.advance(Duration::from_millis(100));
    assert_eq!(fill_both(&stores, &charge).await, 5);
    clock.advance(Duration::from_millis(19_900));
    assert_eq!(fill_both(&stores, &charge).await, 995);
}

#[tokio::test]
async fn what_is_left_of_a_sliding_counters_lease_is_not_held_against_the_next_window() {
    let (_folder, path) = folder();
    let clock = clock_at(NOW - NOW % 60_000);
    let store = open_at(&path, &clock).await;
    let policy = Policy::sliding_counter(3_000, 60).name("counter");
    let charge = charge_of_all(std::slice::from_ref(&policy));
    for _ in 0..1_000 {
        assert!(store.engine.charge(&charge).await.unwrap().is_admitted());
    }
    assert!(used(&path, "counter").await > 1_000, "nothing was leased");
    clock.advance(Duration::from_secs(90));
    let outcome = store.engine.charge(&charge).await.unwrap();
    let state = outcome.found.first().state;
    assert_eq!(state.used(&policy, outcome.at), 501);
}
