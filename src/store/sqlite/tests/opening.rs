//! Files: how they are created, opened, refused and looked into.

use super::*;

#[tokio::test]
async fn a_new_file_and_what_lies_beside_it_are_readable_by_the_owner_alone() {
    let (folder, path) = folder();
    let store = open(&path).await;
    store.engine.charge(&charge("a", 1)).await.unwrap();
    let mut modes = Vec::new();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        modes.push((entry.file_name().into_string().unwrap(), mode));
    }
    modes.sort();
    let expected = ["limits.db", "limits.db-shm", "limits.db-wal"];
    assert_eq!(modes, expected.map(|name| (name.to_owned(), 0o600)));
}

#[tokio::test]
async fn a_reopened_file_keeps_its_counts() {
    let (_folder, path) = folder();
    let store = open(&path).await;
    store.engine.charge(&charge("a", 3)).await.unwrap();
    store.close().await.unwrap();
    let url = format!("sqlite://{}", path.display());
    let store = SqliteStore::connect(&url).await.unwrap();
    let store = store.clock(&clock_at(NOW));
    assert_eq!(used(&store, "a").await, 1);
}

#[tokio::test]
async fn what_cannot_be_opened_is_told_with_its_cure() {
    let (folder, path) = folder();
    let text = folder.path().join("notes.txt");
    std::fs::write(
        &text,
        "no database, but long enough to have a header".repeat(99),
    )
    .unwrap();
    let damaged = folder.path().join("damaged.db");
    let store = open(&damaged).await;
    store.close().await.unwrap();
    // The header is left, and the list of tables after it is not.
    let mut bytes = std::fs::read(&damaged).unwrap();
    bytes[100..].fill(0xff);
    std::fs::write(&damaged, bytes).unwrap();
    let url = |rest: &str| format!("sqlite://{}{rest}", path.display());
    let cases = [
        (SqliteStore::open(folder.path()).await, "is a folder"),
        (
            SqliteStore::open(folder.path().join("no/limits.db")).await,
            "does not exist: create it",
        ),
        (
            SqliteStore::open(text.join("limits.db")).await,
            "does not exist: create it",
        ),
        (SqliteStore::open(&text).await, "is not a SQLite database"),
        (SqliteStore::open(&damaged).await, "is damaged"),
        (
            SqliteStore::connect("postgres://host/db").await,
            "does not start with sqlite:",
        ),
        (SqliteStore::open("").await, "path of the database is empty"),
        (
            SqliteStore::open("sqlite://limits.db").await,
            "SqliteStore::connect",
        ),
        (SqliteStore::open("file:limits.db").await, "is no path"),
        (SqliteStore::connect("sqlite://").await, "names no file"),
        (
            SqliteStore::connect(&url("?mode=nonsense")).await,
            "nonsense",
        ),
        (
            SqliteStore::connect(&url("?mode=rw")).await,
            "mode=rw forbids",
        ),
        (
            SqliteStore::connect(&url("?mode=ro")).await,
            "leave out mode=ro",
        ),
        (
            SqliteStore::connect(&url("?immutable=1")).await,
            "leave out",
        ),
    ];
    for (result, message) in cases {
        let error = result.expect_err(message).to_string();
        assert!(error.contains(message), "{error}");
    }
    assert!(!path.exists(), "a failed opening leaves no file behind");
}

