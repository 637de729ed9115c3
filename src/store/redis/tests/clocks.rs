//! The server's clock decides, whatever those of the nodes show.

use super::*;
use crate::clock::Clock;

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
            node.set_server_offset(hours * HOUR);
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
    store.set_server_offset(5 * HOUR);
    let policy = Policy::fixed(1_000_000, 3_600);
    for _ in 0..2_000 {
        let outcome = charge(&store, &policy, 1).await.unwrap();
        let ahead = outcome.at.unix_millis() - Clock::System.now().unix_millis();
        let expected = 5 * HOUR - 5_000..5 * HOUR + 1_000;
        assert!(expected.contains(&ahead), "{ahead}");
    }
}
