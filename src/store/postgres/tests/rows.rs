//! What is in the tables.

use super::*;
use crate::store::engine::Backend;
use crate::store::suite::part_of;
use crate::store::{GiveBack, Reset};

#[tokio::test]
async fn what_is_stored_can_be_read_in_a_shell() {
    let server = PostgresServer::shared();
    let schema = PostgresServer::new_schema();
    let store = open_in(&schema).await;
    let policy = Policy::fixed(2, 3_600).name("api").leases(false);
    fill(&store, &policy).await;
    let rows = query(
        server,
        &format!(
            "SELECT policy, key, used, \"limit\", denied, kept_until > window_start
            FROM {schema}.rate_limit_usage"
        ),
    )
    .await;
    let row = &rows[0];
    assert_eq!(row.get::<String, _>(0), "api;fixed;3600s");
    assert_eq!(row.get::<String, _>(1), "user:alice");
    let numbers = [2, 3, 4].map(|column| row.get::<i64, _>(column));
    assert_eq!(numbers, [2, 2, 1]);
    assert!(row.get::<bool, _>(5));
}

/// The totals of all later events hang on one that is given back: a page of them at a time.
#[tokio::test]
async fn a_long_log_takes_units_back_a_page_at_a_time() {
    let schema = PostgresServer::new_schema();
    let store = open_in(&schema).await;
    let clock = noon();
    let store = store.clock(&clock);
    let policy = Policy::sliding(1_000, 3_600).name("log").leases(false);
    let mut first = None;
    for _ in 0..50 {
        let outcome = charge(&store, &policy, 2).await.unwrap();
        first.get_or_insert(outcome);
        clock.advance(Duration::from_millis(1));
    }
    let first = first.unwrap();
    let mut backend = backend(&schema);
    let by = Clock::Manual(clock.clone());
    let mut left = vec![GiveBack {
        part: part_of(&policy, &alice()),
        units: 2,
        from: first.found.first().state.taken(&policy, first.at),
        taken_at: first.at,
    }];
    let mut calls = 0;
    while !left.is_empty() {
        left = give_back::give_back(&mut backend.database, &left, &by, 20)
            .await
            .unwrap();
        calls += 1;
        assert!(used(&store, &policy).await >= 98, "never less than is used");
    }
    assert_eq!((calls, used(&store, &policy).await), (3, 98));
}

#[tokio::test]
async fn a_sweep_leaves_what_others_have_locked_and_is_one_nodes_at_a_time() {
    let server = PostgresServer::shared();
    let schema = PostgresServer::new_schema();
    let store = open_in(&schema).await.clock(&noon());
    for name in ["a", "b", "c"] {
        is_admitted(&store, &Policy::fixed(3, 60).name(name)).await;
    }
    let mut other = PgConnection::connect(&server.url()).await.unwrap();
    let mut held = other.begin().await.unwrap();
    let lock =
        format!("SELECT FROM {schema}.rate_limit_windows WHERE policy LIKE 'b;%' FOR UPDATE");
    sqlx::query(AssertSqlSafe(lock))
        .execute(&mut *held)
        .await
        .unwrap();
    let mut backend = backend(&schema);
    backend.database.time.give();
    let later = Timestamp::from_unix_millis(NOON + 86_400_000);
    let page = backend.sweep(later, None, 100).await.unwrap();
    assert_eq!((page.count, page.kept), (2, 1));
    held.rollback().await.unwrap();
    let mut held = other.begin().await.unwrap();
    let lock = format!("SELECT pg_advisory_xact_lock(1953459299, hashtext('sweep of {schema}'))");
    sqlx::query(AssertSqlSafe(lock))
        .execute(&mut *held)
        .await
        .unwrap();
    assert_eq!(backend.sweep(later, None, 100).await.unwrap().count, 0);
    held.rollback().await.unwrap();
    assert_eq!(backend.sweep(later, None, 100).await.unwrap().count, 1);
}

#[tokio::test]
async fn a_reset_and_a_sweep_at_the_ends_of_a_policy_touch_no_other() {
    let store = open().await.clock(&noon());
    let key = Key::new("user", "'; DROP TABLE rate_limit_windows; -- $$ % \\ ö");
    let policies = [
        Policy::fixed(3, 60),
        Policy::sliding(3, 60),
        Policy::token_bucket(3, 60),
    ];
    for policy in &policies {
        let charge = charge_of(&[(policy, &key)], 3);
        assert!(store.engine.charge(&charge).await.unwrap().is_admitted());
        let reset = Reset {
            part: part_of(policy, &key),
            with_keys_under: true,
            at: Timestamp::from_unix_millis(NOON),
        };
        assert_eq!(store.engine.reset(reset).await.unwrap(), 3, "{policy}");
        assert!(store.engine.charge(&charge).await.unwrap().is_admitted());
    }
}

#[tokio::test]
async fn a_key_that_is_too_long_fails_alone() {
    let schema = PostgresServer::new_schema();
    let mut backend = backend(&schema);
    let mut long = Key::new("user", 1);
    while long.as_str().len() <= 2_000 {
        long = long.and("part", "x".repeat(60));
    }
    let policy = Policy::fixed(3, 60);
    let asks = [&alice(), &long, &alice()].map(|key| charge_of(&[(&policy, key)], 1));
    let batch = crate::store::engine::Batch {
        charges: &asks,
        ahead: &[],
    };
    let charged = backend.charge(batch, &Clock::System).await.unwrap();
    let answers = charged.answers.iter();
    let admitted = answers.map(|answer| answer.as_ref().is_ok_and(Outcome::is_admitted));
    assert_eq!(admitted.collect::<Vec<_>>(), [true, false, true]);
    // What is just short enough goes into the tables.
    let mut longest = Key::new("user", 1);
    while longest.as_str().len() < 1_900 {
        longest = longest.and("part", format!("{:x<50}", fastrand::u64(..)));
    }
    for policy in [policy, Policy::sliding(3, 60), Policy::token_bucket(3, 60)] {
        let asks = [charge_of(&[(&policy, &longest)], 1)];
        let batch = crate::store::engine::Batch {
            charges: &asks,
            ahead: &[],
        };
        let charged = backend.charge(batch, &Clock::System).await.unwrap();
        assert!(charged.answers[0].as_ref().unwrap().is_admitted());
    }
}

/// What was charged must not be an error for what is only told beside it.
#[tokio::test]
async fn a_batch_that_is_stored_is_answered_also_when_no_wait_is_found() {
    let schema = PostgresServer::new_schema();
    let clock = noon();
    let store = open_in(&schema).await.clock(&clock);
    let policy = Policy::sliding(5, 60).leases(false);
    for _ in 0..4 {
        assert!(is_admitted(&store, &policy).await);
        clock.advance(Duration::from_secs(1));
    }
    let find = format!("DROP FUNCTION {schema}.rate_limit_find_1");
    query(PostgresServer::shared(), &find).await;
    let refused = charge(&store, &policy, 3).await.unwrap();
    let state = refused.found.first().state;
    // Until all has left, which is never too short.
    let wait = state.fits_after(&policy, 3, refused.at);
    assert_eq!(wait, Some(Duration::from_secs(59)));
    assert!(is_admitted(&store, &policy).await);
    assert_eq!(used(&store, &policy).await, 5);
}
