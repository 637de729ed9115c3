//! What is SQLite's own: files, locks, full disks, and the rows themselves.

mod calls;
mod cap;
mod checkpoints;
mod events;
mod giving_back;
mod leases;
mod leases_of_several;
mod many_keys;
mod opening;
mod outages;
mod pool;
mod process_lock;
mod two_ways;
mod wal;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{Connection, Executor, Row, SqliteConnection};
use tempfile::TempDir;

use super::give_back::PAGE;
use super::tables::schema;
use super::*;
use crate::limit::{Key, Policy, Timestamp};
use crate::store::engine::{Backend, Batch};
use crate::store::merge::Merged;
use crate::store::suite::{Subject, charge_of};
use crate::store::{Charge, GiveBack, Outcome, Reset};

const NOW: i64 = 3_567_225_600_000;

/// A machine that is busy with other tests must not make a charge late.
const PATIENCE: Duration = Duration::from_secs(60);

/// A clock that stands still at an instant.
fn clock_at(millis: i64) -> ManualClock {
    ManualClock::new(Timestamp::from_unix_millis(millis))
}

/// A store whose clock stands still, so that no window ends meanwhile.
async fn open(path: impl AsRef<Path>) -> SqliteStore {
    let store = SqliteStore::open(path).await.unwrap();
    store.deadline(PATIENCE).clock(&clock_at(NOW))
}

mod in_memory {
    use super::*;

    crate::__store_suite!(Subject::new(async |clock| (
        SqliteStore::in_memory().clock(&clock).deadline(PATIENCE),
        ()
    )));
}

mod in_a_file {
    use super::*;

    crate::__store_suite!(Subject::new(async |clock| {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("limits.db"));
        let store = store.await.unwrap().deadline(PATIENCE);
        (store.clock(&clock), folder)
    }));
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    (folder, path)
}

async fn other_connection(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(path);
    SqliteConnection::connect_with(&options).await.unwrap()
}

async fn rows(path: &Path, query: &'static str) -> Vec<SqliteRow> {
    let mut connection = other_connection(path).await;
    let rows = sqlx::query(query).fetch_all(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    rows
}

fn charge(key: impl std::fmt::Display, limit: u32) -> Charge {
    charge_under(&Policy::fixed(limit, 60).name("p"), key)
}

fn charge_under(policy: &Policy, key: impl std::fmt::Display) -> Charge {
    charge_of(&[(policy, &Key::new("user", key.to_string()))], 1)
}

async fn used(store: &SqliteStore, key: &str) -> u64 {
    let outcome = store.engine.peek(charge(key, 1)).await.unwrap();
    let policy = Policy::fixed(1, 60);
    outcome.found.first().state.used(&policy, outcome.at)
}

fn backend(path: &Path) -> Sqlite {
    Sqlite {
        database: Database::new(Location::from_path(path).unwrap()),
        room: None,
        retention: Arc::default(),
    }
}

/// Charges at `NOW`.
async fn charge_now(
    backend: &mut Sqlite,
    charges: &[Charge],
) -> Result<Vec<Result<Outcome, StoreError>>, StoreError> {
    charge_by(backend, charges, &Clock::Manual(clock_at(NOW))).await
}

async fn charge_by(
    backend: &mut Sqlite,
    charges: &[Charge],
    clock: &Clock,
) -> Result<Vec<Result<Outcome, StoreError>>, StoreError> {
    let batch = Batch {
        charges,
        ahead: &[],
    };
    Ok(backend.charge(batch, clock).await?.answers)
}

/// Sweeps all pages, and says how many rows went.
async fn sweep_all(backend: &mut Sqlite, millis: i64) -> u64 {
    let (mut count, mut after) = (0, None);
    loop {
        let page = backend
            .sweep(Timestamp::from_unix_millis(millis), after, 1_000)
            .await
            .unwrap();
        count += page.count;
        after = page.next;
        if after.is_none() {
            return count;
        }
    }
}

#[tokio::test]
async fn what_waits_is_written_when_the_store_is_closed_though_it_is_still_held() {
    let (_folder, path) = folder();
    let store = open(&path).await;
    let held = store.clone();
    let replies: Vec<_> = (0..500)
        .map(|_| store.engine.charge(&charge("a", 1_000)))
        .collect();
    store.close().await.unwrap();
    for reply in replies {
        assert!(reply.await.unwrap().is_admitted());
    }
    let rows = rows(&path, "SELECT sum(used) FROM rate_limit_windows").await;
    assert_eq!(rows[0].get::<i64, _>(0), 500);
    let late = held.engine.charge(&charge("a", 1_000)).await;
    assert!(matches!(late, Err(StoreError::Closed)), "{late:?}");
    held.close().await.unwrap();
}

#[tokio::test]
async fn two_policies_on_one_file_do_not_touch_each_other() {
    let (_folder, path) = folder();
    let store = open(&path).await;
    let of = |name: &str, seconds| charge_under(&Policy::fixed(2, seconds).name(name), "a");
    for _ in 0..3 {
        store.engine.charge(&of("minute", 60)).await.unwrap();
        store.engine.charge(&of("hour", 3_600)).await.unwrap();
    }
    let mut backend = backend(&path);
    assert_eq!(sweep_all(&mut backend, NOW + 600_000).await, 1);
    let left = rows(&path, "SELECT policy, used, denied FROM rate_limit_windows").await;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].get::<String, _>(0), "hour;fixed;3600s");
    assert_eq!((left[0].get::<i64, _>(1), left[0].get::<i64, _>(2)), (2, 1));
}

