//! Leases on a server: fewer round trips than requests, never over the limit, and nothing spent of a counter that was lost.

use super::*;

/// How often the server has run a script.
fn calls(server: &RedisServer) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let line = stats
        .lines()
        .find(|line| line.starts_with("cmdstat_evalsha:"));
    let calls = line.and_then(|line| line.split(['=', ',']).nth(1));
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test]
async fn most_charges_need_no_round_trip_and_the_limit_is_met_exactly() {
    let server = RedisServer::start("");
    let store = open(&server, "t:").await.clock(&noon());
    let policy = Policy::fixed(10_000, 60);
    let before = calls(&server);
    let mut at_once = 0;
    for n in 1..=10_000 {
        let reply = store.engine.charge(&charge_of(&[(&policy, &alice())], 1));
        at_once += u32::from(reply.is_ready());
        let outcome = reply.await.unwrap();
        assert!(outcome.is_admitted());
        let used = outcome.found.first().state.used(&policy, outcome.at);
        assert_eq!(used, n, "each is told what is used by then");
    }
    let calls = calls(&server) - before;
    assert!(at_once > 9_000 && calls < 1_000, "{at_once} {calls}");
    assert!(!is_admitted(&store, &policy).await);
}

/// A script of thousands of charges would hold up all others of the server.
#[tokio::test]
async fn many_charges_at_once_are_several_calls_and_answered_in_order() {
    let server = RedisServer::start("");
    let store = open(&server, "t:").await.clock(&noon());
    let policy = Policy::fixed(2_999, 60).leases(false);
    let before = calls(&server);
    let replies: Vec<_> = (0..3_000)
        .map(|_| store.engine.charge(&charge_of(&[(&policy, &alice())], 1)))
        .collect();
    let mut used = Vec::new();
    for reply in replies {
        let outcome = reply.await.unwrap();
        used.push(outcome.found.first().state.used(&policy, outcome.at));
    }
    let expected: Vec<u64> = (1..=2_999).chain([2_999]).collect();
    assert_eq!(used, expected);
    let calls = calls(&server) - before;
    assert!((6..100).contains(&calls), "{calls}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_that_lease_admit_exactly_the_limit_together() {
    let (server, prefix) = (RedisServer::shared(), RedisServer::prefix());
    for policy in [
        Policy::daily(5_000).name("quota"),
        Policy::sliding_counter(5_000, 86_400).name("counter"),
        Policy::sliding(500, 86_400).name("exact"),
        Policy::token_bucket(500, 86_400).name("bucket"),
    ] {
        let clock = noon();
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let (prefix, policy, clock) = (prefix.clone(), policy.clone(), clock.clone());
                tokio::spawn(async move {
                    let store = open(server, &prefix).await.clock(&clock);
                    let mut admitted = 0;
                    // What another one has leased comes back when it closes.
                    for _ in 0..3_000 {
                        admitted += u32::from(is_admitted(&store, &policy).await);
                    }
                    store.close().await.unwrap();
                    admitted
                })
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += task.await.unwrap();
        }
        let last = open(server, &prefix).await.clock(&clock);
        admitted += fill(&last, &policy).await;
        assert_eq!(admitted, policy.limit(), "{policy}");
    }
}

#[tokio::test]
async fn what_was_leased_of_a_lost_counter_is_not_spent_beyond_the_next_answer() {
    let server = RedisServer::start("");
    let store = open(&server, "t:").await.clock(&noon());
    let policy = Policy::fixed(1_000, 60);
    for _ in 0..200 {
        assert!(is_admitted(&store, &policy).await);
    }
    server.cli(&["FLUSHALL"]);
    // What was leased by then passes at the most, and then what a new counter has.
    let admitted = fill(&store, &policy).await;
    assert!(
        (1_000..=1_000 + 3 * 800 / 16).contains(&admitted),
        "{admitted}"
    );
    store.close().await.unwrap();
    let other = open(&server, "t:").await.clock(&noon());
    assert!(
        !is_admitted(&other, &policy).await,
        "nothing of another counter goes back"
    );
}
