//! The application's own database: what is left alone there, and what is refused.

use std::os::unix::fs::MetadataExt;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use sqlx::SqlitePool;
use sqlx::migrate::Migrator;
use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteJournalMode, SqliteLockingMode, SqlitePoolOptions, SqliteSynchronous,
};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::*;

/// What an application sets that keeps its database in WAL mode.
fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
}

/// The smallest pool there is.
async fn pool_of(options: SqliteConnectOptions) -> SqlitePool {
    let pool = SqlitePoolOptions::new().max_connections(1);
    pool.connect_with(options).await.unwrap()
}

async fn store_of(pool: &SqlitePool) -> SqliteStore {
    let store = SqliteStore::from_pool(pool).await.unwrap();
    store.deadline(PATIENCE).clock(&clock_at(NOW))
}

fn backend_of(pool: &SqlitePool) -> Sqlite {
    Sqlite {
        database: Database::new(Location::from_pool(pool)),
        room: None,
        retention: Arc::default(),
    }
}

async fn number_of(pool: &SqlitePool, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(pool).await.unwrap()
}

mod with_a_pool {
    use super::*;

    crate::__store_suite!(Subject::new(async |clock| {
        let (folder, path) = folder();
        let pool = pool_of(options(&path)).await;
        let store = SqliteStore::from_pool(&pool).await.unwrap();
        (store.clock(&clock).deadline(PATIENCE), (folder, pool))
    }));
}

mod without_wal {
    use super::*;

    crate::__store_suite!(Subject::new(async |clock| {
        let (folder, path) = folder();
        let pool = pool_of(options(&path).journal_mode(SqliteJournalMode::Delete)).await;
        let store = SqliteStore::from_pool(&pool).await.unwrap();
        (store.clock(&clock).deadline(PATIENCE), (folder, pool))
    }));
}

#[tokio::test]
async fn no_place_in_the_pool_is_used() {
    let (_folder, path) = folder();
    let pool = pool_of(options(&path)).await;
    let mut held = pool.acquire().await.unwrap();
    let store = store_of(&pool).await;
    assert!(store.engine.charge(&charge("a", 1)).await.is_ok());
    held.execute("CREATE TABLE notes (id INTEGER)")
        .await
        .unwrap();
}

#[tokio::test]
async fn a_pool_in_memory_is_refused() {
    let named = |url: &str| SqliteConnectOptions::from_str(url).unwrap();
    let cases = [
        SqliteConnectOptions::new(),
        SqliteConnectOptions::new().filename(""),
        SqliteConnectOptions::new().in_memory(true),
        SqliteConnectOptions::new().filename("file:limits?mode=memory&cache=shared"),
        SqliteConnectOptions::new().filename("file:/limits?vfs=memdb"),
        named("sqlite::memory:"),
        named("sqlite://limits.db?mode=memory&cache=shared"),
    ];
    for options in cases {
        let told = format!("{options:?}");
        let pool = SqlitePool::connect_lazy_with(options);
        let error = SqliteStore::from_pool(&pool).await.expect_err(&told);
        assert!(matches!(error, OpenError::PoolInMemory), "{error}: {told}");
    }
}

#[tokio::test]
async fn what_a_pool_cannot_write_is_told_with_its_cure() {
    let (folder, path) = folder();
    let missing = folder.path().join("missing.db");
    pool_of(options(&path)).await.close().await;
    // Where the tables are there already, nothing needs to be written to open it.
    open(&path).await.close().await.unwrap();
    let plain = |path: &Path| SqliteConnectOptions::new().filename(path);
    let cases = [
        (plain(&missing), "database-not-found"),
        (options(&folder.path().join("no/app.db")), "no-folder"),
        (options(folder.path()), "path-is-folder"),
        (plain(&path).read_only(true), "database-not-writable"),
        (
            plain(&path).pragma("query_only", "ON"),
            "database-not-writable",
        ),
        (plain(&path).immutable(true), "database-not-writable"),
    ];
    for (options, name) in cases {
        let pool = SqlitePool::connect_lazy_with(options);
        let error = SqliteStore::from_pool(&pool).await.expect_err(name);
        assert_eq!(error.name(), name, "{error:?}");
    }
    assert!(!missing.exists());
}

