//! Several processes that take turns by the process lock, and what becomes of those that stand still or end with it.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tollgate::{FailureMode, Limiter, ManualClock, Policy, SqliteStore, Timestamp};

use crate::processes::{Charger, NOON, alice, rest};

const LOCKED: &[&str] = &["process-lock"];

#[tokio::test]
async fn exactly_the_limit_passes_of_processes_with_the_lock_and_without() {
    for text in ["fixed:200:60", "sliding:200:60"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limits.db");
        let mut chargers: Vec<_> = [LOCKED, LOCKED, &[], LOCKED]
            .into_iter()
            .map(|options| Charger::start_with(&path, text, NOON, (16, 10), options))
            .collect();
        for charger in &mut chargers {
            charger.go();
        }
        let admitted: usize = chargers.into_iter().map(Charger::admitted).sum();
        assert_eq!(admitted + rest(&path, text, NOON), 200, "{text}");
        assert!(folder.path().join("limits.db-lock").exists());
    }
}

/// A process that charges without an end, each charge in the database. What it says is read all the time.
fn endless(path: &Path) -> Charger {
    let text = format!("unleased:{}:60", u32::MAX);
    let mut charger = Charger::start_with(path, &text, NOON, (8, u32::MAX), LOCKED);
    charger.go();
    assert_eq!(charger.line(), "admitted\n");
    let mut out = charger.take_out();
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    charger
}

async fn locked_limiter(path: &Path) -> Limiter {
    let clock = ManualClock::new(Timestamp::from_unix_millis(NOON));
    let store = SqliteStore::open(path).await.unwrap();
    let store = store.clock(&clock).process_lock(true);
    let policy = Policy::fixed(u32::MAX, 60).leases(false).name("mine");
    Limiter::new(policy)
        .store(&store)
        .on_store_failure(FailureMode::Closed)
}

async fn until_charged(limiter: &Limiter) {
    let charged = async {
        while limiter.check(&alice()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    let patience = Duration::from_secs(60);
    tokio::time::timeout(patience, charged).await.unwrap();
}

/// Takes the lock, which this process's own writer may have for a moment.
async fn until_free(lock: &Path) {
    let lock = File::options().write(true).open(lock).unwrap();
    let taken = async {
        while lock.try_lock().is_err() {
            tokio::task::yield_now().await;
        }
    };
    let patience = Duration::from_secs(60);
    tokio::time::timeout(patience, taken).await.unwrap();
}

#[tokio::test]
async fn a_process_that_is_killed_with_the_lock_leaves_it_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let limiter = locked_limiter(&path).await;
    for _ in 0..5 {
        let mut charger = endless(&path);
        until_charged(&limiter).await;
        charger.child.kill().unwrap();
        charger.child.wait().unwrap();
        until_free(&path.with_file_name("limits.db-lock")).await;
        until_charged(&limiter).await;
    }
}

#[cfg(unix)]
fn signal(charger: &Charger, signal: &str) {
    let id = charger.child.id().to_string();
    let sent = Command::new("kill").args([signal, &id]).status().unwrap();
    assert!(sent.success());
}

/// It stands still at a moment that is chance, most often with the lock, and sometimes with SQLite's as well.
#[cfg(unix)]
#[tokio::test]
async fn a_process_that_stands_still_with_the_lock_holds_up_nobody_for_longer_than_the_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let limiter = locked_limiter(&path).await;
    let charger = endless(&path);
    for _ in 0..10 {
        signal(&charger, "-STOP");
        for _ in 0..3 {
            match limiter.check(&alice()).await {
                Ok(decision) => assert!(decision.is_allowed()),
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
        // An operator can look, when what was charged is done with.
        while limiter.peek(&alice()).await.is_err() {}
        signal(&charger, "-CONT");
        until_charged(&limiter).await;
    }
}
