//! The example `own_store`: its table passes the suite of every store, and the server forgets nothing.

#[path = "../../examples/own_store/sql_records.rs"]
mod sql_records;

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;
use tollgate::{FailureMode, Key, Limiter, Policy, RecordStore, Store, StoreError, Verdict};

use self::sql_records::{OurStore, SqlRecords};
use crate::support::{LONG, Server, clock};

/// The machine of a test does not go down: nothing waits for the disk.
fn records(folder: &TempDir) -> SqlRecords {
    SqlRecords::new(options(&folder.path().join("records.db")))
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Off)
        .busy_timeout(Duration::from_secs(60))
}

/// Without a deadline to speak of: a busy machine must not fail a test.
fn store(folder: &TempDir) -> RecordStore {
    RecordStore::new("records", records(folder)).deadline(Duration::from_secs(10))
}

tollgate::records_suite!(async || {
    let folder = tempfile::tempdir().unwrap();
    move || records(&folder)
});

tollgate::store_suite!(async |clock| {
    let folder = tempfile::tempdir().unwrap();
    (store(&folder).clock(&clock), folder)
});

fn limiter(policy: Policy, store: &impl Store) -> Limiter {
    let limiter = Limiter::new(policy).store(store);
    limiter.on_store_failure(FailureMode::Closed)
}

fn alice() -> Key {
    Key::new("user", "alice")
}

/// How many of 800 charges two stores on one file admit, each of them on a connection of its own.
async fn of_two_stores(policy: &Policy) -> u32 {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let stores = [0, 1].map(|_| store(&folder).clock(&clock));
    let tasks = (0..8).map(|task| {
        let limiter = limiter(policy.clone(), &stores[task % 2]);
        tokio::spawn(async move {
            let mut admitted = 0;
            for _ in 0..100 {
                admitted += u32::from(limiter.check(alice()).await.unwrap().is_allowed());
            }
            admitted
        })
    });
    let mut admitted = 0;
    for task in tasks.collect::<Vec<_>>() {
        admitted += task.await.unwrap();
    }
    admitted
}

#[tokio::test(flavor = "multi_thread")]
async fn two_stores_on_a_file_admit_exactly_the_limit() {
    let policies = [
        Policy::fixed(150, 60).leases(false),
        Policy::sliding(150, 60),
        Policy::sliding_counter(150, 60).leases(false),
        Policy::token_bucket(150, 60).leases(false),
    ];
    for policy in policies {
        assert_eq!(of_two_stores(&policy).await, 150, "{policy}");
    }
}

/// What one store has charged ahead the other one can't spend.
#[tokio::test(flavor = "multi_thread")]
async fn two_stores_that_charge_ahead_admit_no_more_than_the_limit() {
    for policy in [Policy::fixed(150, 60), Policy::token_bucket(150, 60)] {
        let admitted = of_two_stores(&policy).await;
        assert!((100..=150).contains(&admitted), "{policy}: {admitted}");
    }
}

/// The suite has one store write at a time. Of two stores one often finds that the other was first, with a part written already.
#[tokio::test(flavor = "multi_thread")]
async fn a_charge_of_two_policies_is_made_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let stores = [0, 1].map(|_| store(&folder).clock(&clock));
    let policies = [
        Policy::fixed(1_000, 60).name("own").leases(false),
        Policy::fixed(1_000, 60).name("shared").leases(false),
    ];
    let tasks = [0, 1].map(|place| {
        let limiter = Limiter::new(policies.clone()).store(&stores[place]);
        let limiter = limiter.on_store_failure(FailureMode::Closed);
        tokio::spawn(async move {
            let keys = [Key::new("user", place), Key::new("all", 1)];
            for _ in 0..100 {
                assert!(limiter.check(&keys).await.unwrap().is_allowed());
            }
            let decision = limiter.peek(&keys).await.unwrap();
            let used = decision.verdicts().next().map(Verdict::used);
            assert_eq!(used, Some(100));
        })
    });
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_store_that_is_opened_again_forgets_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let policy = Policy::fixed(10, LONG);
    for used in [0, 4] {
        let store = OurStore::open(records(&folder)).await.unwrap();
        let limiter = limiter(policy.clone(), &store);
        // What was charged ahead and not used went back when it was closed.
        assert_eq!(limiter.peek(alice()).await.unwrap().used(), used);
        for _ in 0..4 {
            assert!(limiter.check(alice()).await.unwrap().is_allowed());
        }
        store.close().await.unwrap();
    }
}

/// What failed changed nothing, and the next charge opens the file again.
#[tokio::test]
async fn a_file_that_is_locked_is_a_transient_error_and_nothing_is_charged() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(&folder.path().join("records.db"));
    let mut other = options.connect().await.unwrap();
    let impatient = SqlRecords::new(options.busy_timeout(Duration::from_millis(1)));
    let store = OurStore::open(impatient).await.unwrap();
    let limiter = limiter(Policy::fixed(10, LONG).leases(false), &store);
    assert!(limiter.check(alice()).await.unwrap().is_allowed());

    let locked = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let error = limiter.check(alice()).await.unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::Database {
                is_transient: true,
                ..
            }
        ),
        "{error:?}"
    );
    locked.rollback().await.unwrap();
    assert_eq!(limiter.check(alice()).await.unwrap().used(), 2);
    store.close().await.unwrap();
}

async fn ping(server: &Server) -> u16 {
    let response = reqwest::get(format!("{}/ping", server.url)).await.unwrap();
    response.status().as_u16()
}

#[tokio::test]
async fn the_example_counts_and_a_restart_forgets_nothing() {
    let mut server = Server::start("own_store");
    for status in [200, 200, 200, 429] {
        assert_eq!(ping(&server).await, status);
    }
    server.restart();
    assert_eq!(ping(&server).await, 429);
}

#[cfg(unix)]
#[tokio::test]
async fn a_service_manager_ends_the_example_cleanly() {
    let mut server = Server::start("own_store");
    assert_eq!(ping(&server).await, 200);
    assert!(server.terminate().success());
    server.restart();
    for status in [200, 200, 429] {
        assert_eq!(ping(&server).await, status);
    }
}