#[tokio::test]
async fn a_table_of_the_application_is_never_taken_for_one_of_the_limits() {
    let (_folder, path) = folder();
    let pool = pool_of(options(&path)).await;
    pool.execute("CREATE TABLE Rate_Limit_Events (id INTEGER)")
        .await
        .unwrap();
    let error = SqliteStore::from_pool(&pool).await.unwrap_err();
    assert!(
        matches!(&error, OpenError::NameTaken(name) if name == "Rate_Limit_Events"),
        "{error:?}"
    );
    assert_eq!(
        number_of(&pool, "SELECT count(*) FROM sqlite_schema").await,
        1
    );
}

#[tokio::test]
async fn what_stays_with_the_file_is_left_alone() {
    let (_folder, path) = folder();
    std::fs::write(&path, "").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let options = SqliteConnectOptions::new()
        .filename(&path)
        .page_size(8_192)
        .auto_vacuum(SqliteAutoVacuum::Full);
    let pool = pool_of(options).await;
    pool.execute("CREATE TABLE notes (id INTEGER); PRAGMA user_version = 7")
        .await
        .unwrap();
    let store = store_of(&pool).await;
    store.engine.charge(&charge("a", 1)).await.unwrap();
    store.close().await.unwrap();
    let mut other = other_connection(&path).await;
    let mode = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut other);
    let mode: String = mode.await.unwrap();
    assert_eq!(mode, "delete");
    for (pragma, expected) in [
        ("PRAGMA page_size", 8_192),
        ("PRAGMA auto_vacuum", 1),
        ("PRAGMA user_version", 7),
    ] {
        let found = sqlx::query_scalar(pragma).fetch_one(&mut other);
        let found: i64 = found.await.unwrap();
        assert_eq!(found, expected, "{pragma}");
    }
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o640);
}

#[tokio::test]
async fn the_pools_options_hold_for_the_connection_but_for_what_would_shut_others_out() {
    let (_folder, path) = folder();
    let options = options(&path)
        .foreign_keys(false)
        .synchronous(SqliteSynchronous::Extra)
        .pragma("wal_autocheckpoint", "0")
        .pragma("busy_timeout", "30000")
        .pragma("secure_delete", "ON")
        .locking_mode(SqliteLockingMode::Exclusive)
        .shared_cache(true);
    let pool = SqlitePool::connect_lazy_with(options);
    let mut backend = backend_of(&pool);
    charge_now(&mut backend, &[charge("a", 1)]).await.unwrap();
    for (pragma, expected) in [
        ("PRAGMA foreign_keys", 0),
        ("PRAGMA synchronous", 3),
        ("PRAGMA wal_autocheckpoint", 0),
        ("PRAGMA secure_delete", 1),
        ("PRAGMA busy_timeout", 200),
    ] {
        let connection = backend.database.connection_mut();
        let found = sqlx::query_scalar(pragma).fetch_one(connection);
        let found: i64 = found.await.unwrap();
        assert_eq!(found, expected, "{pragma}");
    }
    let stored = rows(&path, "SELECT used FROM rate_limit_windows").await;
    assert_eq!(stored.len(), 1, "others can read and write");
}

#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<&'static str>>>);

impl<S: Subscriber> Layer<S> for Events {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.0.lock().unwrap().push(event.metadata().name());
    }
}

#[tokio::test]
async fn a_database_without_wal_is_warned_about_once() {
    for (mode, expected) in [
        (SqliteJournalMode::Delete, 1),
        (SqliteJournalMode::Truncate, 1),
        (SqliteJournalMode::Wal, 0),
    ] {
        let (_folder, path) = folder();
        let pool = pool_of(options(&path).journal_mode(mode)).await;
        let events = Events::default();
        crate::store::suite::let_others_listen();
        let guard = tracing_subscriber::registry()
            .with(events.clone())
            .set_default();
        let mut backend = backend_of(&pool);
        for _ in 0..3 {
            backend.open().await.unwrap();
            charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
        }
        drop(guard);
        let events = events.0.lock().unwrap();
        let warned = events
            .iter()
            .filter(|name| **name == "tollgate.wal_missing");
        assert_eq!(warned.count(), expected, "{mode:?}");
    }
}

