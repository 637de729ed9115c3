//! How a store is, told without asking it.

use std::time::Duration;

use sqlx::{Connection, Executor, SqliteConnection};
use tollgate::{Key, Limiter, MemoryStore, Policy, SqliteStore, StoreError};

use crate::support::clock;

#[tokio::test]
async fn a_store_that_fails_tells_for_how_long_and_why_until_it_answers_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let store = store.deadline(Duration::from_mins(1));
    let limiter = Limiter::new(Policy::sliding(9, 60).name("p")).store(&store);
    let key = Key::new("user", 1);
    assert!(limiter.check(&key).await.unwrap().is_allowed());
    let health = store.health();
    assert!(health.is_answering() && health.failing_for().is_none() && health.cause().is_none());

    let url = format!("sqlite://{}", path.display());
    let mut other = SqliteConnection::connect(&url).await.unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    for _ in 0..4 {
        assert!(limiter.check(&key).await.unwrap().is_degraded());
    }
    let health = store.health();
    assert!(!health.is_answering() && !health.is_closed());
    assert!(health.failing_for().is_some() && health.is_breaker_open());
    assert!(matches!(
        health.cause(),
        Some(StoreError::Database {
            is_transient: true,
            ..
        })
    ));
    assert_eq!((health.unanswered(), health.decided_without()), (4, 4));

    other.execute("ROLLBACK").await.unwrap();
    while limiter.check(&key).await.unwrap().is_degraded() {
        tokio::task::yield_now().await;
    }
    let health = store.health();
    assert!(health.is_answering() && !health.is_breaker_open());
    assert_eq!((health.unanswered(), health.decided_without()), (0, 0));
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let store = SqliteStore::in_memory();
    assert!(store.health().is_answering());
    store.close().await.unwrap();
    let health = store.health();
    assert!(health.is_closed() && !health.is_answering());
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_has_a_size_as_soon_as_it_is_open_and_memory_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("limits.db"))
        .await
        .unwrap();
    let health = store.health();
    assert!(
        health.file_bytes().is_some_and(|bytes| bytes > 0),
        "{health:?}"
    );
    assert!(health.wal_bytes().is_some());
    let memory = SqliteStore::in_memory();
    let limiter = Limiter::new(Policy::fixed(9, 60)).store(&memory);
    assert!(
        limiter
            .check(&Key::new("user", 1))
            .await
            .unwrap()
            .is_allowed()
    );
    assert_eq!(
        (memory.health().file_bytes(), memory.health().wal_bytes()),
        (None, None)
    );
}

#[tokio::test]
async fn a_store_in_memory_that_is_full_fails_until_it_has_room() {
    let clock = clock();
    let store = MemoryStore::new().max_keys(1).clock(&clock);
    let limiter = Limiter::new(Policy::fixed(1, 60).name("p")).store(&store);
    for _ in 0..2 {
        let _ = limiter.check(&Key::new("user", 1)).await.unwrap();
    }
    let full = limiter.check(&Key::new("user", 2)).await;
    assert!(matches!(full, Err(StoreError::Full)));
    let health = store.health();
    assert!(matches!(health.cause(), Some(StoreError::Full)));
    assert_eq!(health.name(), "memory");
}
