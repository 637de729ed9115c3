//! How long the WAL gets.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Reads in transactions that follow each other without a gap, until it is told to stop.
fn read_all_the_time(path: &Path, is_over: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let (path, is_over) = (path.to_owned(), Arc::clone(is_over));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut reader = other_connection(&path).await;
            let read = "SELECT sum(used) FROM rate_limit_windows";
            while !is_over.load(Ordering::Relaxed) {
                reader.execute("BEGIN").await.unwrap();
                for _ in 0..8 {
                    reader.execute(read).await.unwrap();
                }
                reader.execute("COMMIT").await.unwrap();
            }
        });
    })
}

pub(super) async fn largest_wal(folder: &Path, backend: &mut Sqlite, commits: u32) -> u64 {
    let mut largest = 0;
    for commit in 0..commits {
        let charges: Vec<_> = (0..5)
            .map(|n| charge((commit * 7 + n * 1_013) % 5_000, u32::MAX))
            .collect();
        charge_now(backend, &charges).await.unwrap();
        backend.maintain().await.unwrap();
        if commit % 100 == 0 {
            let wal = std::fs::metadata(folder.join("limits.db-wal")).unwrap();
            largest = largest.max(wal.len());
        }
    }
    largest
}

#[tokio::test]
async fn the_wal_stays_small_under_load_with_readers() {
    let (folder, path) = folder();
    let mut backend = backend(&path);
    backend.open().await.unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let readers = [(); 2].map(|()| read_all_the_time(&path, &is_over));
    let largest = largest_wal(folder.path(), &mut backend, 20_000).await;
    is_over.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.join().unwrap();
    }
    assert!(largest < 32_000_000, "{largest} bytes");
    let stored = rows(&path, "SELECT sum(used) FROM rate_limit_windows").await;
    assert_eq!(stored[0].get::<i64, _>(0), 100_000);
}

#[tokio::test]
async fn a_file_with_other_pages_has_the_same_bound() {
    let (folder, path) = folder();
    let mut other = SqliteConnection::connect_with(
        &SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(true)
            .page_size(16_384),
    )
    .await
    .unwrap();
    other
        .execute("CREATE TABLE app (id INTEGER)")
        .await
        .unwrap();
    other.close().await.unwrap();
    let mut backend = backend(&path);
    backend.open().await.unwrap();
    let largest = largest_wal(folder.path(), &mut backend, 2_000).await;
    assert!(largest < 16_000_000, "{largest} bytes");
}
