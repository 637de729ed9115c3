//! Files that are deleted, replaced and locked, folders that are gone, disks that are full.

use super::*;
use crate::limit::algorithm::Taken;
use crate::store::Reply;

/// A backend whose next call comes after a rest.
async fn used_after_rest(backend: &mut Sqlite, key: &str) -> u64 {
    backend.database.watch.rest();
    used_by(backend, key).await
}

async fn used_by(backend: &mut Sqlite, key: &str) -> u64 {
    let clock = Clock::Manual(clock_at(NOW));
    let looked = backend.peek(&[charge(key, 9)], &clock).await.unwrap();
    looked[0]
        .found
        .first()
        .state
        .used(&Policy::fixed(9, 60), clock.now())
}

async fn charge_times(backend: &mut Sqlite, key: &str, times: usize) {
    for _ in 0..times {
        let answers = charge_now(backend, &[charge(key, 9)]).await.unwrap();
        assert!(answers[0].as_ref().unwrap().is_admitted());
    }
}

async fn assert_is_sound(path: &Path) {
    let check = rows(path, "PRAGMA integrity_check").await;
    assert_eq!(check[0].get::<String, _>(0), "ok");
}

/// Two backends on one file, which has a count that is in the WAL alone.
async fn two_on(path: &Path) -> [Sqlite; 2] {
    let mut both = [backend(path), backend(path)];
    charge_times(&mut both[0], "a", 3).await;
    assert_eq!(used_by(&mut both[1], "a").await, 3);
    both
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut beside = path.to_owned().into_os_string();
    beside.push(suffix);
    beside.into()
}

