//! The keys in the server: what they are called, and when they end.

use super::*;
use crate::store::suite::part_of;
use crate::store::{LimitsAsk, NewLimit, Reset, SetLimit, Which};

const MINUTE: Duration = Duration::from_secs(60);

/// A policy of each algorithm, and one that blocks.
fn policies() -> [Policy; 6] {
    [
        Policy::fixed(2, 60).name("fixed"),
        Policy::sliding(2, 60).name("sliding"),
        Policy::sliding_counter(2, 60).name("counter"),
        Policy::token_bucket(2, 60).name("bucket"),
        Policy::monthly(2).name("monthly"),
        Policy::fixed(2, 60).name("blocking").block_for(MINUTE),
    ]
    .map(|policy| policy.leases(false))
}

fn keys(server: &RedisServer, prefix: &str) -> Vec<String> {
    let keys = server.cli(&["KEYS", &format!("{prefix}*")]);
    let mut keys: Vec<_> = keys.lines().map(str::to_owned).collect();
    keys.sort();
    keys
}

#[tokio::test]
async fn names_can_be_read_and_all_of_a_key_are_in_one_slot() {
    let (server, prefix) = (RedisServer::shared(), RedisServer::prefix());
    let store = open(server, &prefix).await.clock(&noon());
    for policy in policies() {
        assert_eq!(fill(&store, &policy).await, 2, "{policy}");
    }
    let expected = [
        format!("blocking;fixed;60s:{{user:alice}}:{NOON}"),
        "blocking;fixed;60s;block:{user:alice}".to_owned(),
        "bucket;bucket;60s:{user:alice}".to_owned(),
        format!("counter;counter;60s:{{user:alice}}:{NOON}"),
        format!("fixed;fixed;60s:{{user:alice}}:{NOON}"),
        // January 2083.
        "monthly;calendar;month:{user:alice}:3565987200000".to_owned(),
        "sliding;sliding;60s:{user:alice}".to_owned(),
    ];
    let expected: Vec<_> = expected.map(|name| format!("{prefix}{name}")).into();
    assert_eq!(keys(server, &prefix), expected);
    let window = server.cli(&["HGETALL", &expected[4]]);
    assert!(
        window.starts_with("used\n2\ndenied\n1\nepoch\n"),
        "{window}"
    );
}

#[tokio::test]
async fn every_counter_ends_by_itself_also_when_it_was_found_without_an_end() {
    let (server, prefix) = (RedisServer::shared(), RedisServer::prefix());
    let store = open(server, &prefix).await;
    let assert_all_end = |when: &str| {
        // What others are told has an end of its own with each change.
        let keys = keys(server, &prefix).into_iter();
        for key in keys.filter(|key| when != "as it is found" || !key.contains("{shared}")) {
            let left: i64 = server.cli(&["PTTL", &key]).parse().unwrap();
            let month = 62 * 86_400_000;
            let longest = if key.contains("month") {
                month
            } else {
                1_000_000_000_000
            };
            assert!((1..=longest).contains(&left), "{key} {when}: {left}");
        }
    };
    for is_full in [false, true] {
        let times = if is_full { 4 } else { 1 };
        for policy in policies() {
            for _ in 0..times {
                let _ = charge(&store, &policy, 1).await.unwrap();
            }
        }
        assert_all_end("as it is made");
        for key in keys(server, &prefix) {
            server.cli(&["PERSIST", &key]);
        }
        for policy in policies() {
            let _ = charge(&store, &policy, 1).await.unwrap();
        }
        assert_all_end("as it is found");
        if !is_full {
            for policy in policies() {
                let reset = Reset {
                    part: part_of(&policy, &alice()),
                    with_keys_under: true,
                    at: store.engine.now(),
                };
                store.engine.reset(reset).await.unwrap();
            }
            assert_all_end("as it is reset");
        }
    }
}

