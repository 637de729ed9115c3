//! The server's clock decides, whatever those of the nodes show.

use super::*;
use crate::store::engine::Backend;

const HOUR: i64 = 3_600_000;

#[tokio::test]
async fn nodes_share_the_servers_window_whatever_it_is() {
    for hours in [-1, 1] {
        let schema = PostgresServer::new_schema();
        let policy = Policy::hourly(50);
        let mut admitted = 0;
        for _ in 0..2 {
            let node = open_in(&schema).await;
            // It is the server that is off, as a node sees it.
            node.move_server_clock(hours * HOUR);
            for _ in 0..100 {
                let before = Clock::System.now().unix_millis() + hours * HOUR;
                let outcome = charge(&node, &policy, 1).await.unwrap();
                admitted += u32::from(outcome.is_admitted());
                let ahead = outcome.at.unix_millis() - before;
                assert!((-2..10_000).contains(&ahead), "{ahead} ms ahead");
            }
            node.close().await.unwrap();
        }
        // An hour may begin in between.
        assert!([50, 100].contains(&admitted), "{admitted}");
    }
}

#[tokio::test]
async fn what_is_decided_in_memory_follows_the_server() {
    let store = open().await;
    store.move_server_clock(5 * HOUR);
    let policy = Policy::fixed(1_000_000, 3_600);
    for _ in 0..500 {
        let outcome = charge(&store, &policy, 1).await.unwrap();
        let ahead = outcome.at.unix_millis() - Clock::System.now().unix_millis();
        let expected = 5 * HOUR - 5_000..5 * HOUR + 1_000;
        assert!(expected.contains(&ahead), "{ahead}");
    }
}

#[tokio::test]
async fn a_server_whose_clock_steps_back_locks_nobody_out() {
    let store = open().await;
    for policy in [
        Policy::sliding(3, 1).name("log"),
        Policy::token_bucket(3, 1).name("bucket"),
    ] {
        let policy = policy.leases(false);
        store.move_server_clock(HOUR);
        assert_eq!(fill(&store, &policy).await, 3);
        store.move_server_clock(0);
        assert!(!is_admitted(&store, &policy).await, "it is still used");
        let refused = charge(&store, &policy, 1).await.unwrap();
        let state = refused.found.first().state;
        let wait = state.fits_after(&policy, 1, refused.at).unwrap();
        assert!(wait <= Duration::from_secs(1), "{wait:?}");
    }
}

/// A node whose own clock was set forward would delete what all count by.
#[tokio::test]
async fn a_sweep_goes_by_the_servers_clock_when_that_is_behind() {
    let schema = PostgresServer::new_schema();
    let store = open_in(&schema).await;
    let server = PostgresServer::shared();
    for policy in [Policy::daily(3).name("quota"), Policy::sliding(3, 3_600)] {
        assert!(is_admitted(&store, &policy.leases(false)).await);
    }
    let end = Clock::System.now().unix_millis() + HOUR;
    let limit = format!("INSERT INTO {schema}.rate_limit_limits VALUES ('p', '', 1, {end})");
    query(server, &format!("{limit} RETURNING 1")).await;
    let later = Timestamp::from_unix_millis(end + 100 * HOUR);
    let mut node = backend(&schema);
    assert_eq!(sweep_all(&mut node, later).await, (0, 4));
    // An instant that is behind the server's clock counts too.
    node.database.time.move_by(200 * HOUR);
    let earlier = Timestamp::from_unix_millis(end - 2 * HOUR);
    assert_eq!(sweep_all(&mut node, earlier).await, (0, 4));
    assert_eq!(sweep_all(&mut node, later).await, (3, 0));
}

/// How many rows it has deleted, and how many were left.
async fn sweep_all(node: &mut Postgres, now: Timestamp) -> (u64, u64) {
    let (mut deleted, mut kept, mut after) = (0, 0, None);
    loop {
        let page = node.sweep(now, after, 100).await.unwrap();
        deleted += page.count;
        kept += page.kept;
        match page.next {
            Some(next) => after = Some(next),
            None => return (deleted, kept),
        }
    }
}

/// Also while all is decided in memory, and no batch tells it.
#[tokio::test]
async fn who_asks_what_became_free_hears_the_servers_clock() {
    let mut node = backend(&PostgresServer::new_schema());
    node.open().await.unwrap();
    node.database.time.move_by(HOUR);
    node.changes(None).await.unwrap();
    let ahead = node.database.clock().now().unix_millis() - Clock::System.now().unix_millis();
    assert!((HOUR - 5_000..HOUR + 5_000).contains(&ahead), "{ahead}");
}

/// The server computes the windows of its own time as the library does.
#[tokio::test]
async fn the_server_and_the_library_have_the_same_windows() {
    let schema = PostgresServer::new_schema();
    open_in(&schema).await;
    let months = Policy::monthly(1);
    let others = [1, 999, 60_000, 7 * 86_400_000, 316_224_000_000_u64];
    let others = others.map(|millis| Policy::try_fixed(1, Duration::from_millis(millis)).unwrap());
    let policies: Vec<_> = others.into_iter().chain([months]).collect();
    let mut instants = vec![i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
    for day in -40_000..40_000_i64 {
        instants.push(day * 43_210_987);
    }
    instants.extend([
        253_399_622_399_999,
        253_399_622_400_000,
        -62_167_219_200_001,
    ]);
    let mut connection = PgConnection::connect(&PostgresServer::shared().url())
        .await
        .unwrap();
    for policy in &policies {
        let sql = format!(
            "SELECT \"{schema}\".rate_limit_window_start_1(at, $2) FROM unnest($1) WITH ORDINALITY AS a (at, place) ORDER BY place"
        );
        let rows = sqlx::query(AssertSqlSafe(sql))
            .bind(&instants)
            .bind(spans::period(policy))
            .fetch_all(&mut connection)
            .await
            .unwrap();
        for (at, row) in instants.iter().zip(rows) {
            let expected = policy.span(Timestamp::from_unix_millis(*at)).start;
            assert_eq!(
                row.get::<i64, _>(0),
                expected.unix_millis(),
                "{policy} at {at}"
            );
        }
    }
}
