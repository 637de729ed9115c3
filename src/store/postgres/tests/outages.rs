//! Servers that are killed, restarted, or stand still.

use super::*;
use crate::store::GiveBack;
use crate::store::engine::Backend;

fn policy(limit: u32) -> Policy {
    Policy::daily(limit).name("p").leases(false)
}

async fn connect(server: &PostgresServer) -> PostgresStore {
    let store = PostgresStore::connect(&server.url()).await.unwrap();
    store.deadline(PATIENCE)
}

#[tokio::test]
async fn a_killed_server_goes_on_with_what_it_has_stored() {
    let mut server = PostgresServer::start();
    let store = connect(&server).await;
    for _ in 0..3 {
        assert!(is_admitted(&store, &policy(5)).await);
    }
    server.kill();
    let began = clock::monotonic();
    for _ in 0..20 {
        charge(&store, &policy(5), 1).await.unwrap_err();
    }
    assert!(clock::monotonic() - began < Duration::from_secs(5));
    assert!(!store.health().is_answering());
    server.restart();
    let (outcome, _) = charge_patiently(&store, &policy(5)).await;
    assert!(outcome.is_admitted());
    assert!(store.health().is_answering());
    assert_eq!(4 + fill(&store, &policy(5)).await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn under_load_kills_lose_nothing_and_double_nothing_but_what_was_in_doubt() {
    let mut server = PostgresServer::start();
    let store = connect(&server).await;
    let policies = [
        policy(u32::MAX),
        Policy::sliding(u32::MAX, 86_400).name("log"),
    ];
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let (store, policy) = (store.clone(), policies[n % 2].clone().leases(false));
            tokio::spawn(async move {
                let (mut admitted, mut errors) = (0_u64, 0_u64);
                let until = clock::monotonic() + PATIENCE;
                // Some before the kills, and some after.
                while admitted < 200 && clock::monotonic() < until {
                    match charge(&store, &policy, 1).await {
                        Ok(outcome) => admitted += u64::from(outcome.is_admitted()),
                        Err(_) => errors += 1,
                    }
                    tokio::task::yield_now().await;
                }
                (n % 2, admitted, errors)
            })
        })
        .collect();
    for _ in 0..3 {
        server.kill();
        server.restart();
    }
    let (mut admitted, mut errors) = ([0, 0], [0, 0]);
    for task in tasks {
        let (kind, more, failed) = task.await.unwrap();
        admitted[kind] += more;
        errors[kind] += failed;
    }
    charge_patiently(&store, &Policy::fixed(1, 60)).await;
    for (kind, policy) in policies.iter().enumerate() {
        let used = used(&store, policy).await;
        let (admitted, errors) = (admitted[kind], errors[kind]);
        assert!(admitted >= 8 * 200, "{admitted}");
        assert!(
            (admitted..=admitted + errors).contains(&used),
            "{used} {admitted} {errors}"
        );
    }
}

#[tokio::test]
async fn a_server_that_stands_still_is_waited_for_until_the_deadline() {
    let server = PostgresServer::start();
    let store = connect(&server).await;
    assert!(is_admitted(&store, &policy(9)).await);
    let store = store.deadline(Duration::from_millis(100));
    server.pause();
    let began = clock::monotonic();
    let error = charge(&store, &policy(9), 1).await.unwrap_err();
    let waited = clock::monotonic() - began;
    server.resume();
    assert!(matches!(error, StoreError::DeadlineExceeded), "{error:?}");
    assert!(waited < Duration::from_secs(2), "{waited:?}");
    let (outcome, _) = charge_patiently(&store, &policy(9)).await;
    assert!(outcome.is_admitted());
}

/// It is longer than a call is waited for: the writer gives its connection up, and goes on with another one.
#[tokio::test]
async fn a_call_that_hangs_does_not_hold_the_store_for_ever() {
    let schema = PostgresServer::new_schema();
    let store = open_in(&schema).await;
    assert!(is_admitted(&store, &policy(9)).await);
    let mut other = PgConnection::connect(&PostgresServer::shared().url())
        .await
        .unwrap();
    let mut held = other.begin().await.unwrap();
    let lock = format!("LOCK TABLE \"{schema}\".rate_limit_windows");
    sqlx::query(AssertSqlSafe(lock))
        .execute(&mut *held)
        .await
        .unwrap();
    let error = charge(&store, &policy(9), 1).await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    held.rollback().await.unwrap();
    let (outcome, _) = charge_patiently(&store, &policy(9)).await;
    assert!(outcome.is_admitted());
    assert_eq!(
        used(&store, &policy(9)).await,
        2,
        "what was given up was undone"
    );
}

#[tokio::test]
async fn unlogged_counters_are_lost_with_a_crash_and_nothing_goes_back_to_new_ones() {
    let mut server = PostgresServer::start();
    let options = PostgresStoreOptions::new().unlogged(true);
    let store = options.connect(&server.url()).await.unwrap();
    let store = store.deadline(PATIENCE).clock(&noon());
    let leased = Policy::fixed(1_000, 60).name("leased");
    for _ in 0..200 {
        assert!(is_admitted(&store, &leased).await);
    }
    server.kill();
    server.restart();
    charge_patiently(&store, &policy(1)).await;
    // What was leased by then passes at the most, and then what a new counter has.
    let admitted = fill(&store, &leased).await;
    assert!((1_000..=1_150).contains(&admitted), "{admitted}");
    store.close().await.unwrap();
    let other = connect(&server).await.clock(&noon());
    assert!(!is_admitted(&other, &leased).await);
}

/// Each table begins with epoch 0: a refund of an old counter looks like one of the new.
#[tokio::test]
async fn a_refund_that_is_the_first_to_see_that_counters_were_lost_gives_nothing_back() {
    let mut server = PostgresServer::start();
    let options = PostgresStoreOptions::new().unlogged(true);
    let store = options.connect(&server.url()).await.unwrap();
    let clock = noon();
    let store = store.deadline(PATIENCE).clock(&clock);
    let mut backend = backend_at(&server.url(), None);
    backend.open().await.unwrap();
    let outcome = charge(&store, &policy(9), 3).await.unwrap();
    let back = GiveBack {
        part: crate::store::suite::part_of(&policy(9), &alice()),
        units: 3,
        from: outcome.found.first().state.taken(&policy(9), outcome.at),
        taken_at: outcome.at,
    };
    server.kill();
    server.restart();
    // Others use what is new.
    let other = connect(&server).await.clock(&clock);
    assert!(charge(&other, &policy(9), 3).await.unwrap().is_admitted());
    let clock = Clock::Manual(clock);
    // The first one finds that its connection is gone.
    let backs = [back];
    backend.give_back(&backs, &clock).await.unwrap_err();
    let left = backend.give_back(&backs, &clock).await.unwrap();
    assert!(left.is_empty());
    assert_eq!(used(&other, &policy(9)).await, 3);
    assert!(backend.take_lost());
}

#[tokio::test]
async fn tables_that_are_gone_are_made_again() {
    let server = PostgresServer::shared();
    let schema = PostgresServer::new_schema();
    let store = open_in(&schema).await;
    let others = [policy(3), Policy::sliding(3, 60).name("log")];
    for policy in &others {
        fill(&store, policy).await;
    }
    query(server, &format!("DROP SCHEMA {schema} CASCADE")).await;
    for policy in &others {
        charge_patiently(&store, policy).await;
        let until = clock::monotonic() + PATIENCE;
        // What was known to be over is asked again, once it is seen that all is new.
        while !charge_patiently(&store, policy).await.0.is_admitted() {
            assert!(clock::monotonic() < until, "{policy}");
        }
    }
}
