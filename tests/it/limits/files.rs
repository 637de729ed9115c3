//! Limits that are set at run time, in a file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::SqliteRow;
use sqlx::{Connection, Executor, Row, SqliteConnection};
use tempfile::TempDir;
use tollgate::{Key, Limit, Limiter, Policy, SqliteStore};

use crate::support::{START, clock};

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    (folder, path)
}

async fn open(path: &Path) -> SqliteStore {
    let store = SqliteStore::open(path).await.unwrap();
    store.deadline(Duration::from_mins(1)).clock(&clock())
}

async fn other_connection(path: &Path) -> SqliteConnection {
    let url = format!("sqlite://{}", path.display());
    SqliteConnection::connect(&url).await.unwrap()
}

async fn rows(path: &Path, query: &'static str) -> Vec<SqliteRow> {
    let mut connection = other_connection(path).await;
    connection.fetch_all(query).await.unwrap()
}

fn api(store: &SqliteStore) -> Limiter {
    Limiter::new(Policy::fixed(5, 60).name("api")).store(store)
}

fn user(n: u32) -> Key {
    Key::new("user", n)
}

#[tokio::test]
async fn a_file_of_the_fourth_version_gets_the_table_of_limits() {
    let (_folder, path) = folder();
    open(&path).await.close().await.unwrap();
    let mut connection = other_connection(&path).await;
    let fourth_version = "
        DROP VIEW rate_limit_set_limits; DROP TABLE rate_limit_limits; DROP TABLE rate_limit_changes;
        UPDATE rate_limit_schema SET version = 4";
    connection.execute(fourth_version).await.unwrap();
    let store = open(&path).await;
    api(&store).set_limit("api", &user(1), 7).await.unwrap();
    assert_eq!(api(&store).peek(&user(1)).await.unwrap().remaining(), 7);
}

#[tokio::test]
async fn the_view_shows_limits_to_people() {
    let (_folder, path) = folder();
    let store = open(&path).await;
    let api = api(&store);
    let ends_at = START.saturating_add(Duration::from_hours(4));
    api.set_limit("api", None, 20).await.unwrap();
    api.set_limit("api", &user(1), Limit::EXEMPT).await.unwrap();
    let blocked = Limit::BLOCKED.ends_at(ends_at);
    api.set_limit("api", &user(2), blocked).await.unwrap();
    assert!(api.check(&user(1)).await.unwrap().is_allowed());
    let columns = "SELECT ifnull(key, '-'), CAST(\"limit\" AS TEXT), ifnull(ends_at, '-')
        FROM rate_limit_set_limits ORDER BY key";
    let shown = rows(&path, columns).await;
    let shown: Vec<[String; 3]> = shown
        .iter()
        .map(|row| [0, 1, 2].map(|column| row.get(column)))
        .collect();
    let expected = [
        ["-", "20", "-"],
        ["user:1", "exempt", "-"],
        ["user:2", "blocked", "2083-01-15T08:00:00.000Z"],
    ];
    assert_eq!(shown, expected);
    let usage = rows(&path, "SELECT \"limit\" FROM rate_limit_usage").await;
    assert_eq!(usage[0].get::<Option<i64>, _>(0), None, "it has none");
}

/// An operator at a shell may write what a program would not.
#[tokio::test]
async fn rows_that_are_written_by_hand_hold_or_are_refused() {
    let (_folder, path) = folder();
    let store = open(&path).await;
    let mut connection = other_connection(&path).await;
    for nonsense in [
        "INSERT INTO rate_limit_limits VALUES ('api', 'user:1', -1, NULL)",
        "INSERT INTO rate_limit_limits VALUES ('api', 'user:1', 4294967296, NULL)",
        "INSERT INTO rate_limit_limits VALUES ('api', 'user:1', 'many', NULL)",
        "INSERT INTO rate_limit_limits VALUES ('api', 'alice', 1, NULL)",
        "INSERT INTO rate_limit_limits VALUES ('api', NULL, 1, NULL)",
    ] {
        assert!(connection.execute(nonsense).await.is_err(), "{nonsense}");
    }
    let by_hand = "INSERT INTO rate_limit_limits VALUES
        ('api', 'user:1', 0, NULL), ('api', 'user:2', 4294967295, NULL), ('api', 'user:3', NULL, 0),
        ('api', '', 1, NULL)";
    connection.execute(by_hand).await.unwrap();
    for policy in [Policy::fixed(5, 60), Policy::sliding(5, 60)] {
        let limiter = Limiter::new(policy.name("api")).store(&store);
        let limits = async |n| limiter.peek(&user(n)).await.unwrap().policy().limit();
        let limits = [limits(1).await, limits(2).await, limits(3).await];
        assert_eq!(limits, [0, u32::MAX, 1], "the third has ended long ago");
        assert!(limiter.check(&user(1)).await.unwrap().is_denied());
        for n in [2, 2, 3] {
            assert!(limiter.check(&user(n)).await.unwrap().is_allowed());
        }
        assert!(limiter.check(&user(3)).await.unwrap().is_denied());
        assert_eq!(
            limiter.stored_limits("api", None, 9).await.unwrap().len(),
            2
        );
    }
}

/// It holds for nobody, and must not keep others from being listed.
#[tokio::test]
async fn rows_for_what_is_no_key_are_left_out_of_lists() {
    let (_folder, path) = folder();
    let store = open(&path).await;
    let api = api(&store);
    for n in 1..=3 {
        api.set_limit("api", &user(n), n).await.unwrap();
    }
    let mut connection = other_connection(&path).await;
    let typed = "INSERT INTO rate_limit_limits VALUES
        ('api', 'user:0% off', 1, NULL), ('api', 'user:1% off', 1, NULL), ('api', 'user:9%', 1, NULL)";
    connection.execute(typed).await.unwrap();
    for most in [1, 2, 3, 9] {
        let mut after = None;
        let mut units = Vec::new();
        loop {
            let page = api
                .stored_limits("api", after.as_ref(), most)
                .await
                .unwrap();
            units.extend(page.iter().filter_map(|stored| stored.limit().units()));
            match page.last() {
                Some(last) => after = last.key().cloned(),
                None => break,
            }
        }
        assert_eq!(units, [1, 2, 3], "{most} at a time");
    }
}