#[tokio::test]
async fn a_deleted_file_is_made_anew_for_its_owner_alone() {
    let (folder, path) = folder();
    let mut backend = backend(&path);
    charge_times(&mut backend, "a", 3).await;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert_eq!(used_after_rest(&mut backend, "a").await, 0);
    assert!(backend.take_lost() && !backend.take_lost());
    charge_times(&mut backend, "a", 2).await;
    let stored = rows(&path, "SELECT used FROM rate_limit_windows").await;
    assert_eq!(stored[0].get::<i64, _>(0), 2);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_file_in_its_place_is_never_taken_for_a_lost_one() {
    let (_folder, path) = folder();
    let [mut one, other] = two_on(&path).await;
    drop(other);
    for _ in 0..20 {
        charge_times(&mut one, "b", 1).await;
        one.database.mark_unsound();
        one.database.watch.rest();
        one.maintain().await.unwrap();
        let mut third = backend(&path);
        assert_eq!(used_by(&mut third, "a").await, 3);
        third.close().await.unwrap();
        assert!(!one.take_lost());
        if used_by(&mut one, "b").await == 9 {
            break;
        }
    }
    assert_eq!(used_by(&mut one, "a").await, 3);
}

/// The WAL and its index stay behind: a new database must not be mixed up with them, and who has not noticed yet must not write
/// into the new one.
#[tokio::test]
async fn two_that_lose_their_file_one_after_the_other_agree_again() {
    let (_folder, path) = folder();
    let [mut one, mut other] = two_on(&path).await;
    std::fs::remove_file(&path).unwrap();
    assert_eq!(used_after_rest(&mut one, "a").await, 0);
    charge_times(&mut one, "a", 2).await;
    charge_times(&mut other, "a", 4).await;
    charge_times(&mut one, "a", 1).await;
    assert_eq!(
        used_after_rest(&mut other, "a").await,
        3,
        "what is in the new file"
    );
    charge_times(&mut other, "a", 1).await;
    assert_eq!(used_by(&mut one, "a").await, 4);
    assert_is_sound(&path).await;
}

#[tokio::test]
async fn two_whose_file_is_replaced_go_on_with_what_was_put_in_its_place() {
    let (folder, path) = folder();
    let [mut one, mut other] = two_on(&path).await;
    let backup = folder.path().join("backup.db");
    let mut third = backend(&backup);
    charge_times(&mut third, "a", 5).await;
    charge_times(&mut third, "b", 1).await;
    third.close().await.unwrap();
    std::fs::rename(&backup, &path).unwrap();
    assert_eq!(used_after_rest(&mut one, "a").await, 5);
    charge_times(&mut other, "a", 1).await;
    charge_times(&mut one, "a", 1).await;
    assert_eq!(used_after_rest(&mut other, "a").await, 6);
    assert_eq!(used_by(&mut other, "b").await, 1);
    charge_times(&mut other, "a", 1).await;
    assert_eq!(used_by(&mut one, "a").await, 7);
    assert_is_sound(&path).await;
}

#[tokio::test]
async fn a_deleted_wal_is_noticed_too() {
    let (_folder, path) = folder();
    let [mut one, mut other] = two_on(&path).await;
    std::fs::remove_file(beside(&path, "-wal")).unwrap();
    for backend in [&mut one, &mut other] {
        backend.database.watch.rest();
        backend.maintain().await.unwrap();
        assert!(backend.take_lost());
    }
    charge_times(&mut one, "b", 2).await;
    assert_eq!(used_by(&mut other, "b").await, 2);
    assert_is_sound(&path).await;
}

#[tokio::test]
async fn what_was_left_beside_a_file_that_is_gone_is_not_mixed_into_a_new_one() {
    let (folder, path) = folder();
    let mut first = backend(&path);
    charge_times(&mut first, "a", 3).await;
    let kept = ["-wal", "-shm"].map(|suffix| {
        let copy = folder.path().join(suffix);
        std::fs::copy(beside(&path, suffix), &copy).unwrap();
        (copy, beside(&path, suffix))
    });
    first.close().await.unwrap();
    std::fs::remove_file(&path).unwrap();
    for (copy, place) in kept {
        std::fs::rename(copy, place).unwrap();
    }
    let mut second = backend(&path);
    assert_eq!(used_by(&mut second, "a").await, 0);
    charge_times(&mut second, "a", 1).await;
    assert_is_sound(&path).await;
}

#[tokio::test]
async fn a_folder_that_is_gone_is_an_error_that_names_no_folder_until_it_is_back() {
    let (folder, _) = folder();
    let inner = folder.path().join("secret-place");
    std::fs::create_dir(&inner).unwrap();
    let mut backend = backend(&inner.join("limits.db"));
    charge_times(&mut backend, "a", 3).await;
    std::fs::remove_dir_all(&inner).unwrap();
    backend.database.watch.rest();
    for _ in 0..3 {
        let error = charge_now(&mut backend, &[charge("a", 9)])
            .await
            .unwrap_err();
        let text = format!("{error:?}");
        assert!(
            text.contains("the folder of limits.db does not exist"),
            "{text}"
        );
        assert!(!text.contains("secret-place"), "{text}");
    }
    assert!(backend.take_lost());
    std::fs::create_dir(&inner).unwrap();
    charge_times(&mut backend, "a", 1).await;
    assert_eq!(used_by(&mut backend, "a").await, 1);
    assert!(!backend.take_lost(), "it was told before");
}

#[tokio::test]
async fn units_of_a_lost_file_are_not_given_back_to_the_new_one() {
    let (_folder, path) = folder();
    let [mut one, mut other] = two_on(&path).await;
    std::fs::remove_file(&path).unwrap();
    assert_eq!(used_after_rest(&mut other, "a").await, 0);
    charge_times(&mut other, "a", 2).await;
    let part = charge("a", 9).parts.first().clone();
    let window_start = part.span(Timestamp::from_unix_millis(NOW)).start;
    let back = GiveBack {
        part,
        units: 2,
        taken_at: Timestamp::from_unix_millis(NOW),
        from: Taken::Window {
            start: window_start,
            epoch: 0,
        },
    };
    one.database.watch.rest();
    one.give_back(&[back], &Clock::Manual(clock_at(NOW)))
        .await
        .unwrap();
    assert_eq!(used_by(&mut other, "a").await, 2);
}

/// Asks until it is so: the store looks at its file once a second.
async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

#[tokio::test]
async fn leases_end_with_the_file_that_they_were_taken_from() {
    let (_folder, path) = folder();
    let store = open(&path).await;
    let charge = charge("a", 10_000);
    for _ in 0..500 {
        store.engine.charge(&charge).await.unwrap();
    }
    std::fs::remove_file(&path).unwrap();
    until(async || {
        store.engine.sweep().await.unwrap();
        path.exists()
    })
    .await;
    // It was told of the loss between the two.
    store.engine.sweep().await.unwrap();
    let reply = store.engine.charge(&charge);
    assert!(matches!(reply, Reply::Later(_)), "{reply:?}");
    let outcome = reply.await.unwrap();
    let used = outcome
        .found
        .first()
        .state
        .used(&Policy::fixed(9, 60), outcome.at);
    assert_eq!(used, 1);
}

#[tokio::test]
async fn a_full_disk_is_decided_in_memory_until_there_is_room() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    backend.open().await.unwrap();
    let pages = sqlx::query("PRAGMA max_page_count = 40");
    backend.database.fetch_all(pages).await.unwrap();
    let engine = Engine::new("limits.db".to_owned(), backend, Clock::System);
    engine.set_clock(Clock::Manual(clock_at(NOW)));
    engine.set_deadline(PATIENCE);
    let mut key = 0;
    let error = loop {
        key += 1;
        if let Err(error) = engine.charge(&charge(key, 1)).await {
            break error;
        }
    };
    assert!(error.is_transient(), "{error:?}");
    for is_admitted in [true, false] {
        let outcome = engine.local().charge(&charge(key, 1)).unwrap();
        assert_eq!(outcome.is_admitted(), is_admitted);
    }
    let mut other = other_connection(&path).await;
    other
        .execute("DELETE FROM rate_limit_windows")
        .await
        .unwrap();
    until(async || engine.charge(&charge("later", 1)).await.is_ok()).await;
}

