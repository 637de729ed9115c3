//! A second connection moves the WAL into the database, and goes when the writer's does.

use super::wal::largest_wal;
use super::*;

/// Charges until so many checkpoints were made by the second connection: a megabyte at once, before a file that is gone is noticed.
async fn charge_until_made(backend: &mut Sqlite, count: usize) {
    let fill =
        "CREATE TABLE IF NOT EXISTS filler (bytes); INSERT INTO filler VALUES (zeroblob(1200000))";
    let charges = async {
        while backend.database.checkpoints_made() < Some(count) {
            charge_now(backend, &[charge("a", u32::MAX)]).await.unwrap();
            backend.database.execute(sqlx::query(fill)).await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, charges).await.unwrap();
}

fn wal_of(folder: &TempDir) -> PathBuf {
    folder.path().join("limits.db-wal")
}

/// 140 MB go through it.
#[tokio::test]
async fn the_wal_stays_bounded_while_a_second_connection_checkpoints() {
    let (folder, path) = folder();
    let mut backend = backend(&path);
    backend.open().await.unwrap();
    let largest = largest_wal(folder.path(), &mut backend, 20_000).await;
    assert!(largest < 48_000_000, "{largest} bytes");
    assert!(backend.database.checkpoints_made() > Some(0));
}

#[tokio::test]
async fn the_wal_stays_bounded_when_the_second_connection_can_not_be_opened() {
    let (folder, path) = folder();
    let mut backend = backend(&path);
    backend.open().await.unwrap();
    let elsewhere = folder.path().join("missing").join("limits.db");
    let elsewhere = Location::from_path(&elsewhere).unwrap();
    backend.database.break_checkpoints(elsewhere).await;
    let largest = largest_wal(folder.path(), &mut backend, 20_000).await;
    assert!(largest < 16_000_000, "{largest} bytes");
    assert_eq!(backend.database.checkpoints_made(), Some(0));
    backend.close().await.unwrap();
    assert!(!wal_of(&folder).exists());
}

#[tokio::test]
async fn a_closed_database_leaves_no_wal() {
    let (folder, path) = folder();
    let mut backend = backend(&path);
    backend.open().await.unwrap();
    charge_until_made(&mut backend, 1).await;
    assert!(wal_of(&folder).exists());
    backend.close().await.unwrap();
    let left = std::fs::read_dir(folder.path()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["limits.db"]);
}

#[tokio::test]
async fn a_store_that_is_closed_leaves_no_wal_though_it_was_just_written_to() {
    let (folder, path) = folder();
    let store = open(&path).await;
    for key in 0..200 {
        store.engine.charge(&charge(key, 1)).await.unwrap();
    }
    store.close().await.unwrap();
    assert!(!wal_of(&folder).exists());
}

/// The open files of this process that were deleted, in a folder.
#[cfg(target_os = "linux")]
fn deleted_and_open(folder: &TempDir) -> Vec<PathBuf> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let open = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    open.filter(|file| file.starts_with(folder.path()))
        .filter(|file| file.to_string_lossy().ends_with(" (deleted)"))
        .collect()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_second_connection_follows_a_file_that_is_replaced() {
    let (folder, path) = folder();
    let mut backend = backend(&path);
    backend.open().await.unwrap();
    charge_until_made(&mut backend, 2).await;
    let backup = folder.path().join("backup.db");
    let copy = "VACUUM INTO $1";
    let copy = sqlx::query(copy).bind(backup.to_str().unwrap());
    backend.database.read(copy).await.unwrap();
    std::fs::rename(&backup, &path).unwrap();
    assert!(!deleted_and_open(&folder).is_empty());
    backend.database.watch.rest();
    charge_now(&mut backend, &[charge("b", 1)]).await.unwrap();
    assert!(backend.take_lost());
    charge_until_made(&mut backend, 2).await;
    assert_eq!(deleted_and_open(&folder), Vec::<PathBuf>::new());
    let check = rows(&path, "PRAGMA integrity_check").await;
    assert_eq!(check[0].get::<String, _>(0), "ok");
}

/// It opens late, and must not play the WAL that it finds there into another file.
#[tokio::test]
async fn the_second_connection_is_not_opened_on_a_file_that_has_taken_the_place() {
    let (folder, path) = folder();
    let mut backend = backend(&path);
    backend.open().await.unwrap();
    let other = folder.path().join("other.db");
    let mut elsewhere = super::backend(&other);
    charge_now(&mut elsewhere, &[charge("a", 1)]).await.unwrap();
    elsewhere.close().await.unwrap();
    let before = std::fs::read(&other).unwrap();
    std::fs::rename(&other, &path).unwrap();
    charge_until_made(&mut backend, 2).await;
    assert!(std::fs::read(&path).unwrap() == before, "it was written to");
    backend.database.watch.rest();
    charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
    charge_until_made(&mut backend, 1).await;
    let check = rows(&path, "PRAGMA integrity_check").await;
    assert_eq!(check[0].get::<String, _>(0), "ok");
}

#[tokio::test(start_paused = true)]
async fn a_database_that_is_not_written_to_is_not_checkpointed_again() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    backend.open().await.unwrap();
    while backend.database.checkpoints_made() == Some(0) {
        let charges: Vec<_> = (0..500).map(|key| charge(key, 9_000)).collect();
        charge_now(&mut backend, &charges).await.unwrap();
        tokio::time::advance(Duration::from_millis(20)).await;
    }
    for _ in 0..50 {
        tokio::time::advance(Duration::from_secs(60)).await;
        backend
            .database
            .read(sqlx::query("SELECT 1"))
            .await
            .unwrap();
    }
    assert_eq!(backend.database.checkpoints_made(), Some(1));
}

#[tokio::test]
async fn a_database_of_the_application_and_one_in_memory_have_no_second_connection() {
    let (_folder, path) = folder();
    let options = SqliteConnectOptions::new().filename(&path);
    let options = options.create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await.unwrap();
    for location in [Location::from_pool(&pool), Location::Memory] {
        let mut database = Database::new(location);
        database.open_patiently().await.unwrap();
        assert_eq!(database.checkpoints_made(), None);
        database.close().await.unwrap();
    }
    pool.close().await;
}

/// A WAL that begins anew is a wait for the disk in the charge that does it.
#[tokio::test(start_paused = true)]
async fn charges_that_come_now_and_then_do_not_begin_the_wal_anew_each_time() {
    let (folder, path) = folder();
    let mut backend = backend(&path);
    backend.open().await.unwrap();
    for key in 0..20 {
        charge_now(&mut backend, &[charge(key, 9)]).await.unwrap();
        for _ in 0..50 {
            tokio::time::advance(Duration::from_millis(20)).await;
            let read = sqlx::query("SELECT 1");
            backend.database.read(read).await.unwrap();
        }
    }
    // Where the format has the number of checkpoints after which it began anew.
    let wal = std::fs::read(wal_of(&folder)).unwrap();
    let times = u32::from_be_bytes(wal[12..16].try_into().unwrap());
    assert!(times < 5, "{times} times");
    assert_eq!(backend.database.checkpoints_made(), Some(0));
}
