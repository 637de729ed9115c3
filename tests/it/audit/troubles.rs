//! Restarts, locks, overload, and the end of the store.

use std::time::Duration;

use axum::body::Body;
use sqlx::{Connection, Executor, Row, SqliteConnection};
use tollgate::{Day, Days, SqliteStore};
use tower::Layer;

use super::Recorded;
use crate::support::{START, Server, capture_log, from, hello, login, memory, send, statuses};

#[tokio::test]
async fn what_was_recorded_is_written_when_the_store_is_closed() {
    let recorded = Recorded::open().await;
    let limit = login(1_000, 60, &recorded.store).audit(&recorded.store);
    let service = limit.layer(hello::<Body>());
    statuses(&service, "alice", 700).await;
    assert_eq!(recorded.lines().await.len(), 700);
    assert_eq!(recorded.store.audit_dropped(), 0);
}

#[tokio::test]
async fn what_was_recorded_is_written_when_the_last_handle_is_dropped() {
    let recorded = Recorded::open().await;
    let Recorded { store, path, .. } = recorded;
    let limit = login(9, 60, &store).audit(&store);
    send(&limit.layer(hello()), from("alice")).await;
    drop(limit);
    drop(store);
    let again = SqliteStore::open(&path).await.unwrap();
    let today = Day::of(START);
    while again.usage(today).total().await.unwrap().requests() == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_row_is_written_by_itself_though_nothing_else_happens() {
    let recorded = Recorded::open().await;
    // The store is asked for nothing else.
    let limit = login(9, 60, &memory(&recorded.clock)).audit(&recorded.store);
    send(&limit.layer(hello()), from("alice")).await;
    while recorded.count().await == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_restart_keeps_what_was_recorded_and_adds_to_it() {
    let recorded = Recorded::open().await;
    let limit = login(9, 60, &memory(&recorded.clock));
    let service = limit.clone().audit(&recorded.store).layer(hello::<Body>());
    statuses(&service, "alice", 2).await;
    recorded.store.close().await.unwrap();
    let again = SqliteStore::open(&recorded.path).await.unwrap();
    let service = limit.audit(&again).layer(hello::<Body>());
    statuses(&service, "alice", 3).await;
    let today = Day::of(recorded.clock.now());
    assert_eq!(again.usage(today).total().await.unwrap().requests(), 5);
    assert_eq!(recorded.count().await, 5);
}

#[tokio::test]
async fn requests_do_not_wait_while_the_file_is_locked_and_are_recorded_afterwards() {
    let recorded = Recorded::open().await;
    let limit = login(10_000, 60, &memory(&recorded.clock)).audit(&recorded.store);
    let service = limit.layer(hello::<Body>());
    let mut other = recorded.connection().await;
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let statuses = statuses(&service, "alice", 1_000).await;
    assert!(statuses.iter().all(|status| *status == 200));
    let today = Day::of(recorded.clock.now());
    let error = recorded.store.usage(today).total().await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    other.execute("ROLLBACK").await.unwrap();
    let usage = recorded.store.usage(today).total().await.unwrap();
    assert_eq!(
        (usage.requests(), recorded.store.audit_dropped()),
        (1_000, 0)
    );
}

#[tokio::test]
async fn what_has_no_room_is_dropped_counted_and_told_once_until_there_is_room() {
    let log = capture_log();
    let recorded = Recorded::open().await;
    let limit = login(u32::MAX, 60, &memory(&recorded.clock)).audit(&recorded.store);
    let service = limit.layer(hello::<Body>());
    let mut other = recorded.connection().await;
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let statuses = statuses(&service, "alice", (1 << 16) + 10).await;
    assert!(statuses.iter().all(|status| *status == 200));
    assert_eq!(recorded.store.audit_dropped(), 10);
    let told = log.lines_with("dropped and not recorded");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(!told[0].contains("alice"), "{told:?}");
    other.execute("ROLLBACK").await.unwrap();
    let today = Day::of(recorded.clock.now());
    let usage = recorded.store.usage(today).total().await.unwrap();
    assert_eq!(usage.requests(), 1 << 16);
}

#[tokio::test]
async fn a_closed_store_records_nothing_and_says_so_once() {
    let log = capture_log();
    let recorded = Recorded::open().await;
    let limit = login(9, 60, &memory(&recorded.clock)).audit(&recorded.store);
    let service = limit.layer(hello::<Body>());
    recorded.store.close().await.unwrap();
    assert_eq!(statuses(&service, "alice", 3).await, [200, 200, 200]);
    assert_eq!(recorded.store.audit_dropped(), 3);
    let told = log.lines_with("dropped and not recorded");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("is closed"), "{told:?}");
}

#[tokio::test]
async fn rows_are_kept_for_as_long_as_is_set_and_sums_for_longer() {
    let recorded = Recorded::open().await;
    let days = |days: u64| Duration::from_secs(days * 86_400);
    let store = recorded
        .store
        .clone()
        .audit_retention(days(2))
        .usage_retention(days(5));
    let limit = login(9, 60, &store).audit(&store);
    let limiter = limit.limiter();
    let service = limit.layer(hello::<Body>());
    let today = Day::of(recorded.clock.now());
    statuses(&service, "alice", 3).await;
    assert_eq!(store.usage(today).total().await.unwrap().requests(), 3);

    let sweeps = async |advance: Duration| {
        recorded.clock.advance(advance);
        limiter.sweep().await.unwrap();
        let sums = store.usage(today).total().await.unwrap().requests();
        (recorded.count().await, sums)
    };
    assert_eq!(
        sweeps(Duration::from_millis(2 * 86_400_000 - 1)).await,
        (3, 3)
    );
    assert_eq!(sweeps(Duration::from_millis(1)).await, (0, 3));
    // A day's sums are kept after its end: the day began four hours ago.
    assert_eq!(sweeps(days(3)).await, (0, 3));
    assert_eq!(sweeps(Duration::from_secs(20 * 3_600)).await, (0, 0));
}

#[tokio::test]
async fn by_default_rows_are_kept_for_thirty_days() {
    let recorded = Recorded::open().await;
    // Without this it begins after half a minute.
    let store = recorded
        .store
        .clone()
        .usage_retention(Duration::from_secs(400 * 86_400));
    let limit = login(9, 60, &store).audit(&store);
    let limiter = limit.limiter();
    send(&limit.layer(hello()), from("alice")).await;
    let today = Day::of(recorded.clock.now());
    recorded.store.usage(today).total().await.unwrap();
    for (millis, left) in [(30 * 86_400_000 - 1, 1), (1, 0)] {
        recorded.clock.advance(Duration::from_millis(millis));
        limiter.sweep().await.unwrap();
        assert_eq!(recorded.count().await, left);
    }
}

#[tokio::test]
async fn what_is_written_outlives_a_kill_and_agrees_with_the_sums() {
    let mut server = Server::start("fixed_window");
    let url = format!("{}/ping", server.url);
    for client in 0..50 {
        let request = reqwest::Client::new().get(&url);
        let request = request.header("X-Client-Key", client.to_string());
        assert_eq!(request.send().await.unwrap().status(), 200);
    }
    let file = format!("sqlite://{}", server.database().display());
    let rows = async || {
        let mut connection = SqliteConnection::connect(&file).await.unwrap();
        let rows = sqlx::query("SELECT count(*) FROM api_calls");
        let rows = rows.fetch_all(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        rows[0].get::<i64, _>(0)
    };
    let mut before = 0;
    while before == 0 {
        before = rows().await;
    }
    server.restart();
    let after = rows().await;
    assert!((before..=50).contains(&after), "{before}, then {after}");
    let store = SqliteStore::open(server.database()).await.unwrap();
    let days = Days::parse("2020-01-01", "2029-12-31").unwrap();
    let usage = store.usage(days).total().await.unwrap();
    assert_eq!(i64::try_from(usage.requests()), Ok(after));
}