#[tokio::test]
async fn stores_of_one_pool_and_on_its_path_share_their_counters() {
    let (_folder, path) = folder();
    let pool = pool_of(options(&path)).await;
    let stores = [
        store_of(&pool).await,
        store_of(&pool).await,
        open(&path).await,
    ];
    let mut admitted = 0;
    for turn in 0..9 {
        let outcome = stores[turn % 3].engine.charge(&charge("a", 4)).await;
        admitted += usize::from(outcome.unwrap().is_admitted());
    }
    assert_eq!(admitted, 4);
}

#[tokio::test]
async fn the_store_and_the_pool_are_closed_apart() {
    let (_folder, path) = folder();
    let pool = pool_of(options(&path)).await;
    let store = store_of(&pool).await;
    let other = store_of(&pool).await;
    store.engine.charge(&charge("a", 9)).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(
        number_of(&pool, "SELECT used FROM rate_limit_windows").await,
        1
    );
    pool.close().await;
    other.engine.charge(&charge("a", 9)).await.unwrap();
    assert_eq!(used(&other, "a").await, 2);
}

/// Migrations of an application, in files as sqlx has them.
async fn migrate(folder: &Path, pool: &SqlitePool, migrations: &[(&str, &str)]) {
    std::fs::create_dir_all(folder).unwrap();
    for (name, sql) in migrations {
        std::fs::write(folder.join(name), sql).unwrap();
    }
    Migrator::new(folder)
        .await
        .unwrap()
        .run(pool)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_migrates_before_and_after_and_writes_while_charges_go_on() {
    let (folder, path) = folder();
    let migrations = folder.path().join("migrations");
    let pool = SqlitePoolOptions::new().max_connections(3);
    let pool = pool.connect_with(options(&path)).await.unwrap();
    let first = (
        "1_notes.sql",
        "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL)",
    );
    migrate(&migrations, &pool, &[first]).await;
    let store = store_of(&pool).await;
    let mut tasks = Vec::new();
    for writer in 0..2 {
        let pool = pool.clone();
        tasks.push(tokio::spawn(async move {
            for turn in 0..50 {
                let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
                for part in 0..2 {
                    sqlx::query("INSERT INTO notes (text) VALUES ($1)")
                        .bind(format!("{writer}.{turn}.{part}"))
                        .execute(&mut *transaction)
                        .await
                        .unwrap();
                }
                transaction.commit().await.unwrap();
            }
        }));
    }
    for task in 0..4 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..100 {
                let outcome = store.engine.charge(&charge(task, 60)).await;
                // SQLite does not queue those that wait, so a charge may miss the lock.
                let is_told = outcome.as_ref().err().is_none_or(StoreError::is_transient);
                assert!(is_told, "{outcome:?}");
            }
        }));
    }
    let second = ("2_tags.sql", "CREATE TABLE tags (id INTEGER PRIMARY KEY)");
    migrate(&migrations, &pool, &[second]).await;
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(number_of(&pool, "SELECT count(*) FROM notes").await, 200);
    assert_eq!(
        number_of(&pool, "SELECT count(*) FROM _sqlx_migrations").await,
        2
    );
    let over = "SELECT count(*) FROM rate_limit_windows WHERE used > 60";
    assert_eq!(number_of(&pool, over).await, 0);
    store.close().await.unwrap();
    migrate(&migrations, &pool, &[first, second]).await;
    assert_is_sound(&path).await;
}

async fn assert_is_sound(path: &Path) {
    let check = rows(path, "PRAGMA integrity_check").await;
    assert_eq!(check[0].get::<String, _>(0), "ok");
}

#[tokio::test]
async fn a_long_transaction_of_the_application_is_an_error_that_passes() {
    let (_folder, path) = folder();
    let pool = pool_of(options(&path)).await;
    let mut backend = backend_of(&pool);
    charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
    let transaction = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let error = charge_now(&mut backend, &[charge("a", 9)]).await;
    let error = error.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    transaction.rollback().await.unwrap();
    charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
    let used = "SELECT used FROM rate_limit_windows";
    assert_eq!(number_of(&pool, used).await, 2);
}

