//! Leases of many keys that go back a page at a time.

use super::*;
use crate::store::{NewLimit, SetLimit};

/// A page of idle leases goes back in one process, of keys that were refused once. The lease of another key is none of them.
#[tokio::test]
async fn a_page_that_goes_back_in_one_process_ends_no_lease_in_another() {
    let (_folder, path) = folder();
    let clock = clock_at(NOW - NOW % 60_000);
    let (one, other) = (open_at(&path, &clock).await, open_at(&path, &clock).await);
    for _ in 0..50 {
        assert!(is_admitted(&other, 10_000, 1).await);
    }
    let is_leased = || other.engine.keys_in_memory() > 0;
    for cost in [1, 1, 200] {
        let charges = (0..1_000).map(|n| {
            let key = Key::new("user", format!("idle{n}"));
            charge_of(&[(&policy(100), &key)], cost)
        });
        let replies: Vec<_> = charges.map(|charge| one.engine.charge(&charge)).collect();
        for reply in replies {
            assert_eq!(reply.await.unwrap().is_admitted(), cost == 1);
        }
    }
    clock.advance(Duration::from_secs(3));
    assert!(is_leased());
    one.engine.sweep().await.unwrap();
    for _ in 0..2_000 {
        look(&other, 10_000).await;
        assert!(is_leased(), "all leases were dropped");
    }
}

/// A limit for all is raised, and every key finds what was leased under the one before, though not all has gone back.
#[tokio::test]
async fn what_waits_to_go_back_is_found_by_looks_and_charges() {
    let (_folder, path) = folder();
    let store = open_at(&path, &clock_at(NOW)).await;
    let charge = |n: u32, cost| {
        let key = Key::new("user", n);
        charge_of(&[(&policy(100), &key)], cost)
    };
    for _ in 0..4 {
        let replies: Vec<_> = (0..2_500)
            .map(|n| store.engine.charge(&charge(n, 1)))
            .collect();
        for reply in replies {
            assert!(reply.await.unwrap().is_admitted());
        }
    }
    assert!(stored(&path).await > 10_000, "nothing is leased");
    let set = SetLimit {
        filed_under: "p".to_owned(),
        key: None,
        limit: Some(NewLimit {
            units: Some(100),
            ends_at: None,
        }),
        now: Timestamp::from_unix_millis(NOW),
    };
    store.engine.set_limit(set).await.unwrap();
    for n in (0..2_500).step_by(50) {
        let outcome = store.engine.peek(charge(n, 1)).await.unwrap();
        let used = outcome.found.first().state.used(&policy(100), outcome.at);
        assert_eq!(used, 4, "key {n}");
        let rest = store.engine.charge(&charge(n, 96)).await.unwrap();
        assert!(rest.is_admitted(), "key {n}");
    }
}