#[tokio::test]
async fn a_schema_is_refused_only_when_this_version_cannot_work_on_it() {
    let (_folder, path) = folder();
    SqliteStore::open(&path)
        .await
        .unwrap()
        .close()
        .await
        .unwrap();
    let mut connection = other_connection(&path).await;
    connection
        .execute("UPDATE rate_limit_schema SET version = 9")
        .await
        .unwrap();
    let store = open(&path).await;
    store.close().await.unwrap();
    connection
        .execute("UPDATE rate_limit_schema SET oldest_reader = 9")
        .await
        .unwrap();
    let error = SqliteStore::open(&path).await.unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::SchemaTooNew {
                oldest_reader: 9,
                supported: schema::VERSION
            }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_file_of_the_first_version_gets_what_it_lacks_and_stays_good_for_it() {
    let (_folder, path) = folder();
    open(&path).await.close().await.unwrap();
    let mut connection = other_connection(&path).await;
    let first_version = "
        DROP VIEW rate_limit_event_log; DROP VIEW rate_limit_bucket_usage;
        DROP TABLE rate_limit_events; DROP TABLE rate_limit_buckets;
        DROP VIEW rate_limit_set_limits; DROP TABLE rate_limit_limits; DROP TABLE rate_limit_changes; DROP VIEW api_call_log; DROP VIEW api_usage_log; DROP TABLE api_calls; DROP TABLE api_usage;
        UPDATE rate_limit_schema SET version = 1";
    connection.execute(first_version).await.unwrap();
    let store = open(&path).await;
    let sliding = Policy::sliding(1, 60);
    let outcome = store
        .engine
        .charge(&charge_under(&sliding, "a"))
        .await
        .unwrap();
    assert!(outcome.is_admitted());
    let versions = rows(
        &path,
        "SELECT version, oldest_reader FROM rate_limit_schema",
    )
    .await;
    let versions = (versions[0].get::<i64, _>(0), versions[0].get::<i64, _>(1));
    assert_eq!(versions, (schema::VERSION, 1));
}

#[tokio::test]
async fn a_file_of_the_second_version_gets_what_it_lacks_and_keeps_its_buckets() {
    let (_folder, path) = folder();
    let policy = Policy::token_bucket(10, 3_600).name("bucket");
    let charge = charge_of(&[(&policy, &Key::new("user", "a"))], 7);
    let store = open(&path).await;
    assert!(store.engine.charge(&charge).await.unwrap().is_admitted());
    store.close().await.unwrap();
    let mut connection = other_connection(&path).await;
    let second_version = "
        ALTER TABLE rate_limit_buckets DROP COLUMN since;
        DROP VIEW rate_limit_set_limits; DROP TABLE rate_limit_limits; DROP TABLE rate_limit_changes; DROP VIEW api_call_log; DROP VIEW api_usage_log; DROP TABLE api_calls; DROP TABLE api_usage;
        UPDATE rate_limit_schema SET version = 2";
    connection.execute(second_version).await.unwrap();
    let store = open(&path).await;
    let outcome = store.engine.charge(&charge).await.unwrap();
    assert!(!outcome.is_admitted(), "seven of ten are used");
    // As older code writes it.
    let older = "INSERT INTO rate_limit_buckets (policy, key, at, used, parts, hold, expires_at)
        VALUES ('p', 'k', 0, 0, 0, 0, 0)";
    connection.execute(older).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_that_create_one_file_at_once_all_start() {
    let (_folder, path) = folder();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let path = path.clone();
            tokio::spawn(async move {
                let store = SqliteStore::open(path).await?.deadline(PATIENCE);
                loop {
                    match store.engine.charge(&charge("a", 3)).await {
                        Ok(outcome) => return Ok::<_, OpenError>((store, outcome.is_admitted())),
                        Err(error) => assert!(error.is_transient(), "{error:?}"),
                    }
                }
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += usize::from(task.await.unwrap().unwrap().1);
    }
    assert_eq!(admitted, 3);
}

#[tokio::test]
async fn the_view_shows_readable_times() {
    let (_folder, path) = folder();
    let store = open(&path).await;
    store.engine.charge(&charge("a", 3)).await.unwrap();
    let rows = rows(&path, "SELECT * FROM rate_limit_usage").await;
    assert_eq!(rows[0].get::<String, _>("key"), "user:a");
    assert_eq!(
        rows[0].get::<String, _>("window_start"),
        "2083-01-15T08:00:00.000Z"
    );
    assert_eq!(rows[0].get::<i64, _>("limit"), 3);
}

#[tokio::test]
async fn the_views_of_events_and_buckets_can_be_read() {
    let (_folder, path) = folder();
    let store = open(&path).await;
    for policy in [Policy::sliding(3, 60), Policy::token_bucket(3, 60)] {
        store
            .engine
            .charge(&charge_under(&policy, "a"))
            .await
            .unwrap();
    }
    let views = rows(
        &path,
        "SELECT policy, key, at, units, kept_until FROM rate_limit_event_log
        UNION ALL SELECT policy, key, at, used, kept_until FROM rate_limit_bucket_usage",
    )
    .await;
    let policies = views.iter().map(|row| row.get::<String, _>(0));
    assert_eq!(
        policies.collect::<Vec<_>>(),
        ["sliding-3-60s;sliding;60s", "token-bucket-3-60s;bucket;60s"]
    );
    for row in &views {
        assert_eq!(row.get::<String, _>(2), "2083-01-15T08:00:00.000Z");
        assert_eq!(row.get::<i64, _>(3), 1);
    }
}
