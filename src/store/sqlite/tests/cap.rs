//! The cap on rows in memory.

use super::*;

async fn is_admitted(store: &SqliteStore, charge: Charge) -> Result<bool, StoreError> {
    Ok(store.engine.charge(charge).await?.is_admitted())
}

fn capped(max_rows: u64) -> (SqliteStore, ManualClock) {
    let clock = clock_at(NOW);
    let store = SqliteStore::in_memory_of(max_rows);
    (store.deadline(PATIENCE).clock(&clock), clock)
}

async fn flood(store: &SqliteStore, from: u32, to: u32) {
    let replies: Vec<_> = (from..to)
        .map(|n| store.engine.charge(charge(n, 9)))
        .collect();
    for reply in replies {
        reply.await.unwrap();
    }
}

#[tokio::test]
async fn a_flood_of_keys_frees_no_refused_key() {
    let store = capped(100).0;
    assert!(is_admitted(&store, charge("refused", 1)).await.unwrap());
    assert!(!is_admitted(&store, charge("refused", 1)).await.unwrap());
    for from in (0..5_000).step_by(50) {
        flood(&store, from, from + 50).await;
    }
    assert!(!is_admitted(&store, charge("refused", 1)).await.unwrap());
}

#[tokio::test]
async fn a_key_that_has_used_all_goes_after_those_that_have_something_left() {
    let store = capped(100).0;
    assert!(is_admitted(&store, charge("0", 1)).await.unwrap());
    for from in (1..2_001).step_by(50) {
        flood(&store, from, from + 50).await;
    }
    assert!(!is_admitted(&store, charge("0", 1)).await.unwrap());
}

#[tokio::test]
async fn one_shot_keys_go_before_busy_ones() {
    let store = capped(100).0;
    for _ in 0..5 {
        store.engine.charge(charge("busy", 9)).await.unwrap();
    }
    for from in (0..2_000).step_by(10) {
        flood(&store, from, from + 10).await;
    }
    assert_eq!(used(&store, "busy").await, 5);
}

#[tokio::test]
async fn a_new_key_gets_an_error_while_all_are_refused_ones() {
    let (store, clock) = capped(20);
    for _ in 0..2 {
        let replies: Vec<_> = (0..20).map(|n| store.engine.charge(charge(n, 1))).collect();
        for reply in replies {
            reply.await.unwrap();
        }
    }
    let batch = [charge("new", 1), charge(3, 1)].map(|charge| store.engine.charge(charge));
    let [new, old] = batch;
    let new = new.await;
    assert!(matches!(new, Err(StoreError::Full)), "{new:?}");
    assert!(!old.await.unwrap().is_admitted());
    clock.advance(Duration::from_secs(120));
    assert!(is_admitted(&store, charge("new", 1)).await.unwrap());
}

#[tokio::test]
async fn a_batch_of_known_keys_evicts_nobody() {
    let store = capped(100).0;
    flood(&store, 0, 100).await;
    flood(&store, 0, 100).await;
    for n in 0..100 {
        assert_eq!(used(&store, &n.to_string()).await, 2, "{n}");
    }
}
