//! Several nodes on the same keys: no deadlock, and never over a limit.

use fastrand::Rng;

use super::*;
use crate::store::engine::{Backend, Batch};
use crate::store::{Charge, GiveBack};

const KEYS: [&str; 12] = ["a", "B", "c", "D", "e", "F", "g", "H", "i", "J", "k", "L"];

fn policies() -> Vec<Policy> {
    vec![
        Policy::daily(400).name("quota"),
        Policy::sliding(300, 86_400).name("log"),
        Policy::sliding_counter(500, 86_400).name("counter"),
        Policy::token_bucket(350, 86_400).name("bucket"),
        Policy::fixed(100_000, 86_400)
            .name("blocking")
            .block_after(2, Duration::from_secs(60)),
    ]
}

/// A batch of charges of some policies each, in any order.
fn batch(rng: &mut Rng, policies: &[Policy]) -> Vec<Charge> {
    let only_windows = rng.u8(..3) == 0;
    let charge = |rng: &mut Rng| {
        // By their bytes they sort otherwise than as words.
        let key = Key::new("user", KEYS[rng.usize(..KEYS.len())]);
        let mut chosen: Vec<_> = policies
            .iter()
            .filter(|policy| only_windows == (policy.as_name() == "quota") || rng.bool())
            .collect();
        rng.shuffle(&mut chosen);
        if only_windows || chosen.is_empty() {
            chosen = vec![&policies[0]];
        }
        let parts: Vec<_> = chosen.into_iter().map(|policy| (policy, &key)).collect();
        charge_of(&parts, 1)
    };
    (0..rng.usize(1..24)).map(|_| charge(rng)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_charge_the_same_keys_in_any_order_never_wait_for_each_other() {
    let schema = PostgresServer::new_schema();
    open_in(&schema).await;
    let server = PostgresServer::shared();
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'";
    let before = number(server, deadlocks).await;
    let nodes: Vec<_> = (0..6_u64)
        .map(|seed| {
            let schema = schema.clone();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = { runtime }.enable_all().build().unwrap();
                runtime.block_on(node(seed, &schema))
            })
        })
        .collect();
    let mut admitted = std::collections::HashMap::new();
    for node in nodes {
        for (name, units) in node.join().unwrap() {
            *admitted.entry(name).or_insert(0) += units;
        }
    }
    for ((name, key), units) in admitted {
        let policies = policies();
        let policy = policies.iter().find(|policy| policy.as_name() == name);
        let limit = i64::from(policy.unwrap().limit());
        // A bucket drains a unit in some minutes.
        assert!(units <= limit + 2, "{name} {key}: {units}");
    }
    assert_eq!(number(server, deadlocks).await, before, "deadlocks");
}

/// What a node has admitted, without what it has given back, of each policy and key.
async fn node(seed: u64, schema: &str) -> Vec<((String, String), i64)> {
    let (mut rng, policies) = (Rng::with_seed(seed), policies());
    let mut backend = backend(schema);
    let clock = Clock::System;
    let mut admitted = std::collections::HashMap::new();
    for _ in 0..150 {
        let asks = batch(&mut rng, &policies);
        let these = Batch {
            charges: &asks,
            ahead: &[],
        };
        let charged = backend.charge(these, &clock).await.unwrap();
        let mut backs = Vec::new();
        for (charge, outcome) in asks.iter().zip(charged.answers) {
            let outcome = outcome.unwrap();
            if !outcome.is_admitted() {
                continue;
            }
            let gives_back = rng.u8(..10) == 0;
            for (part, found) in charge.parts.iter().zip(outcome.found.iter()) {
                if part.is_block() {
                    continue;
                }
                let name = part.policy().as_name().to_owned();
                let key = (name, part.key.as_str().to_owned());
                *admitted.entry(key.clone()).or_insert(0) += 1;
                // Of a bucket a part of it may have drained.
                if gives_back && part.policy().as_name() != "bucket" {
                    *admitted.entry(key).or_insert(0) -= 1;
                    backs.push(GiveBack {
                        part: part.clone(),
                        units: 1,
                        from: found.state.taken(part.policy(), outcome.at),
                        taken_at: outcome.at,
                    });
                }
            }
        }
        rng.shuffle(&mut backs);
        let left = backend.give_back(&backs, &clock).await.unwrap();
        assert!(left.is_empty());
    }
    admitted.into_iter().collect()
}

