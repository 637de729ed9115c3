//! Leases on a real file: never over the limit, and nothing of it lost but by a kill.

mod pages;

use super::*;
use crate::limit::algorithm::State;
use crate::store::Reply;
use crate::store::engine::Ahead;

fn policy(limit: u32) -> Policy {
    Policy::fixed(limit, 60).name("p")
}

async fn open_at(path: &Path, clock: &ManualClock) -> SqliteStore {
    let store = SqliteStore::open(path).await.unwrap();
    store.deadline(PATIENCE).clock(clock)
}

async fn is_admitted(store: &SqliteStore, limit: u32, cost: u32) -> bool {
    let charge = charge_of(&[(&policy(limit), &Key::new("user", "a"))], cost);
    store.engine.charge(&charge).await.unwrap().is_admitted()
}

async fn stored(path: &Path) -> i64 {
    let query = "SELECT coalesce(sum(used), 0) FROM rate_limit_windows";
    rows(path, query).await[0].get(0)
}

/// Asks until it is refused.
async fn fill(store: &SqliteStore, limit: u32) -> u32 {
    let mut admitted = 0;
    while is_admitted(store, limit, 1).await {
        admitted += 1;
    }
    admitted
}

async fn look(store: &SqliteStore, limit: u32) -> u64 {
    let look = charge_of(&[(&policy(limit), &Key::new("user", "a"))], 1);
    let outcome = store.engine.peek(look).await.unwrap();
    outcome.found.first().state.used(&policy(limit), outcome.at)
}

#[tokio::test]
async fn most_charges_need_no_database_and_the_limit_is_met_exactly() {
    let (_folder, path) = folder();
    let store = open_at(&path, &clock_at(NOW)).await;
    let mut at_once = 0;
    for n in 1..=10_000_u64 {
        let charge = charge_of(&[(&policy(10_000), &Key::new("user", "a"))], 1);
        let reply = store.engine.charge(&charge);
        at_once += u32::from(reply.is_ready());
        let outcome = reply.await.unwrap();
        assert!(outcome.is_admitted());
        let used = outcome
            .found
            .first()
            .state
            .used(&policy(10_000), outcome.at);
        assert_eq!(used, n, "each is told what is used by then");
    }
    assert!(at_once > 9_000, "{at_once}");
    assert!(!is_admitted(&store, 10_000, 1).await);
    assert_eq!(stored(&path).await, 10_000);
}

