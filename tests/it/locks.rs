//! A database file that somebody else holds locked.

use sqlx::{Connection, Executor, SqliteConnection};
use tempfile::TempDir;
use tollgate::{FailureMode, SqliteStore};
use tower::Layer;

use crate::support::{from, hello, login, send};

/// A store on a file, and another connection that holds the file's write lock.
async fn locked() -> (TempDir, SqliteStore, SqliteConnection) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret-place.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let url = format!("sqlite://{}", path.display());
    let mut other = SqliteConnection::connect(&url).await.unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    (folder, store, other)
}

#[tokio::test]
async fn a_locked_file_is_a_503_that_says_nothing_of_it_until_it_is_free() {
    let (_folder, store, mut other) = locked().await;
    let limit = login(9, 60, &store).on_store_failure(FailureMode::Closed);
    let service = limit.layer(hello());
    let refused = send(&service, from("alice")).await;
    assert_eq!(refused.status, 503);
    let all = format!("{:?} {}", refused.headers, refused.text()).to_lowercase();
    for secret in ["lock", "database", "sql", "secret-place", "alice"] {
        assert!(!all.contains(secret), "{secret} in {all}");
    }
    other.execute("ROLLBACK").await.unwrap();
    assert_eq!(send(&service, from("alice")).await.status, 200);
}

#[tokio::test]
async fn an_open_limit_lets_pass_while_the_file_is_locked() {
    let (_folder, store, _other) = locked().await;
    let limit = login(1, 60, &store).on_store_failure(FailureMode::Open);
    let service = limit.layer(hello());
    for _ in 0..2 {
        let passed = send(&service, from("alice")).await;
        assert_eq!(passed.status, 200);
        assert!(!passed.headers.contains_key("ratelimit"));
    }
}

/// The other process holds the lock for longer than a charge may wait, with many waiting.
#[tokio::test]
async fn nobody_hears_of_the_lock_when_many_wait_for_it() {
    let (_folder, store, mut other) = locked().await;
    let limit = login(1_000, 60, &store).on_store_failure(FailureMode::Closed);
    let service = limit.layer(hello());
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move { send(&service, from("alice")).await })
        })
        .collect();
    for task in tasks {
        let answer = task.await.unwrap();
        assert_eq!(answer.status, 503);
        assert!(!answer.text().contains("lock"), "{}", answer.text());
    }
    other.execute("ROLLBACK").await.unwrap();
    // On a busy machine so many batches may have failed that the store is not asked for a moment.
    while send(&service, from("alice")).await.status != 200 {}
}
