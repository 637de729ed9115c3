//! Servers that forget scripts, are restarted, stand still, or have no memory.

use std::io::ErrorKind;

use super::*;
use crate::store::redis::RedisOpenError;
use crate::store::redis::failure::certain;

/// Each write is on the disk before it is answered.
const DURABLE: &str = "--appendonly yes --appendfsync always";

fn policy(limit: u32) -> Policy {
    Policy::daily(limit).name("p").leases(false)
}

#[tokio::test]
async fn scripts_are_loaded_again_when_the_server_has_forgotten_them() {
    let server = RedisServer::start("");
    let store = open(&server, "t:").await;
    for _ in 0..3 {
        assert!(is_admitted(&store, &policy(10)).await);
        server.cli(&["SCRIPT", "FLUSH"]);
    }
    assert_eq!(used(&store, &policy(10)).await, 3);
}

#[tokio::test]
async fn a_restarted_server_goes_on_with_what_it_has_stored() {
    let mut server = RedisServer::start(DURABLE);
    let store = open(&server, "t:").await;
    for _ in 0..3 {
        assert!(is_admitted(&store, &policy(5)).await);
    }
    server.restart();
    let (outcome, errors) = charge_patiently(&store, &policy(5)).await;
    assert!(outcome.is_admitted());
    let admitted = 4 + fill(&store, &policy(5)).await;
    // A charge whose answer was lost may have been counted.
    let least = 5_u32.saturating_sub(u32::try_from(errors).unwrap());
    assert!(
        (least..=5).contains(&admitted),
        "{admitted} with {errors} errors"
    );
}

#[tokio::test]
async fn a_server_that_is_gone_is_an_error_at_once_and_no_charge_waits_for_it() {
    let mut server = RedisServer::start(DURABLE);
    let store = open(&server, "t:").await;
    assert!(is_admitted(&store, &policy(5)).await);
    server.stop();
    let began = clock::monotonic();
    for _ in 0..20 {
        let error = charge(&store, &policy(5), 1).await.unwrap_err();
        assert!(error.is_transient() || !format!("{error:?}").is_empty());
    }
    assert!(clock::monotonic() - began < Duration::from_secs(3));
    assert!(!store.health().is_answering());
    server.restart();
    let (outcome, _) = charge_patiently(&store, &policy(5)).await;
    assert!(outcome.is_admitted());
    assert!(store.health().is_answering());
}

#[tokio::test(flavor = "multi_thread")]
async fn under_load_a_restart_loses_nothing_and_doubles_nothing_but_what_was_in_doubt() {
    let mut server = RedisServer::start(DURABLE);
    let store = open(&server, "t:").await;
    let policy = policy(u32::MAX);
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let (store, policy) = (store.clone(), policy.clone());
            tokio::spawn(async move {
                let (mut admitted, mut errors) = (0_u64, 0_u64);
                let until = clock::monotonic() + PATIENCE;
                // Some before the restart, and some after.
                while admitted < 300 && clock::monotonic() < until {
                    match charge(&store, &policy, 1).await {
                        Ok(outcome) => admitted += u64::from(outcome.is_admitted()),
                        Err(_) => errors += 1,
                    }
                    tokio::task::yield_now().await;
                }
                (admitted, errors)
            })
        })
        .collect();
    for _ in 0..3 {
        server.restart();
    }
    let (mut admitted, mut errors) = (0, 0);
    for task in tasks {
        let (more, failed) = task.await.unwrap();
        admitted += more;
        errors += failed;
    }
    let used = used(&store, &policy).await;
    assert!(admitted >= 16 * 300, "{admitted}");
    assert!(
        (admitted..=admitted + errors).contains(&used),
        "{used} {admitted} {errors}"
    );
}

#[tokio::test]
async fn a_server_that_stands_still_is_waited_for_until_the_deadline() {
    let server = RedisServer::start("");
    let store = open(&server, "t:").await;
    let store = store.deadline(Duration::from_millis(100));
    assert!(charge_patiently(&store, &policy(9)).await.0.is_admitted());
    server.signal("STOP");
    let began = clock::monotonic();
    let error = charge(&store, &policy(9), 1).await.unwrap_err();
    assert!(matches!(error, StoreError::DeadlineExceeded), "{error:?}");
    let waited = clock::monotonic() - began;
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    server.signal("CONT");
    let (outcome, _) = charge_patiently(&store, &policy(9)).await;
    assert!(outcome.is_admitted());
    // What was asked in between may have been counted, and was not told as admitted.
    assert!((2..=9).contains(&used(&store, &policy(9)).await));
}

#[tokio::test]
async fn a_server_without_memory_admits_nothing_and_loses_nothing() {
    let server = RedisServer::start("");
    let store = open(&server, "t:").await.clock(&noon());
    let policies = [
        policy(9),
        Policy::sliding(9, 60).name("log"),
        Policy::token_bucket(9, 60).name("bucket"),
    ];
    for policy in &policies {
        assert!(is_admitted(&store, policy).await);
    }
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    for policy in &policies {
        let error = charge(&store, policy, 1).await.unwrap_err();
        assert!(error.is_transient(), "{error:?}");
    }
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    for policy in &policies {
        let (outcome, _) = charge_patiently(&store, policy).await;
        assert!(outcome.is_admitted());
        assert_eq!(used(&store, policy).await, 2, "{policy}");
    }
}