#[tokio::test]
async fn without_wal_a_read_that_lasts_is_an_error_that_passes_and_leaves_no_lock() {
    let (_folder, path) = folder();
    let pool = pool_of(options(&path).journal_mode(SqliteJournalMode::Delete)).await;
    let mut backend = backend_of(&pool);
    charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
    let policies = [Policy::fixed(9, 60).name("p"), Policy::sliding(9, 60)];
    for policy in &policies {
        let mut reader = pool.begin().await.unwrap();
        reader
            .fetch_all("SELECT * FROM rate_limit_windows")
            .await
            .unwrap();
        let error = charge_now(&mut backend, &[charge_under(policy, "a")]).await;
        let error = error.unwrap_err();
        assert!(error.is_transient(), "{error:?}");
        reader
            .fetch_all("SELECT * FROM rate_limit_windows")
            .await
            .unwrap();
        reader.commit().await.unwrap();
        pool.execute("CREATE TABLE IF NOT EXISTS notes (id INTEGER)")
            .await
            .unwrap();
        charge_now(&mut backend, &[charge_under(policy, "a")])
            .await
            .unwrap();
    }
    let used = "SELECT used FROM rate_limit_windows";
    assert_eq!(number_of(&pool, used).await, 2);
}

/// As with every other writer on the file; `docs/sqlite.md` says what to do.
#[tokio::test]
async fn a_transaction_that_reads_first_cannot_write_after_a_charge_unless_it_begins_to_write() {
    let (_folder, path) = folder();
    let pool = pool_of(options(&path)).await;
    pool.execute("CREATE TABLE notes (id INTEGER)")
        .await
        .unwrap();
    let mut backend = backend_of(&pool);
    charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    transaction.fetch_all("SELECT * FROM notes").await.unwrap();
    charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
    let write = "INSERT INTO notes VALUES (1)";
    let error = transaction.execute(write).await.unwrap_err();
    assert!(error.to_string().contains("database is locked"), "{error}");
    transaction.rollback().await.unwrap();
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    transaction.fetch_all("SELECT * FROM notes").await.unwrap();
    transaction.execute(write).await.unwrap();
    transaction.commit().await.unwrap();
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut beside = path.to_owned().into_os_string();
    beside.push(suffix);
    beside.into()
}

#[tokio::test]
async fn where_the_file_is_gone_nothing_is_deleted_or_made_until_it_is_back() {
    let (folder, path) = folder();
    let pool = pool_of(options(&path)).await;
    pool.execute("CREATE TABLE notes (id INTEGER)")
        .await
        .unwrap();
    let mut backend = backend_of(&pool);
    charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
    let wal = std::fs::read(beside(&path, "-wal")).unwrap();
    let away = folder.path().join("away.db");
    std::fs::rename(&path, &away).unwrap();
    for _ in 0..3 {
        backend.database.watch.rest();
        let error = charge_now(&mut backend, &[charge("a", 9)]).await;
        let error = format!("{:?}", error.unwrap_err());
        assert!(error.contains("limits.db does not exist"), "{error}");
    }
    assert!(backend.take_lost());
    assert!(!path.exists());
    assert_eq!(std::fs::read(beside(&path, "-wal")).unwrap(), wal);
    std::fs::rename(&away, &path).unwrap();
    charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
    let used = "SELECT used FROM rate_limit_windows";
    assert_eq!(number_of(&pool, used).await, 2);
    assert_is_sound(&path).await;
}

#[tokio::test]
async fn a_file_that_the_pool_makes_on_first_use_is_watched_as_well() {
    let (_folder, path) = folder();
    let pool = SqlitePool::connect_lazy_with(options(&path));
    let mut backend = backend_of(&pool);
    charge_now(&mut backend, &[charge("a", 9)]).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    backend.database.watch.rest();
    let answer = charge_now(&mut backend, &[charge("a", 9)]).await;
    assert!(answer.is_err() && backend.take_lost(), "{answer:?}");
    assert!(!path.exists());
}

#[tokio::test]
async fn the_wal_is_not_begun_anew_by_force() {
    let (_folder, path) = folder();
    let pool = pool_of(options(&path)).await;
    let mut backend = backend_of(&pool);
    backend.open().await.unwrap();
    let write = "CREATE TABLE blobs AS SELECT randomblob(7000000) AS blob";
    pool.execute("PRAGMA wal_autocheckpoint = 0").await.unwrap();
    pool.execute(write).await.unwrap();
    let length = || std::fs::metadata(beside(&path, "-wal")).unwrap().len();
    let before = length();
    assert!(before > 7_000_000);
    for _ in 0..3 {
        backend.maintain().await.unwrap();
    }
    assert_eq!(length(), before);
}
