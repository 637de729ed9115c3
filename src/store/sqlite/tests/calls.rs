//! The rows of allowed requests, and the sums of them.

use sqlx::AssertSqlSafe;

use super::*;
use crate::limit::Day;
use crate::store::Call;
use crate::store::engine::Calls;

fn call(key: &str, at: i64) -> Call<'_> {
    Call {
        policy: "api",
        key,
        method: "GET",
        route: "/list",
        status: None,
        units: 2,
        at: Timestamp::from_unix_millis(at),
    }
}

async fn numbers(path: &Path, query: &'static str) -> Vec<i64> {
    let rows = rows(path, query).await;
    (0..rows[0].len())
        .map(|column| rows[0].get(column))
        .collect()
}

const MONTH: Duration = Duration::from_secs(30 * 86_400);
const COUNTS: &str = "SELECT (SELECT count(*) FROM api_calls), (SELECT count(*) FROM api_usage),
    (SELECT coalesce(sum(requests), 0) FROM api_usage), (SELECT coalesce(sum(units), 0) FROM api_usage)";

#[tokio::test]
async fn a_page_whose_commit_was_in_doubt_is_counted_once_however_often_it_is_written() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    let calls = Calls::of(&[call("user:a", 1), call("user:a", 1), call("user:b", 2)]);
    for _ in 0..3 {
        backend.record(&calls).await.unwrap();
    }
    assert_eq!(numbers(&path, COUNTS).await, [3, 2, 3, 6]);
    backend
        .record(&Calls::of(&[call("user:a", 1)]))
        .await
        .unwrap();
    assert_eq!(numbers(&path, COUNTS).await, [4, 2, 4, 8]);
}

#[tokio::test]
async fn what_fails_leaves_neither_rows_nor_sums() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    backend.open().await.unwrap();
    let mut other = other_connection(&path).await;
    let trigger = "CREATE TRIGGER no_sums BEFORE INSERT ON api_usage BEGIN SELECT raise(ABORT, 'as the test wants it'); END";
    other.execute(trigger).await.unwrap();
    let calls = Calls::of(&[call("user:a", 1)]);
    backend.record(&calls).await.unwrap_err();
    assert_eq!(numbers(&path, COUNTS).await, [0, 0, 0, 0]);
    other.execute("DROP TRIGGER no_sums").await.unwrap();
    backend.record(&calls).await.unwrap();
    assert_eq!(numbers(&path, COUNTS).await, [1, 1, 1, 2]);
}

#[tokio::test]
async fn instants_at_both_ends_of_time_are_recorded_and_swept() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    let calls = [i64::MIN, -1, 0, i64::MAX].map(|at| call("user:a", at));
    backend.record(&Calls::of(&calls)).await.unwrap();
    assert_eq!(numbers(&path, COUNTS).await[0], 4);
    backend.retention.set_of_calls(MONTH);
    for now in [i64::MIN, NOW] {
        sweep_all(&mut backend, now).await;
    }
    assert_eq!(numbers(&path, COUNTS).await[..2], [1, 1]);
}

#[tokio::test]
async fn a_sweep_deletes_what_is_too_old_and_nothing_else_in_bounded_pages() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    let day = 86_400_000;
    let old = NOW - 30 * day;
    for _ in 0..10 {
        let calls: Vec<_> = (0..250).map(|n| call("user:a", old - n)).collect();
        backend.record(&Calls::of(&calls)).await.unwrap();
    }
    let young = Calls::of(&[call("user:a", old + 1)]);
    backend.record(&young).await.unwrap();
    backend.retention.set_of_calls(MONTH);
    let (mut after, mut largest) = (None, 0);
    loop {
        let page = backend
            .sweep(Timestamp::from_unix_millis(NOW), after, 1_000)
            .await
            .unwrap();
        largest = largest.max(page.count);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(largest, 1_000);
    assert_eq!(numbers(&path, COUNTS).await, [1, 1, 2_501, 5_002]);
}

/// It was not told how long others mean to keep it; and one that records may be told a moment later.
#[tokio::test]
async fn a_store_that_does_not_record_deletes_nothing_of_it_and_one_that_does_waits() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    backend
        .record(&Calls::of(&[call("user:a", 0)]))
        .await
        .unwrap();
    sweep_all(&mut backend, NOW).await;
    assert_eq!(numbers(&path, COUNTS).await[..2], [1, 1]);
    backend.retention.records();
    sweep_all(&mut backend, NOW).await;
    assert_eq!(numbers(&path, COUNTS).await[..2], [1, 1]);
    backend.retention.set_of_calls(MONTH);
    sweep_all(&mut backend, NOW).await;
    assert_eq!(numbers(&path, COUNTS).await[..2], [0, 0]);
}

/// The store's own sweep, on the system's clock: the rows are of 1970.
#[tokio::test]
async fn old_rows_go_without_traffic() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    let calls: Vec<_> = (0..3_000).map(|n| call("user:a", n)).collect();
    backend.record(&Calls::of(&calls)).await.unwrap();
    backend.close().await.unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    let _store = store.audit_retention(MONTH);
    let gone = async { while numbers(&path, COUNTS).await[..2] != [0, 0] {} };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}

