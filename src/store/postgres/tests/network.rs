//! Networks that are slow or stand still, servers that only read, and deadlocks that others make.

use super::*;
use crate::store::networks::Held;

fn policy(limit: u32) -> Policy {
    Policy::daily(limit).name("p").leases(false)
}

async fn network() -> Network {
    Network::before(Place::Port(PostgresServer::shared().port())).await
}

async fn open_by(network: &Network) -> PostgresStore {
    open_at(&url_of(network), &PostgresServer::new_schema()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_late_on_a_slow_way_is_counted_once_at_the_most() {
    let network = network().await;
    let store = open_by(&network).await;
    assert!(is_admitted(&store, &policy(9)).await);
    assert_eq!(network.connections(), 1);
    let store = store.deadline(Duration::from_millis(50));
    // A sweep that is under way is watched by the deadline of before.
    let look = charge_of(&[(&policy(9), &alice())], 1);
    while store.engine.peek(look.clone()).await.is_err() {
        tokio::task::yield_now().await;
    }
    network.hold(Held::All);
    let began = clock::monotonic();
    let late = charge(&store, &policy(9), 1).await.unwrap_err();
    assert!(matches!(late, StoreError::DeadlineExceeded), "{late:?}");
    assert!(clock::monotonic() - began < Duration::from_secs(2));
    network.hold(Held::Nothing);
    let store = store.deadline(PATIENCE);
    assert!(charge_patiently(&store, &policy(9)).await.0.is_admitted());
    assert_eq!(network.connections(), 1, "it went on");
    // The late one was on its way, or waited for what was.
    assert!((2..=3).contains(&used(&store, &policy(9)).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_way_that_stands_still_is_given_up_for_another_one() {
    let network = network().await;
    let store = open_by(&network).await;
    assert!(is_admitted(&store, &policy(9)).await);
    network.hold(Held::All);
    let given_up = charge(&store, &policy(9), 1).await.unwrap_err();
    assert!(given_up.is_transient(), "{given_up:?}");
    network.hold(Held::Nothing);
    assert!(charge_patiently(&store, &policy(9)).await.0.is_admitted());
    assert!(network.connections() >= 2);
    // The one that was given up may have come through when the way was open again.
    assert!((2..=3).contains(&used(&store, &policy(9)).await));
}

#[tokio::test]
async fn a_server_that_only_reads_for_a_while_is_connected_to_again() {
    let server = PostgresServer::start();
    let store = PostgresStore::connect(&server.url()).await.unwrap();
    let store = store.deadline(PATIENCE);
    assert!(is_admitted(&store, &policy(9)).await);
    let set = async |value: &str| {
        let mut connection = PgConnection::connect(&server.url()).await.unwrap();
        for sql in [
            "SET default_transaction_read_only = off".to_owned(),
            format!("ALTER SYSTEM SET default_transaction_read_only = {value}"),
            "SELECT pg_reload_conf()".to_owned(),
        ] {
            let query = sqlx::raw_sql(AssertSqlSafe(sql));
            query.execute(&mut connection).await.unwrap();
        }
    };
    set("on").await;
    let until = clock::monotonic() + PATIENCE;
    while is_ok(&store).await {
        assert!(clock::monotonic() < until, "it goes on writing");
    }
    set("off").await;
    charge_patiently(&store, &policy(1_000_000)).await;
}

async fn is_ok(store: &PostgresStore) -> bool {
    charge(store, &policy(1_000_000), 1).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_that_somebody_else_makes_ends_with_an_answer() {
    // Another test looks that the shared one has none.
    let server = PostgresServer::start();
    let store = PostgresStore::connect(&server.url()).await.unwrap();
    let store = store.deadline(PATIENCE).clock(&noon());
    let key = alice();
    let policies = ["a", "b"].map(|name| Policy::daily(9).name(name).leases(false));
    let both = charge_of(&[(&policies[0], &key), (&policies[1], &key)], 1);
    assert!(store.engine.charge(&both).await.unwrap().is_admitted());
    let mut other = PgConnection::connect(&server.url()).await.unwrap();
    let mut held = other.begin().await.unwrap();
    let lock = |name: &str| {
        let sql = format!("SELECT FROM rate_limit_windows WHERE policy LIKE '{name};%' FOR UPDATE");
        sqlx::query(AssertSqlSafe(sql))
    };
    lock("b").execute(&mut *held).await.unwrap();
    let charged = {
        let (store, both) = (store.clone(), both.clone());
        tokio::spawn(async move { store.engine.charge(&both).await })
    };
    // It has the first row, and waits for the second one.
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    let until = clock::monotonic() + PATIENCE;
    while number(&server, waits).await == 0 {
        assert!(clock::monotonic() < until);
    }
    // Either of the two may be the one that is ended.
    let _ = lock("a").execute(&mut *held).await;
    held.rollback().await.unwrap();
    assert!(charged.await.unwrap().unwrap().is_admitted());
    for policy in &policies {
        assert_eq!(used(&store, policy).await, 2, "once each");
    }
}
