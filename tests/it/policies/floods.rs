//! Floods of requests that one of several policies refuses.

use std::path::Path;
use std::time::Duration;

use http::StatusCode;
use sqlx::{Connection, Executor, Row, SqliteConnection};
use tollgate::{Key, Limiter, Policies, Policy, RateLimitLayer, SqliteStore, Verdict, key};
use tower::Layer;

use crate::support::{Answer, CLIENT, LONG, clock, from, hello, send, sqlite};

/// 2 for all together, and 9 for each client.
fn all_and_each(store: &SqliteStore) -> RateLimitLayer {
    RateLimitLayer::new(Policy::fixed(9, LONG).name("each"))
        .key(key::header(CLIENT))
        .and(Policy::fixed(2, LONG).name("all"), key::constant("all"))
        .store(store)
}

async fn open(path: &Path) -> SqliteStore {
    let store = SqliteStore::open(path).await.unwrap();
    store.deadline(Duration::from_mins(1))
}

/// Counts the transactions that change counters from now on.
async fn watched(path: &Path) -> SqliteConnection {
    let url = format!("sqlite://{}", path.display());
    let mut other = SqliteConnection::connect(&url).await.unwrap();
    let count = "CREATE TABLE seen (n INTEGER);
        CREATE TRIGGER see_new AFTER INSERT ON rate_limit_windows BEGIN INSERT INTO seen VALUES (1); END;
        CREATE TRIGGER see AFTER UPDATE ON rate_limit_windows BEGIN INSERT INTO seen VALUES (1); END";
    other.execute(count).await.unwrap();
    other
}

#[tokio::test]
async fn many_clients_that_a_shared_policy_refuses_hardly_reach_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let store = open(&path).await;
    let layer = all_and_each(&store);
    let service = layer.layer(hello());
    for status in [200, 200, 429] {
        assert_eq!(send(&service, from("alice")).await.status, status);
    }
    let mut other = watched(&path).await;
    for n in 0..5_000 {
        let answer = send(&service, from(format!("client-{n}"))).await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    }
    let keys = [Key::header(CLIENT, "client-7"), Key::constant("all")];
    let seen = layer.limiter().peek(&keys).await.unwrap();
    let attempts: Vec<_> = seen.verdicts().map(Verdict::attempts).collect();
    assert_eq!(attempts, [0, 5_003], "each is told");
    store.close().await.unwrap();
    let row = other
        .fetch_one("SELECT count(*), (SELECT sum(denied) FROM rate_limit_windows) FROM seen")
        .await
        .unwrap();
    let (seen, denied): (i64, i64) = (row.get(0), row.get(1));
    assert!(seen < 200, "{seen}");
    assert_eq!(denied, 5_001, "each is counted");
}

/// What another client has left is not made up, and the policies that apply are told all the same.
#[tokio::test]
async fn a_client_that_was_never_asked_of_is_told_of_the_policy_that_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("limits.db")).await;
    let service = all_and_each(&store).layer(hello());
    for status in [200, 200, 429, 429] {
        let answer = send(&service, from("alice")).await;
        assert_eq!(answer.status, status);
    }
    let [alice, bob] = ["alice", "bob"].map(async |client| send(&service, from(client)).await);
    let (alice, bob) = (alice.await, bob.await);
    let policies = format!("\"each\";q=9;w={LONG}, \"all\";q=2;w={LONG}");
    for answer in [&alice, &bob] {
        assert_eq!(answer.only("ratelimit-policy"), policies);
        assert_eq!(
            answer.json()["violated-policies"],
            serde_json::json!(["all"])
        );
    }
    let members = |answer: &Answer| {
        let field = answer.only("ratelimit").to_owned();
        field.split(", ").map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let (of_alice, of_bob) = (members(&alice), members(&bob));
    assert!(of_alice[0].starts_with("\"each\";r=7;"), "{of_alice:?}");
    assert!(of_alice[1].starts_with("\"all\";r=0;"), "{of_alice:?}");
    assert!(of_bob[0].starts_with("\"all\";r=0;"), "{of_bob:?}");
    assert_eq!((of_alice.len(), of_bob.len()), (2, 1));
}

fn limiter(policies: impl Into<Policies>, store: &SqliteStore) -> Limiter {
    Limiter::new(policies).store(store)
}

fn user() -> Key {
    Key::new("user", 1)
}

/// A policy with the same key that is over by now is told, since its wait may be the longest.
#[tokio::test]
async fn the_longest_wait_is_told_also_when_a_policy_was_used_up_since() {
    for is_refused_before in [false, true] {
        let store = sqlite(&clock());
        let quota = Policy::hourly(3).name("quota");
        let both = limiter([Policy::fixed(1, 60).name("burst"), quota.clone()], &store);
        let alone = limiter(quota, &store);
        assert!(both.check(user()).await.unwrap().is_allowed());
        assert!(both.check(user()).await.unwrap().is_denied());
        for _ in 0..2 {
            assert!(alone.check(user()).await.unwrap().is_allowed());
        }
        if is_refused_before {
            assert!(alone.check(user()).await.unwrap().is_denied());
        }
        let decision = both.check(user()).await.unwrap();
        assert_eq!(decision.violated().count(), 2);
        assert_eq!(decision.retry_after(), Some(Duration::from_hours(1)));
    }
}

#[tokio::test]
async fn refusals_count_towards_a_block_also_beside_another_refusal() {
    let store = sqlite(&clock());
    let own = Policy::hourly(3)
        .name("own")
        .block_after(3, Duration::from_mins(10));
    let both = limiter([Policy::fixed(1, 60).name("burst"), own.clone()], &store);
    let alone = limiter(own, &store);
    assert!(both.check(user()).await.unwrap().is_allowed());
    assert!(both.check(user()).await.unwrap().is_denied());
    for _ in 0..2 {
        assert!(alone.check(user()).await.unwrap().is_allowed());
    }
    for _ in 0..3 {
        assert!(both.check(user()).await.unwrap().is_denied());
    }
    let seen = alone.peek(user()).await.unwrap();
    assert!(
        seen.verdicts()
            .any(|verdict| verdict.blocked_for().is_some())
    );
}
