//! Leases on a server: fewer round trips than requests, and never over the limit.

use super::*;

#[tokio::test]
async fn most_charges_need_no_round_trip_and_the_limit_is_met_exactly() {
    let schema = PostgresServer::new_schema();
    let calls = Arc::<AtomicU64>::default();
    let store = {
        let Postgres { database } = backend(&schema);
        let counted = database.calls();
        let engine = Engine::new("counted".to_owned(), Postgres { database }, Clock::System);
        let engine = Arc::new(engine);
        let time = Arc::default();
        (PostgresStore { engine, time }, counted)
    };
    let (store, counted) = store;
    let store = store.deadline(PATIENCE).clock(&noon());
    let policy = Policy::fixed(10_000, 60);
    let mut at_once = 0;
    for n in 1..=10_000 {
        let reply = store.engine.charge(&charge_of(&[(&policy, &alice())], 1));
        at_once += u32::from(reply.is_ready());
        let outcome = reply.await.unwrap();
        assert!(outcome.is_admitted());
        let used = outcome.found.first().state.used(&policy, outcome.at);
        assert_eq!(used, n, "each is told what is used by then");
    }
    calls.store(counted.load(Ordering::Relaxed), Ordering::Relaxed);
    let calls = calls.load(Ordering::Relaxed);
    assert!(at_once > 9_000 && calls < 1_000, "{at_once} {calls}");
    assert!(!is_admitted(&store, &policy).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_that_lease_admit_exactly_the_limit_together() {
    let schema = PostgresServer::new_schema();
    open_in(&schema).await;
    for policy in [
        Policy::daily(3_000).name("quota"),
        Policy::sliding_counter(3_000, 86_400).name("counter"),
        Policy::sliding(400, 86_400).name("exact"),
        Policy::token_bucket(400, 86_400).name("bucket"),
    ] {
        let clock = noon();
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let (schema, policy, clock) = (schema.clone(), policy.clone(), clock.clone());
                tokio::spawn(async move {
                    let store = open_in(&schema).await.clock(&clock);
                    let mut admitted = 0;
                    // What another one has leased comes back when it closes.
                    for _ in 0..1_500 {
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
        let last = open_in(&schema).await.clock(&clock);
        admitted += fill(&last, &policy).await;
        assert_eq!(admitted, policy.limit(), "{policy}");
    }
}

#[tokio::test]
async fn what_another_node_frees_is_seen() {
    let schema = PostgresServer::new_schema();
    let (one, other) = (open_in(&schema).await, open_in(&schema).await);
    for policy in [
        Policy::daily(3).name("quota"),
        Policy::sliding(3, 86_400).name("log"),
    ] {
        fill(&one, &policy).await;
        let reset = crate::store::Reset {
            part: crate::store::suite::part_of(&policy, &alice()),
            with_keys_under: false,
            at: other.engine.told_time().await.unwrap(),
        };
        assert_eq!(other.engine.reset(reset).await.unwrap(), 3, "{policy}");
        let until = clock::monotonic() + PATIENCE;
        while !is_admitted(&one, &policy).await {
            assert!(clock::monotonic() < until, "{policy}");
            tokio::task::yield_now().await;
        }
    }
}