#[tokio::test]
async fn a_key_of_somebody_else_is_an_error_and_no_panic() {
    let (server, prefix) = (RedisServer::shared(), RedisServer::prefix());
    let store = open(server, &prefix).await;
    let policy = Policy::sliding(9, 60).name("p");
    server.cli(&["SET", &format!("{prefix}p;sliding;60s:{{user:alice}}"), "x"]);
    let error = charge(&store, &policy, 1).await.unwrap_err();
    assert!(!error.is_transient() && !error.to_string().contains("alice"));
}

#[tokio::test]
async fn what_is_no_redis_is_said_so_without_a_password() {
    let of = async |url: &str| RedisStore::connect(url).await.unwrap_err();
    assert_eq!(of("http://x").await.name(), "invalid-redis-url");
    assert_eq!(of("rediss://h:x").await.name(), "invalid-redis-url");
    for url in ["rediss://user:secret@127.0.0.1:1/0", "valkeys://127.0.0.1"] {
        let without_tls = of(url).await;
        assert_eq!(without_tls.name(), "redis-without-tls");
        assert!(!format!("{without_tls:?}").contains("secret"));
    }
    let nobody = of("redis://user:secret@127.0.0.1:1").await;
    assert_eq!(nobody.name(), "redis-unreachable");
    assert!(!format!("{nobody:?}").contains("secret"), "{nobody:?}");
    let server = RedisServer::start("--requirepass open");
    assert_eq!(of(&server.url()).await.name(), "redis-not-allowed");
    let wrong = of(&format!("{}?pass=secret", server.url())).await;
    assert_eq!(wrong.name(), "redis-not-allowed");
    assert!(!format!("{wrong:?}").contains("secret"), "{wrong:?}");
    let store = RedisStore::connect(&format!("{}?pass=open", server.url())).await;
    let name = store.unwrap().health().name().to_owned();
    assert!(!name.contains("open"), "{name}");
}

#[test]
fn a_certificate_that_is_not_trusted_is_told_from_a_server_that_does_not_answer() {
    let of = |kind| {
        let error = redis::RedisError::from(std::io::Error::new(kind, "invalid peer certificate"));
        RedisOpenError::from_store(certain(error)).name()
    };
    assert_eq!(of(ErrorKind::InvalidData), "redis-tls-failed");
    assert_eq!(of(ErrorKind::ConnectionRefused), "redis-unreachable");
}

#[tokio::test]
async fn a_replica_is_an_error_and_the_next_call_connects_anew() {
    let server = RedisServer::start("");
    let store = open(&server, "t:").await.clock(&noon());
    assert!(is_admitted(&store, &policy(9)).await);
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    let connections = || {
        let clients = server.cli(&["CLIENT", "LIST"]);
        let others = clients.lines().filter(|line| !line.contains("cmd=client"));
        let ids = others.map(|line| line.split(' ').next().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    let before = connections();
    for _ in 0..2 {
        let error = charge(&store, &policy(9), 1).await.unwrap_err();
        assert!(error.is_transient(), "{error:?}");
    }
    let after = connections();
    assert!(
        before.iter().all(|id| !after.contains(id)),
        "{before:?} {after:?}"
    );
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    let (outcome, _) = charge_patiently(&store, &policy(9)).await;
    assert!(outcome.is_admitted());
    assert_eq!(
        used(&store, &policy(9)).await,
        2,
        "nothing was counted in between"
    );
}

/// The rule is that of `docs/redis.md`.
#[tokio::test]
async fn a_user_that_may_do_no_more_than_is_needed_can_do_it() {
    let page = include_str!("../../../../docs/redis.md");
    let (_, rule) = page.split_once("ACL SETUSER ").unwrap();
    let rule = rule.lines().next().unwrap();
    let server = RedisServer::start("");
    let mut arguments = vec!["ACL", "SETUSER"];
    arguments.extend(rule.split(' '));
    assert_eq!(server.cli(&arguments), "OK");
    let url = format!("{}?user=limits&pass=secret", server.url());
    let store = RedisStore::connect(&url).await.unwrap().clock(&noon());
    for policy in [
        Policy::fixed(2, 60),
        Policy::sliding(2, 60),
        Policy::token_bucket(2, 60).block_for(Duration::from_secs(60)),
    ] {
        assert_eq!(fill(&store, &policy).await, 2, "{policy}");
        let reset = crate::store::Reset {
            part: crate::store::suite::part_of(&policy, &alice()),
            with_keys_under: true,
            at: store.engine.now(),
        };
        assert_eq!(store.engine.reset(reset).await.unwrap(), 2, "{policy}");
    }
    store.close().await.unwrap();
}