#[tokio::test]
async fn an_end_is_no_sooner_than_what_is_counted() {
    let (server, prefix) = (RedisServer::shared(), RedisServer::prefix());
    let store = open(server, &prefix).await.clock(&noon());
    let least = [
        (Policy::fixed(5, 60), 120_000),
        (Policy::sliding(5, 60), 70_000),
        (Policy::sliding_counter(5, 60), 130_000),
        (Policy::token_bucket(5, 60), 70_000),
    ];
    for (policy, millis) in least {
        assert_eq!(fill(&store, &policy).await, 5);
        let counter = policy.counter_name();
        let [key] = &*keys(server, &format!("{prefix}{counter}")) else {
            panic!("{policy} has other keys");
        };
        let left: i64 = server.cli(&["PTTL", key]).parse().unwrap();
        assert!(
            (millis - 5_000..millis + 20_000).contains(&left),
            "{policy}: {left}"
        );
    }
}

#[tokio::test]
async fn limits_that_are_set_stay_and_can_be_read_by_an_operator() {
    let (server, prefix) = (RedisServer::shared(), RedisServer::prefix());
    let store = open(server, &prefix).await.clock(&noon());
    let set = |key: Option<Key>, units| SetLimit {
        filed_under: "api".to_owned(),
        key,
        limit: Some(NewLimit {
            units,
            ends_at: None,
        }),
        now: store.engine.now(),
    };
    store.engine.set_limit(set(None, Some(7))).await.unwrap();
    store
        .engine
        .set_limit(set(Some(alice()), None))
        .await
        .unwrap();
    let name = format!("{prefix}{{shared}}:limits:api");
    assert_eq!(server.cli(&["HGET", &name, ""]), "7");
    assert_eq!(server.cli(&["HGET", &name, "user:alice"]), "none");
    assert_eq!(server.cli(&["PTTL", &name]), "-1");
    // One that an operator sets by hand holds as well.
    server.cli(&["HSET", &name, "user:alice", "1"]);
    let policy = Policy::fixed(100, 60).name("api").leases(false);
    assert_eq!(fill(&store, &policy).await, 1);
}

#[tokio::test]
async fn a_set_limit_that_is_none_is_as_if_nothing_were_set() {
    let (server, prefix) = (RedisServer::shared(), RedisServer::prefix());
    let store = open(server, &prefix).await.clock(&noon());
    let name = format!("{prefix}{{shared}}:limits:api");
    let policy = Policy::fixed(5, 60).name("api").leases(false);
    let wrong = [
        "-5",
        "10/min",
        "abc",
        "",
        "4294967296",
        "1e3",
        "0x10",
        "+7",
        "7 soon",
        "7-1",
    ];
    for text in wrong {
        server.cli(&["HSET", &name, "user:alice", text]);
        assert_eq!(fill(&store, &policy).await, 5, "{text}");
        let ask = LimitsAsk {
            filed_under: "api".to_owned(),
            which: Which::Of(Some(alice())),
            now: store.engine.now(),
        };
        assert!(store.engine.limits(ask).await.unwrap().is_empty(), "{text}");
        server.cli(&["HSET", &name, "user:alice", "6"]);
        assert_eq!(fill(&store, &policy).await, 1, "{text}");
        let counters = server.cli(&["--scan", "--pattern", &format!("{prefix}api;*")]);
        server.cli(&["DEL", &counters]);
    }
    server.cli(&["HSET", &name, "user:alice", "none"]);
    for _ in 0..10 {
        assert!(is_admitted(&store, &policy).await);
    }
}

#[tokio::test]
async fn a_prefix_keeps_stores_apart() {
    let server = RedisServer::shared();
    let policy = Policy::fixed(3, 60).leases(false);
    for _ in 0..2 {
        let store = open(server, &RedisServer::prefix()).await;
        assert_eq!(fill(&store, &policy).await, 3);
    }
    for prefix in ["{app}:", "a\nb", &"x".repeat(65)] {
        let error = RedisStore::connect_with_prefix(&server.url(), prefix).await;
        assert_eq!(error.unwrap_err().name(), "invalid-prefix");
    }
}