/// The row of a block may outlive that by which it is locked: a charge would write the refusals back that a reset has forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_waits_for_a_charge_whose_lock_is_new() {
    let schema = PostgresServer::new_schema();
    let server = PostgresServer::shared();
    let store = open_in(&schema).await;
    let blocking = Policy::fixed(1, 86_400).name("blocking");
    let blocking = blocking.block_after(2, Duration::from_secs(3_600));
    for policy in [blocking, Policy::sliding(2, 86_400).name("log")] {
        for _ in 0..3 {
            is_admitted(&store, &policy).await;
        }
        let charge = charge_of(&[(&policy, &alice())], 1);
        let part = charge.parts.iter().last().unwrap().clone();
        let counter = part.rule.counter.clone();
        query(server, &format!("DELETE FROM {schema}.rate_limit_locks")).await;
        let mut other = PgConnection::connect(&server.url()).await.unwrap();
        let mut held = other.begin().await.unwrap();
        let lock = format!(
            "INSERT INTO {schema}.rate_limit_locks VALUES ('{counter}', '{}', {})",
            alice().as_str(),
            i64::MAX
        );
        let lock = sqlx::query(AssertSqlSafe(lock));
        lock.execute(&mut *held).await.unwrap();
        let mut node = backend(&schema);
        let reset = crate::store::Reset {
            part,
            with_keys_under: false,
            at: Clock::System.now(),
        };
        let reset = tokio::spawn(async move { node.reset(&reset, None).await });
        let waits = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{schema}\"%reset%'"
        );
        while number(server, &waits).await == 0 {
            assert!(!reset.is_finished(), "{counter}");
            tokio::task::yield_now().await;
        }
        held.commit().await.unwrap();
        reset.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_limit_is_shared_by_all_nodes_exactly() {
    let schema = PostgresServer::new_schema();
    open_in(&schema).await;
    for policy in policies().into_iter().take(4) {
        let policy = policy.name("exact").leases(false);
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (schema, policy) = (schema.clone(), policy.clone());
                tokio::spawn(async move {
                    let store = open_in(&schema).await.clock(&noon());
                    let mut admitted = 0;
                    for _ in 0..100 {
                        admitted += u32::from(is_admitted(&store, &policy).await);
                    }
                    admitted
                })
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += task.await.unwrap();
        }
        assert_eq!(admitted, policy.limit(), "{policy}");
    }
}

/// What was locked is read as it is then, and not as it was when the transaction began.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_whose_transactions_are_serializable_is_shared_exactly_too() {
    let server = PostgresServer::start();
    let isolation = "ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'";
    query(&server, isolation).await;
    PostgresStore::connect(&server.url()).await.unwrap();
    for policy in policies().into_iter().take(4) {
        let policy = policy.name("exact").leases(false);
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let (url, policy) = (server.url(), policy.clone());
                tokio::spawn(async move {
                    let store = PostgresStore::connect(&url).await.unwrap();
                    let store = store.deadline(PATIENCE).clock(&noon());
                    let mut admitted = 0;
                    for _ in 0..200 {
                        admitted += u32::from(is_admitted(&store, &policy).await);
                    }
                    admitted
                })
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += task.await.unwrap();
        }
        assert_eq!(admitted, policy.limit(), "{policy}");
    }
}

/// Numbers that are given before a transaction ends may be seen in another order: the lock keeps them in that of the ends.
#[tokio::test(flavor = "multi_thread")]
async fn who_reads_changes_misses_none_of_nodes_that_write_at_once() {
    let schema = PostgresServer::new_schema();
    let reader = open_in(&schema).await;
    let writers: Vec<_> = (0..6)
        .map(|writer| {
            let schema = schema.clone();
            tokio::spawn(async move {
                let url = PostgresServer::shared().url();
                let mut connection = PgConnection::connect(&url).await.unwrap();
                for n in 0..100 {
                    let sql = format!(
                        "SELECT \"{schema}\".rate_limit_tell_1(0, 'p', '{writer}-{n}', '{writer}-{n}')"
                    );
                    let tell = sqlx::query(AssertSqlSafe(sql));
                    tell.execute(&mut connection).await.unwrap();
                }
            })
        })
        .collect();
    let mut backend = backend(&schema);
    let mut seen = std::collections::HashSet::new();
    let mut last = Some(0);
    let until = clock::monotonic() + PATIENCE;
    while seen.len() < 600 {
        assert!(clock::monotonic() < until, "only {} were seen", seen.len());
        let changes = backend.changes(last).await.unwrap();
        last = Some(changes.last);
        for freed in changes.freed.unwrap() {
            if let crate::store::engine::Freed::Keys { first, .. } = freed {
                assert!(seen.insert(first), "once each");
            }
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    drop(reader);
}
