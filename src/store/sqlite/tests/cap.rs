//! The cap on rows in memory.

use super::*;

async fn is_admitted(store: &SqliteStore, charge: Charge) -> Result<bool, StoreError> {
    Ok(store.engine.charge(&charge).await?.is_admitted())
}

fn capped(max_rows: u64) -> (SqliteStore, ManualClock) {
    let clock = clock_at(NOW);
    let store = SqliteStore::in_memory_of(max_rows);
    (store.deadline(PATIENCE).clock(&clock), clock)
}

async fn flood(store: &SqliteStore, from: u32, to: u32) {
    let replies: Vec<_> = (from..to)
        .map(|n| store.engine.charge(&charge(n, 9)))
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
        store.engine.charge(&charge("busy", 9)).await.unwrap();
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
        let replies: Vec<_> = (0..20)
            .map(|n| store.engine.charge(&charge(n, 1)))
            .collect();
        for reply in replies {
            reply.await.unwrap();
        }
    }
    let batch = [charge("new", 1), charge(3, 1)].map(|charge| store.engine.charge(&charge));
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

/// A row of each kind.
fn policies(limit: u32) -> [Policy; 4] {
    [
        Policy::fixed(limit, 60).name("p"),
        Policy::sliding(limit, 60).name("p"),
        Policy::sliding_counter(limit, 60).name("p"),
        Policy::token_bucket(limit, 60).name("p"),
    ]
}

async fn flood_under(store: &SqliteStore, policies: &[Policy], keys: std::ops::Range<u32>) {
    let charges = keys.flat_map(|n| policies.iter().map(move |policy| charge_under(policy, n)));
    let replies: Vec<_> = charges.map(|charge| store.engine.charge(&charge)).collect();
    for reply in replies {
        reply.await.unwrap();
    }
}

async fn count(store: &SqliteStore) -> u64 {
    store.engine.sweep().await.unwrap()
}

#[tokio::test]
async fn a_flood_under_any_algorithm_frees_no_refused_key_and_stays_below_the_cap() {
    for refused in policies(1) {
        let (store, clock) = capped(100);
        assert!(
            is_admitted(&store, charge_under(&refused, "refused"))
                .await
                .unwrap()
        );
        assert!(
            !is_admitted(&store, charge_under(&refused, "refused"))
                .await
                .unwrap()
        );
        for from in (0..3_000).step_by(10) {
            flood_under(&store, &policies(9), from..from + 10).await;
        }
        let refused_again = !is_admitted(&store, charge_under(&refused, "refused"))
            .await
            .unwrap();
        assert!(refused_again, "{refused}");
        clock.advance(Duration::from_hours(10));
        let rows = count(&store).await;
        assert!((50..=100).contains(&rows), "{refused}: {rows}");
    }
}

#[tokio::test]
async fn what_is_used_up_goes_after_what_has_something_left_under_any_algorithm() {
    for full in policies(1) {
        let (store, _) = capped(100);
        assert!(
            is_admitted(&store, charge_under(&full, "full"))
                .await
                .unwrap()
        );
        for from in (0..1_000).step_by(10) {
            flood_under(&store, &policies(9), from..from + 10).await;
        }
        let is_kept = !is_admitted(&store, charge_under(&full, "full"))
            .await
            .unwrap();
        assert!(is_kept, "{full}");
    }
}

#[tokio::test]
async fn a_charge_for_which_there_is_no_room_is_an_error_and_the_others_of_its_batch_are_not() {
    let sliding = Policy::sliding(1, 60).name("p");
    let (store, clock) = capped(20);
    for _ in 0..2 {
        flood_under(&store, std::slice::from_ref(&sliding), 0..20).await;
    }
    let [new, old] = ["new", "3"].map(|key| store.engine.charge(&charge_under(&sliding, key)));
    let new = new.await;
    assert!(matches!(new, Err(StoreError::Full)), "{new:?}");
    assert!(!old.await.unwrap().is_admitted());
    clock.advance(Duration::from_secs(120));
    assert!(
        is_admitted(&store, charge_under(&sliding, "new"))
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn what_a_reset_deletes_is_room_again() {
    let sliding = Policy::sliding(1, 60).name("p");
    let (store, _) = capped(20);
    for _ in 0..2 {
        flood_under(&store, std::slice::from_ref(&sliding), 0..20).await;
    }
    let reset = Reset {
        part: charge_under(&sliding, "3").parts.first().clone(),
        with_keys_under: false,
        at: Timestamp::from_unix_millis(NOW),
    };
    assert_eq!(store.engine.reset(reset).await.unwrap(), 1);
    assert!(
        is_admitted(&store, charge_under(&sliding, "new"))
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn what_a_sliding_counter_refuses_for_the_window_before_stays_refused() {
    let counter = Policy::sliding_counter(10, 60).name("refused");
    let (store, clock) = capped(50);
    let charge = |cost| charge_of(&[(&counter, &Key::new("user", "a"))], cost);
    assert!(is_admitted(&store, charge(10)).await.unwrap());
    clock.advance(Duration::from_secs(60));
    assert!(!is_admitted(&store, charge(1)).await.unwrap());
    for from in (0..200).step_by(10) {
        flood(&store, from, from + 10).await;
    }
    assert!(!is_admitted(&store, charge(1)).await.unwrap());
}

#[tokio::test]
async fn one_new_key_does_not_cost_all_keys_that_have_many_events() {
    let sliding = Policy::sliding(1_000, 60).name("p");
    let (store, clock) = capped(1_000);
    for _ in 0..100 {
        clock.advance(Duration::from_millis(1));
        flood_under(&store, std::slice::from_ref(&sliding), 0..10).await;
    }
    assert!(
        is_admitted(&store, charge_under(&sliding, "new"))
            .await
            .unwrap()
    );
    let mut left = 0;
    for n in 0..10 {
        let outcome = store.engine.peek(charge_under(&sliding, n)).await.unwrap();
        let used = outcome.found.first().state.used(&sliding, outcome.at);
        assert!(used == 0 || used == 100, "{n}: {used}");
        left += used;
    }
    assert!((700..1_000).contains(&left), "{left}");
}

#[tokio::test]
async fn a_refusal_is_an_answer_also_when_there_is_no_room_to_count_it() {
    let (store, _) = capped(20);
    for _ in 0..2 {
        flood_under(&store, &[Policy::fixed(1, 60).name("p")], 0..20).await;
    }
    for closed in policies(0) {
        assert!(
            !is_admitted(&store, charge_under(&closed, "new"))
                .await
                .unwrap(),
            "{closed}"
        );
    }
    let too_much = charge_of(&[(&Policy::fixed(3, 60), &Key::new("user", "new"))], 4);
    assert!(!is_admitted(&store, too_much).await.unwrap());
}

#[tokio::test]
async fn a_flood_of_keys_takes_no_units_from_a_busy_one() {
    let (store, clock) = capped(400);
    let (mut admitted, mut n) = (0, 0);
    loop {
        for _ in 0..20 {
            if !is_admitted(&store, charge("busy", 1_000)).await.unwrap() {
                assert_eq!(admitted, 1_000);
                return;
            }
            admitted += 1;
        }
        clock.advance(Duration::from_millis(20));
        flood(&store, n, n + 50).await;
        n += 50;
    }
}
