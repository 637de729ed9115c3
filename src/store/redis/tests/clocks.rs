//! The server's clock decides, whatever those of the nodes show.

use super::*;
use crate::clock::Clock;
use crate::store::{NewLimit, SetLimit};

const HOUR: i64 = 3_600_000;

#[tokio::test]
async fn nodes_whose_clocks_are_an_hour_off_share_the_servers_window() {
    for hours in [-1, 1] {
        let (server, prefix) = (RedisServer::shared(), RedisServer::prefix());
        let policy = Policy::hourly(50);
        let mut admitted = 0;
        for _ in 0..2 {
            let node = open(server, &prefix).await;
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
    let store = open(RedisServer::shared(), &RedisServer::prefix()).await;
    store.move_server_clock(5 * HOUR);
    let policy = Policy::fixed(1_000_000, 3_600);
    for _ in 0..2_000 {
        let outcome = charge(&store, &policy, 1).await.unwrap();
        let ahead = outcome.at.unix_millis() - Clock::System.now().unix_millis();
        let expected = 5 * HOUR - 5_000..5 * HOUR + 1_000;
        assert!(expected.contains(&ahead), "{ahead}");
    }
}

/// A server whose clock has stepped back is not swept by what the node still takes the time for.
#[tokio::test]
async fn a_sweep_takes_no_limit_that_has_not_ended_by_the_servers_clock() {
    let (server, prefix) = (RedisServer::shared(), RedisServer::prefix());
    let store = open(server, &prefix).await;
    store.move_server_clock(HOUR);
    let policy = Policy::daily(10).name("api").leases(false);
    charge(&store, &policy, 1).await.unwrap();
    let end = Clock::System.now().unix_millis() + HOUR / 2;
    let set = SetLimit {
        filed_under: "api".to_owned(),
        key: Some(alice()),
        limit: Some(NewLimit {
            units: Some(7),
            ends_at: Some(Timestamp::from_unix_millis(end)),
        }),
        now: Clock::System.now(),
    };
    store.engine.set_limit(set).await.unwrap();
    store.move_server_clock(0);
    store.engine.sweep().await.unwrap();
    let name = format!("{prefix}{{shared}}:limits:api");
    assert_eq!(
        server.cli(&["HGET", &name, "user:alice"]),
        format!("7 {end}")
    );
}

#[tokio::test]
async fn the_server_is_heard_when_it_tells_what_became_free() {
    let store = open(RedisServer::shared(), &RedisServer::prefix()).await;
    let policy = Policy::fixed(1_000_000, 3_600);
    // It leases, so that it looks for what became free.
    for _ in 0..100 {
        charge(&store, &policy, 1).await.unwrap();
    }
    store.move_server_clock(HOUR);
    let until = clock::monotonic() + PATIENCE;
    while store.engine.now().unix_millis() < Clock::System.now().unix_millis() + HOUR / 2 {
        assert!(clock::monotonic() < until, "the clock was not heard");
        tokio::task::yield_now().await;
    }
}