#[tokio::test]
async fn a_look_in_the_same_process_is_exact_and_closing_gives_back_what_is_left() {
    let (_folder, path) = folder();
    let store = open_at(&path, &clock_at(NOW)).await;
    for n in 1..=100 {
        assert!(is_admitted(&store, 10_000, 1).await);
        assert_eq!(look(&store, 10_000).await, n);
    }
    assert!(stored(&path).await > 100, "nothing was charged ahead");
    store.close().await.unwrap();
    assert_eq!(stored(&path).await, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_stores_that_ask_for_all_they_can_get_exactly_the_limit() {
    let (_folder, path) = folder();
    let clock = clock_at(NOW);
    let stores = [open_at(&path, &clock).await, open_at(&path, &clock).await];
    for window in 0..3 {
        let tasks: Vec<_> = (0..16)
            .map(|n| {
                let store = stores[n % 2].clone();
                tokio::spawn(async move { fill(&store, 5_000).await })
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += task.await.unwrap();
        }
        assert_eq!(admitted, 5_000, "window {window}");
        clock.advance(Duration::from_secs(60));
    }
}

#[tokio::test]
async fn no_window_gets_more_than_its_limit_when_clocks_go_on_and_back() {
    let (_folder, path) = folder();
    let clock = clock_at(NOW);
    let store = open_at(&path, &clock).await;
    let mut admitted = std::collections::HashMap::new();
    for step in 0..4_000_i64 {
        let millis = NOW + (step * 37) % 1_000 * 400 - (step % 7) * 1_000;
        clock.set(Timestamp::from_unix_millis(millis));
        let charge = charge_of(&[(&policy(100), &Key::new("user", "a"))], 1);
        let outcome = store.engine.charge(&charge).await.unwrap();
        if outcome.is_admitted() {
            let window = outcome.at.unix_millis() / 60_000;
            *admitted.entry(window).or_insert(0) += 1;
        }
    }
    assert!(
        admitted.values().all(|admitted| *admitted <= 100),
        "{admitted:?}"
    );
    assert!(admitted.len() > 5);
}

#[tokio::test]
async fn a_reset_ends_leases_and_what_is_given_back_later_does_not_count_for_it() {
    let (_folder, path) = folder();
    let clock = clock_at(NOW);
    let [one, other] = [open_at(&path, &clock).await, open_at(&path, &clock).await];
    for _ in 0..50 {
        assert!(is_admitted(&one, 1_000, 1).await);
        assert!(is_admitted(&other, 1_000, 1).await);
    }
    let reset = Reset {
        part: charge_under(&policy(1_000), "a").parts.first().clone(),
        with_keys_under: false,
        at: Timestamp::from_unix_millis(NOW),
    };
    let of_other = stored(&path).await - 100;
    let given_back = i64::try_from(one.engine.reset(reset).await.unwrap()).unwrap();
    assert!((100..100 + of_other).contains(&given_back), "{given_back}");
    assert_eq!(look(&one, 1_000).await, 0);
    let admitted = fill(&one, 1_000).await;
    assert_eq!(admitted, 1_000);
    // Its lease is of before the reset: giving it back must make no room now.
    other.close().await.unwrap();
    assert_eq!(stored(&path).await, 1_000);
    assert!(!is_admitted(&one, 1_000, 1).await);
}

#[tokio::test]
async fn a_reset_of_a_whole_policy_ends_its_leases_and_counts_what_was_spent() {
    let (_folder, path) = folder();
    let store = open_at(&path, &clock_at(NOW)).await;
    for _ in 0..50 {
        assert!(is_admitted(&store, 1_000, 1).await);
    }
    assert!(stored(&path).await > 50, "nothing was leased");
    let mut part = charge_under(&policy(1_000), "a").parts.first().clone();
    part.key = Key::prefix_of_all();
    let reset = Reset {
        part,
        with_keys_under: true,
        at: Timestamp::from_unix_millis(NOW),
    };
    assert_eq!(store.engine.reset(reset).await.unwrap(), 50);
    assert_eq!(look(&store, 1_000).await, 0);
    assert_eq!(fill(&store, 1_000).await, 1_000);
}

#[tokio::test]
async fn a_large_cost_finds_what_was_leased() {
    let (_folder, path) = folder();
    let store = open_at(&path, &clock_at(NOW)).await;
    for _ in 0..60 {
        assert!(is_admitted(&store, 100, 1).await);
    }
    assert!(is_admitted(&store, 100, 40).await, "all that is left");
    assert!(!is_admitted(&store, 100, 1).await);
    assert_eq!(stored(&path).await, 100);
}

#[tokio::test]
async fn idle_leases_go_back_with_a_sweep() {
    let (_folder, path) = folder();
    let clock = clock_at(NOW);
    let store = open_at(&path, &clock).await;
    for _ in 0..100 {
        assert!(is_admitted(&store, 10_000, 1).await);
    }
    // What was asked for ahead has come when a job is done: it would be taken later otherwise, and idle later.
    store.engine.sweep().await.unwrap();
    clock.advance(Duration::from_millis(2_499));
    store.engine.sweep().await.unwrap();
    assert!(stored(&path).await > 100, "not idle yet");
    clock.advance(Duration::from_millis(1));
    store.engine.sweep().await.unwrap();
    assert_eq!(stored(&path).await, 100);
    assert_eq!(100 + fill(&store, 10_000).await, 10_000);
}

#[tokio::test]
async fn without_leases_every_charge_is_stored_at_once() {
    let (_folder, path) = folder();
    let store = open_at(&path, &clock_at(NOW)).await;
    let policy = policy(1_000).leases(false);
    for n in 1..=50 {
        let charge = charge_of(&[(&policy, &Key::new("user", "a"))], 1);
        assert!(store.engine.charge(&charge).await.unwrap().is_admitted());
        assert_eq!(stored(&path).await, n);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn most_charges_of_many_tasks_need_no_database_either() {
    let (_folder, path) = folder();
    let store = open_at(&path, &clock_at(NOW)).await;
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut at_once = 0;
                for _ in 0..1_000 {
                    let charge = charge_of(&[(&policy(u32::MAX), &Key::new("user", "a"))], 1);
                    let reply = store.engine.charge(&charge);
                    at_once += u32::from(reply.is_ready());
                    assert!(reply.await.unwrap().is_admitted());
                    tokio::task::yield_now().await;
                }
                at_once
            })
        })
        .collect();
    let mut at_once = 0;
    for task in tasks {
        at_once += task.await.unwrap();
    }
    assert!(at_once > 48_000, "{at_once} of 64,000");
    assert_eq!(look(&store, u32::MAX).await, 64_000);
}

#[tokio::test]
async fn a_reset_while_more_is_asked_for_grants_nothing_twice() {
    let (_folder, path) = folder();
    let store = open_at(&path, &clock_at(NOW)).await;
    for _ in 0..3_000 {
        assert!(is_admitted(&store, 10_000, 1).await);
    }
    // The writer waits for the lock with the reset, while the lease is spent past its half and to its end.
    let mut other = other_connection(&path).await;
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let (held, reset) = (
        store.clone(),
        Reset {
            part: charge_under(&policy(10_000), "a").parts.first().clone(),
            with_keys_under: false,
            at: Timestamp::from_unix_millis(NOW),
        },
    );
    let job = tokio::spawn(async move { held.engine.reset(reset).await });
    tokio::task::yield_now().await;
    let charge = charge_under(&policy(10_000), "a");
    let mut waiting = Vec::new();
    while waiting.len() < 3 {
        let reply = store.engine.charge(&charge);
        if matches!(reply, Reply::Later(_)) {
            waiting.push(reply);
        }
    }
    other.execute("COMMIT").await.unwrap();
    let is_reset = job.await.unwrap().is_ok();
    // On a busy machine the writer may take these before the reset: then they are of the epoch before.
    let mut admitted = 0;
    for reply in waiting {
        let outcome = reply.await;
        let state = outcome.map(|outcome| outcome.found.first().state);
        let is_new = matches!(state, Ok(State::Window(usage)) if usage.epoch == 1);
        admitted += u32::from(is_new);
    }
    admitted += fill(&store, 10_000).await;
    // On a machine that stalls the reset fails, and the rest of the first quota is all there is.
    assert!(admitted <= 10_000, "{admitted}");
    assert!(!is_reset || admitted > 9_000, "{admitted}");
}

#[tokio::test]
async fn what_could_not_be_given_back_is_not_lost() {
    let (_folder, path) = folder();
    let store = open_at(&path, &clock_at(NOW)).await;
    for _ in 0..500 {
        assert!(is_admitted(&store, 10_000, 1).await);
    }
    let mut other = other_connection(&path).await;
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    // It is too large for the lease, which is to go back first, and can't.
    let large = charge_of(&[(&policy(10_000), &Key::new("user", "a"))], 9_000);
    assert!(store.engine.charge(&large).await.is_err());
    other.execute("COMMIT").await.unwrap();
    assert_eq!(500 + fill(&store, 10_000).await, 10_000);
}

#[tokio::test]
async fn other_charges_of_the_same_process_find_what_is_leased() {
    let (_folder, path) = folder();
    let store = open_at(&path, &clock_at(NOW)).await;
    for _ in 0..300 {
        assert!(is_admitted(&store, 1_000, 1).await);
    }
    let (one, other) = (policy(1_000), Policy::daily(10_000).name("other"));
    let key = Key::new("user", "a");
    let both = charge_of(&[(&one, &key), (&other, &key)], 1);
    let mut admitted = 300;
    while store.engine.charge(&both).await.unwrap().is_admitted() {
        admitted += 1;
    }
    assert_eq!(admitted, 1_000);
}

#[tokio::test]
async fn a_look_after_another_handles_reset_tells_what_is_used_since() {
    let (_folder, path) = folder();
    let clock = clock_at(NOW);
    let [one, other] = [open_at(&path, &clock).await, open_at(&path, &clock).await];
    for _ in 0..100 {
        assert!(is_admitted(&one, 1_000, 1).await);
    }
    let reset = Reset {
        part: charge_under(&policy(1_000), "a").parts.first().clone(),
        with_keys_under: false,
        at: Timestamp::from_unix_millis(NOW),
    };
    other.engine.reset(reset).await.unwrap();
    assert!(is_admitted(&other, 1_000, 40).await);
    assert_eq!(look(&one, 1_000).await, 40);
}

#[tokio::test]
async fn a_key_whose_row_was_evicted_has_no_lease_of_it() {
    let store = SqliteStore::in_memory_of(100);
    let store = store.deadline(PATIENCE).clock(&clock_at(NOW));
    for _ in 0..400 {
        assert!(is_admitted(&store, 1_000, 1).await);
    }
    for n in 0..600 {
        for _ in 0..2 {
            let flood = charge_under(&Policy::fixed(9, 60).name("q"), n);
            store.engine.charge(&flood).await.unwrap();
        }
    }
    assert_eq!(look(&store, 1_000).await, 0, "it was evicted");
    assert_eq!(fill(&store, 1_000).await, 1_000);
}

#[tokio::test]
async fn asking_ahead_makes_no_rows_beyond_the_cap() {
    let clock = Clock::Manual(clock_at(NOW));
    let mut backend = Sqlite {
        database: Database::new(Location::Memory),
        room: Some(Room::new(20)),
        retention: Arc::default(),
    };
    let full: Vec<_> = (0..20).flat_map(|n| [charge(n, 1), charge(n, 1)]).collect();
    charge_by(&mut backend, &full, &clock).await.unwrap();
    let part = |n: i32| charge(n, 100).parts.first().clone();
    let ahead: Vec<_> = (100..130)
        .map(|n| Ahead {
            part: part(n),
            units: 4,
        })
        .collect();
    let batch = Batch {
        charges: &[],
        ahead: &ahead,
    };
    assert!(
        backend
            .charge(batch, &clock)
            .await
            .unwrap()
            .grants
            .is_empty()
    );
    let count = sqlx::query("SELECT count(*) FROM rate_limit_windows");
    let rows = backend.database.fetch_all(count).await.unwrap();
    assert_eq!(rows[0].get::<i64, _>(0), 20);
}