#[tokio::test]
async fn a_lock_that_lasts_is_not_waited_for_again_and_again() {
    let (_folder, path) = folder();
    let store = open(&path).await;
    let leased = charge("leased", 10_000);
    for _ in 0..500 {
        store.engine.charge(&leased).await.unwrap();
    }
    // What was asked for ahead has come by then.
    store.engine.sweep().await.unwrap();
    let mut other = other_connection(&path).await;
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    until(async || {
        let answer = store.engine.charge(&charge("a", 9)).await;
        matches!(answer, Err(StoreError::BreakerOpen))
    })
    .await;
    let reply = store.engine.charge(&leased);
    assert!(
        matches!(reply, Reply::Spent(_)),
        "a lease is exact: {reply:?}"
    );
    let looked = store.engine.peek(charge("a", 9)).await;
    assert!(looked.is_ok(), "an operator can look: {looked:?}");
    other.execute("ROLLBACK").await.unwrap();
    until(async || store.engine.charge(&charge("a", 9)).await.is_ok()).await;
}

#[tokio::test]
async fn a_file_system_that_hangs_holds_up_no_deadline() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    charge_times(&mut backend, "a", 1).await;
    let (end, hangs_until) = std::sync::mpsc::channel();
    backend.database.watch.hang_until(hangs_until);
    let engine = Engine::new("limits.db".to_owned(), backend, Clock::System);
    engine.set_clock(Clock::Manual(clock_at(NOW)));
    engine.set_deadline(Duration::from_millis(20));
    for _ in 0..3 {
        let answer = engine.charge(&charge("a", 9)).await;
        assert!(
            matches!(answer, Err(StoreError::DeadlineExceeded)),
            "{answer:?}"
        );
    }
    let answer = engine.charge(&charge("a", 9)).await;
    assert!(matches!(answer, Err(StoreError::BreakerOpen)), "{answer:?}");
    drop(end);
    engine.set_deadline(PATIENCE);
    until(async || engine.charge(&charge("a", 9)).await.is_ok()).await;
}
