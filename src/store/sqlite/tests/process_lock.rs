//! The lock of the operating system that processes take around each write.

use std::fs::File;
use std::sync::atomic::Ordering;

use super::*;

fn locked_backend(path: &Path) -> Sqlite {
    let backend = backend(path);
    backend
        .database
        .process_lock()
        .store(true, Ordering::Relaxed);
    backend
}

/// The lock's file, opened once more, as another process does.
fn lock_file(folder: &TempDir) -> File {
    let path = folder.path().join("limits.db-lock");
    File::options().write(true).open(path).unwrap()
}

async fn begin(backend: &mut Sqlite) {
    let begin = sqlx::query("BEGIN IMMEDIATE");
    backend.database.begin(begin).await.unwrap();
}

#[tokio::test]
async fn the_lock_is_held_for_a_transaction_and_no_longer() {
    let (folder, path) = folder();
    let mut backend = locked_backend(&path);
    charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
    let other = lock_file(&folder);
    other.try_lock().unwrap();
    other.unlock().unwrap();
    begin(&mut backend).await;
    assert!(other.try_lock().is_err());
    backend.database.end(sqlx::query("COMMIT")).await.unwrap();
    other.try_lock().unwrap();
    other.unlock().unwrap();
    begin(&mut backend).await;
    backend.database.roll_back().await;
    other.try_lock().unwrap();
    other.unlock().unwrap();
    begin(&mut backend).await;
    // As after a panic between two calls.
    backend.database.mark_unsound();
    backend.maintain().await.unwrap();
    other.try_lock().unwrap();
}

#[tokio::test]
async fn looks_do_not_take_the_lock() {
    let (folder, path) = folder();
    let mut backend = locked_backend(&path);
    charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
    let other = lock_file(&folder);
    other.lock().unwrap();
    let clock = Clock::Manual(clock_at(NOW));
    backend.peek(&[charge("a", 9)], &clock).await.unwrap();
    assert!(!backend.database.has_passed_by());
    charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
    assert!(backend.database.has_passed_by());
}

#[tokio::test]
async fn the_file_is_made_for_its_owner_alone_when_it_is_wanted_and_stays() {
    let (folder, path) = folder();
    let place = folder.path().join("limits.db-lock");
    let mut backend = backend(&path);
    charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
    assert!(!place.exists());
    backend.close().await.unwrap();
    let store = open(&path).await.process_lock(true);
    store.engine.charge(&charge("a", 9)).await.unwrap();
    store.close().await.unwrap();
    let mode = std::fs::metadata(&place).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn the_file_is_for_those_who_may_use_the_database() {
    let (folder, path) = folder();
    open(&path).await.close().await.unwrap();
    for mode in [0o660, 0o640] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, mode.clone()).unwrap();
        let mut backend = locked_backend(&path);
        charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
        let place = folder.path().join("limits.db-lock");
        let permissions = std::fs::metadata(&place).unwrap().permissions();
        assert_eq!(permissions.mode() & 0o777, mode.mode());
        std::fs::remove_file(place).unwrap();
    }
}

#[tokio::test]
async fn a_database_in_place_of_one_that_was_moved_has_its_own_lock() {
    let (folder, path) = folder();
    let mut backend = locked_backend(&path);
    charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
    let moved = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let from = entry.unwrap().path();
        std::fs::rename(&from, moved.path().join(from.file_name().unwrap())).unwrap();
    }
    backend.database.watch.rest();
    charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
    assert!(backend.take_lost());
    begin(&mut backend).await;
    assert!(lock_file(&folder).try_lock().is_err());
    lock_file(&moved).try_lock().unwrap();
    backend.database.roll_back().await;
}

/// A process that stands still with the lock is waited for once.
#[tokio::test]
async fn a_lock_that_is_not_released_is_passed_by_until_it_is() {
    let (folder, path) = folder();
    let mut backend = locked_backend(&path);
    charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
    let other = lock_file(&folder);
    other.lock().unwrap();
    for _ in 0..5 {
        let answers = charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
        assert!(answers[0].as_ref().unwrap().is_admitted());
        assert!(backend.database.has_passed_by());
    }
    other.unlock().unwrap();
    // A thread still waits for it, gets it, and lets it go.
    while backend.database.has_passed_by() {
        tokio::task::yield_now().await;
    }
    begin(&mut backend).await;
    assert!(other.try_lock().is_err());
    backend.database.roll_back().await;
    other.try_lock().unwrap();
}

/// As one that was stopped in the midst of a write holds both.
#[tokio::test]
async fn a_holder_of_both_locks_is_an_error_in_time_and_passes() {
    let (folder, path) = folder();
    let store = open(&path).await.process_lock(true);
    store.engine.charge(&charge("a", 9)).await.unwrap();
    let lock = lock_file(&folder);
    lock.lock().unwrap();
    let mut other = other_connection(&path).await;
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    for _ in 0..2 {
        let error = store.engine.charge(&charge("a", 9)).await.unwrap_err();
        assert!(error.is_transient(), "{error:?}");
    }
    let looked = store.engine.peek(charge("a", 9)).await;
    assert!(looked.is_ok(), "an operator can look: {looked:?}");
    other.execute("ROLLBACK").await.unwrap();
    lock.unlock().unwrap();
    while store.engine.charge(&charge("a", 9)).await.is_err() {}
}

#[tokio::test]
async fn a_lock_file_that_can_not_be_made_holds_up_nobody() {
    let (folder, path) = folder();
    std::fs::create_dir(folder.path().join("limits.db-lock")).unwrap();
    let mut backend = locked_backend(&path);
    for _ in 0..3 {
        charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
    }
}

#[tokio::test]
async fn a_database_in_memory_has_no_lock() {
    let store = SqliteStore::in_memory().deadline(PATIENCE);
    let store = store.process_lock(true).clock(&clock_at(NOW));
    store.engine.charge(&charge("a", 9)).await.unwrap();
}

/// Two stores that write at once, one of them with the lock.
#[tokio::test(flavor = "multi_thread")]
async fn stores_with_the_lock_and_without_share_a_limit_exactly() {
    let (_folder, path) = folder();
    let mut stores = Vec::new();
    for is_on in [true, false, true] {
        stores.push(open(&path).await.process_lock(is_on));
    }
    let policy = Policy::sliding(100, 60).name("exact");
    let tasks: Vec<_> = (0..48)
        .map(|task| {
            let (store, policy) = (stores[task % 3].clone(), policy.clone());
            tokio::spawn(async move {
                let mut admitted = 0;
                for _ in 0..5 {
                    let charge = charge_under(&policy, "a");
                    let outcome = loop {
                        match store.engine.charge(&charge).await {
                            Ok(outcome) => break outcome,
                            Err(error) => assert!(error.is_transient(), "{error:?}"),
                        }
                    };
                    admitted += u32::from(outcome.is_admitted());
                }
                admitted
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    assert_eq!(admitted, 100);
}