#[tokio::test]
async fn a_full_disk_is_an_error_and_never_allowed() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    backend.open().await.unwrap();
    let pages = sqlx::query("PRAGMA max_page_count = 40");
    backend.database.fetch_all(pages).await.unwrap();
    let (mut admitted, mut failed) = (0, 0);
    for batch in 0..40 {
        let charges: Vec<_> = (0..100).map(|n| charge(batch * 100 + n, 1)).collect();
        match charge_now(&mut backend, &charges).await {
            Ok(answers) => {
                admitted += answers
                    .iter()
                    .filter(|answer| answer.as_ref().unwrap().is_admitted())
                    .count();
            }
            Err(error) => {
                failed += 1;
                assert!(error.is_transient(), "{error:?}");
            }
        }
    }
    assert!(
        admitted > 0 && failed > 0,
        "{admitted} admitted, {failed} batches failed"
    );
    let stored = rows(
        &path,
        "SELECT coalesce(sum(used), 0) FROM rate_limit_windows",
    )
    .await;
    assert_eq!(
        usize::try_from(stored[0].get::<i64, _>(0)).unwrap(),
        admitted
    );
    let pages = sqlx::query("PRAGMA max_page_count = 1000000");
    backend.database.fetch_all(pages).await.unwrap();
    assert!(
        charge_now(&mut backend, &[charge("later", 1)])
            .await
            .is_ok(),
        "it goes on when there is room"
    );
}

#[tokio::test]
async fn a_transaction_that_a_panic_left_open_is_ended_by_the_next_call() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    backend.open().await.unwrap();
    backend
        .database
        .fetch_all(sqlx::query("BEGIN IMMEDIATE"))
        .await
        .unwrap();
    backend.database.mark_unsound();
    charge_now(&mut backend, &[charge("a", 1)]).await.unwrap();
    let mut other = other_connection(&path).await;
    other.execute("BEGIN IMMEDIATE; COMMIT").await.unwrap();
}

#[tokio::test]
async fn a_lock_held_elsewhere_is_an_error_in_time_and_passes() {
    let (_folder, path) = folder();
    let store = open(&path).await;
    let mut other = other_connection(&path).await;
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let error = store.engine.charge(&charge("a", 1)).await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    let looked = store.engine.peek(charge("a", 1)).await;
    assert!(
        looked.is_ok(),
        "readers do not wait for a writer: {looked:?}"
    );
    other.execute("ROLLBACK").await.unwrap();
    assert!(
        store
            .engine
            .charge(&charge("a", 1))
            .await
            .unwrap()
            .is_admitted()
    );
}

/// The store's own sweep, on the system's clock: the rows are of 1970.
#[tokio::test]
async fn a_hundred_thousand_expired_rows_go_without_traffic() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    for batch in 0..20 {
        let charges: Vec<_> = (0..5_000).map(|n| charge(batch * 5_000 + n, 1)).collect();
        let clock = Clock::Manual(clock_at(0));
        charge_by(&mut backend, &charges, &clock).await.unwrap();
    }
    backend.close().await.unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    let gone = async {
        let mut counts = Vec::new();
        while counts.last() != Some(&0) {
            counts.push(
                rows(&path, "SELECT count(*) FROM rate_limit_windows").await[0].get::<i64, _>(0),
            );
        }
        counts
    };
    let counts = tokio::time::timeout(PATIENCE, gone).await.unwrap();
    let largest_step = counts
        .windows(2)
        .map(|pair| pair[0] - pair[1])
        .max()
        .unwrap_or(0);
    assert!(
        counts.len() > 2 && largest_step < 100_000,
        "in one step: {counts:?}"
    );
    drop(store);
}

#[tokio::test]
async fn a_charge_that_is_late_meets_the_row_of_its_window() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    let short = Policy::try_fixed(1, Duration::from_millis(1)).unwrap();
    let short = [charge_under(&short, "a")];
    charge_now(&mut backend, &short).await.unwrap();
    assert_eq!(sweep_all(&mut backend, NOW + 9_999).await, 0);
    let late = charge_now(&mut backend, &short).await.unwrap();
    assert!(!late[0].as_ref().unwrap().is_admitted());
    assert_eq!(sweep_all(&mut backend, NOW + 10_001).await, 1);
}

/// A gap in the numbers counts as a parameter, and what comes after it is bound to nothing, in silence.
#[test]
fn the_parameters_of_every_statement_are_numbered_without_gaps() {
    let statements = upsert::statements()
        .into_iter()
        .chain(give_back::statements())
        .chain(ledger::statements())
        .chain(tables::statements())
        .chain(room::statements())
        .chain(schema::STATEMENTS);
    for statement in statements {
        assert!(!statement.contains('?'), "{statement}");
        let numbers = statement.split('$').skip(1).filter_map(|rest| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<usize>().ok()
        });
        let numbers: std::collections::BTreeSet<_> = numbers.collect();
        let expected: std::collections::BTreeSet<_> = (1..=numbers.len()).collect();
        assert_eq!(numbers, expected, "{statement}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_writers_and_an_open_reader_lock_nobody_out() {
    let (_folder, path) = folder();
    let stores = [open(&path).await, open(&path).await];
    let mut reader = other_connection(&path).await;
    reader
        .execute("BEGIN; SELECT count(*) FROM rate_limit_windows")
        .await
        .unwrap();
    let tasks: Vec<_> = (0..64)
        .map(|n| {
            let store = stores[n % 2].clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    store.engine.charge(&charge(n % 8, u32::MAX)).await?;
                    store.engine.peek(charge(n % 8, u32::MAX)).await?;
                }
                Ok::<_, StoreError>(())
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    reader.execute("COMMIT").await.unwrap();
    // What it has not spent goes back.
    stores[1].close().await.unwrap();
    let mut total = 0;
    for n in 0..8 {
        total += used(&stores[0], &n.to_string()).await;
    }
    assert_eq!(total, 64 * 20);
}