#[tokio::test]
async fn a_database_in_memory_keeps_the_newest_rows_and_takes_none_of_the_counters_room() {
    let mut backend = Sqlite {
        database: Database::new(Location::Memory),
        room: Some(Room::new(20)),
        retention: Arc::default(),
    };
    let full: Vec<_> = (0..20).map(|n| charge(n, 1)).collect();
    charge_now(&mut backend, &full).await.unwrap();
    let many = "
        WITH RECURSIVE n (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < 65536)
        INSERT INTO api_calls SELECT n, n, 'api', 'user:' || n, 'GET', '', NULL, 1 FROM n";
    backend.database.execute(sqlx::query(many)).await.unwrap();
    let calls: Vec<_> = (0..10).map(|n| call("user:new", 100_000 + n)).collect();
    backend.record(&Calls::of(&calls)).await.unwrap();
    let ends = sqlx::query("SELECT count(*), min(at), max(at) FROM api_calls");
    let ends = backend.database.fetch_all(ends).await.unwrap();
    let ends: Vec<i64> = (0..3).map(|column| ends[0].get(column)).collect();
    assert_eq!(ends, [65_536, 11, 100_009]);
    backend.retention.set_of_calls(MONTH);
    // What is swept of them makes no room for counters.
    sweep_all(&mut backend, NOW).await;
    let answers = charge_now(&mut backend, &[charge("new", 1), charge(0, 1)])
        .await
        .unwrap();
    assert!(answers[1].is_ok(), "{answers:?}");
}

#[tokio::test]
async fn a_file_of_the_third_version_gets_the_new_tables() {
    let (_folder, path) = folder();
    open(&path).await.close().await.unwrap();
    let mut connection = other_connection(&path).await;
    let third_version = "
        DROP VIEW rate_limit_set_limits; DROP TABLE rate_limit_limits; DROP TABLE rate_limit_changes; DROP VIEW api_call_log; DROP VIEW api_usage_log; DROP TABLE api_calls; DROP TABLE api_usage;
        UPDATE rate_limit_schema SET version = 3";
    connection.execute(third_version).await.unwrap();
    let store = open(&path).await;
    store.engine.record(&call("user:a", NOW));
    let today = Day::of(Timestamp::from_unix_millis(NOW));
    assert_eq!(store.usage(today).total().await.unwrap().units(), 2);
}

/// A sweep would delete rows of it.
#[tokio::test]
async fn a_table_of_the_application_of_the_same_name_is_an_error_and_stays_as_it_is() {
    for version in [None, Some(1), Some(3)] {
        let (_folder, path) = folder();
        open(&path).await.close().await.unwrap();
        let mut other = other_connection(&path).await;
        let before = match version {
            None => "
                DROP VIEW rate_limit_usage; DROP VIEW rate_limit_event_log; DROP VIEW rate_limit_bucket_usage;
                DROP VIEW rate_limit_refusals; DROP TABLE rate_limit_windows; DROP TABLE rate_limit_events;
                DROP TABLE rate_limit_buckets; DROP TABLE rate_limit_schema"
                .to_owned(),
            Some(version) => format!("UPDATE rate_limit_schema SET version = {version}"),
        };
        let theirs = "
            DROP VIEW rate_limit_set_limits; DROP TABLE rate_limit_limits; DROP TABLE rate_limit_changes; DROP VIEW api_call_log; DROP VIEW api_usage_log; DROP TABLE api_calls; DROP TABLE api_usage;
            CREATE TABLE Api_Calls (at INTEGER, id INTEGER); INSERT INTO Api_Calls VALUES (1, 1)";
        other.execute(AssertSqlSafe(before)).await.unwrap();
        other.execute(theirs).await.unwrap();
        let error = SqliteStore::open(&path).await.unwrap_err();
        assert!(
            matches!(&error, OpenError::NameTaken(name) if name == "Api_Calls"),
            "{version:?}: {error:?}"
        );
        let left = "SELECT (SELECT count(*) FROM Api_Calls),
            (SELECT count(*) FROM sqlite_schema WHERE name LIKE 'api%')";
        assert_eq!(numbers(&path, left).await, [1, 1], "{version:?}");
    }
}

#[tokio::test]
async fn two_stores_on_one_file_record_beside_each_other() {
    let (_folder, path) = folder();
    let stores = [open(&path).await, open(&path).await];
    for _ in 0..500 {
        for store in &stores {
            store.engine.record(&call("user:a", NOW));
        }
    }
    for store in &stores {
        store.close().await.unwrap();
    }
    assert_eq!(numbers(&path, COUNTS).await, [1_000, 1, 1_000, 2_000]);
}

#[tokio::test]
async fn a_file_that_is_replaced_gets_what_is_recorded_from_then_on() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    backend
        .record(&Calls::of(&[call("user:a", 1)]))
        .await
        .unwrap();
    for end in ["", "-wal", "-shm"] {
        let mut file = path.clone().into_os_string();
        file.push(end);
        std::fs::remove_file(file).unwrap();
    }
    backend.database.watch.rest();
    backend
        .record(&Calls::of(&[call("user:a", 2)]))
        .await
        .unwrap();
    assert_eq!(numbers(&path, COUNTS).await, [1, 1, 1, 2]);
}

/// What is read for a question about one key, or a few days, must not depend on how many others there are.
#[tokio::test]
async fn no_question_about_usage_goes_through_the_whole_table() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    backend.open().await.unwrap();
    for statement in tables::usage_statements() {
        for statement in statement.split(';') {
            let plan = format!("EXPLAIN QUERY PLAN {statement}");
            let plan = sqlx::query(sqlx::AssertSqlSafe(plan));
            let plan = backend.database.fetch_all(plan).await.unwrap();
            let steps: Vec<String> = plan.iter().map(|row| row.get(3)).collect();
            let reads: Vec<_> = steps
                .iter()
                .filter(|step| step.contains("api_usage") || step.contains("sums"))
                .collect();
            assert_eq!(reads.len(), 1, "{steps:?}");
            assert!(reads[0].starts_with("SEARCH"), "{steps:?}");
        }
    }
}
