//! Who is held to a limit that somebody has set.

use std::time::Duration;

use sqlx::{Connection, Executor, SqliteConnection};
use tollgate::{Key, Limit, Limiter, Policy, RateLimitLayer, SqliteStore, Store, key};
use tower::Layer;

use crate::support::{CLIENT, LONG, clock, from, hello, memory, send, sqlite, statuses};

fn user() -> Key {
    Key::new("user", 1)
}

fn api(policy: Policy, store: &impl Store) -> Limiter {
    Limiter::new(policy.name("api")).store(store)
}

async fn is_allowed(limiter: &Limiter) -> bool {
    limiter.check(&user()).await.unwrap().is_allowed()
}

async fn on_a_file(path: &std::path::Path) -> SqliteStore {
    let store = SqliteStore::open(path).await.unwrap();
    store.deadline(Duration::from_mins(1))
}

#[tokio::test]
async fn a_limit_outlasts_the_process_and_holds_for_others_on_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    for policy in [Policy::fixed(5, LONG), Policy::sliding(5, LONG)] {
        let policy = policy.leases(false);
        let (first, second) = (on_a_file(&path).await, on_a_file(&path).await);
        let limiter = api(policy.clone(), &first);
        limiter
            .set_limit("api", &user(), Limit::BLOCKED)
            .await
            .unwrap();
        assert!(!is_allowed(&api(policy.clone(), &second)).await);
        limiter.set_limit("api", &user(), 9).await.unwrap();
        let seen = api(policy.clone(), &second).check(&user()).await.unwrap();
        assert_eq!(seen.remaining(), 8);
        first.close().await.unwrap();
        second.close().await.unwrap();
        let third = api(policy, &on_a_file(&path).await);
        assert_eq!(third.peek(&user()).await.unwrap().remaining(), 8);
        assert!(third.remove_limit("api", &user()).await.unwrap());
        assert_eq!(third.peek(&user()).await.unwrap().remaining(), 4);
        third.reset(&user()).await.unwrap();
    }
}

/// What it has charged ahead it may spend: no more than that.
#[tokio::test]
async fn another_process_on_the_file_spends_no_more_than_it_has_charged_ahead() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let policy = Policy::fixed(100_000, LONG);
    let busy = api(policy.clone(), &on_a_file(&path).await);
    for _ in 0..5_000 {
        assert!(is_allowed(&busy).await);
    }
    let operator = api(policy, &on_a_file(&path).await);
    operator
        .set_limit("api", &user(), Limit::BLOCKED)
        .await
        .unwrap();
    let mut passed = 0;
    while is_allowed(&busy).await {
        passed += 1;
    }
    assert!(passed <= 95_000 * 3 / 16, "{passed}");
    assert!(!is_allowed(&busy).await);
}

/// Under a set clock nothing goes back since it is idle.
#[tokio::test]
async fn what_another_process_has_charged_ahead_goes_back_when_a_limit_is_set_or_a_key_reset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let clock = clock();
    let policy = Policy::fixed(1_000, LONG);
    let store = on_a_file(&path).await.clock(&clock);
    let busy = api(policy.clone(), &store);
    let operator = api(policy, &on_a_file(&path).await.clock(&clock));
    let used_is = async |expected| {
        let seen = async { while operator.peek(&user()).await.unwrap().used() != expected {} };
        tokio::time::timeout(Duration::from_mins(1), seen)
            .await
            .unwrap();
    };
    for _ in 0..300 {
        assert!(is_allowed(&busy).await);
    }
    assert!(operator.peek(&user()).await.unwrap().used() > 300);
    operator
        .set_limit("api", &user(), Limit::BLOCKED)
        .await
        .unwrap();
    used_is(300).await;
    assert!(!is_allowed(&busy).await);
    operator.set_limit("api", &user(), 2_000).await.unwrap();
    let let_in = async { while !is_allowed(&busy).await {} };
    tokio::time::timeout(Duration::from_mins(1), let_in)
        .await
        .unwrap();
    for _ in 0..300 {
        assert!(is_allowed(&busy).await);
    }
    operator.reset(&user()).await.unwrap();
    // What it goes on with is of after the reset.
    let told = async {
        while operator.peek(&user()).await.unwrap().used() == 0 {
            assert!(is_allowed(&busy).await);
        }
    };
    tokio::time::timeout(Duration::from_mins(1), told)
        .await
        .unwrap();
}

/// So many at once that they are not told one by one.
#[tokio::test]
async fn many_limits_that_are_set_at_once_end_all_that_was_charged_ahead() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let clock = clock();
    let policy = Policy::fixed(1_000, LONG);
    let busy = api(policy.clone(), &on_a_file(&path).await.clock(&clock));
    let operator = api(policy, &on_a_file(&path).await.clock(&clock));
    for _ in 0..300 {
        assert!(is_allowed(&busy).await);
    }
    assert!(operator.peek(&user()).await.unwrap().used() > 300);
    let url = format!("sqlite://{}", path.display());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let many = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 8100)
        INSERT INTO rate_limit_changes (kind, policy, first_key, last_key) SELECT 1, 'other', 'user:' || n, 'user:' || n FROM n";
    connection.execute(many).await.unwrap();
    let seen = async { while operator.peek(&user()).await.unwrap().used() != 300 {} };
    tokio::time::timeout(Duration::from_mins(1), seen)
        .await
        .unwrap();
}

#[tokio::test]
async fn limiters_without_a_store_have_limits_of_their_own() {
    let limiter = || Limiter::new(Policy::fixed(5, LONG).name("api"));
    let (first, second) = (limiter(), limiter());
    first
        .set_limit("api", &user(), Limit::BLOCKED)
        .await
        .unwrap();
    assert!(!is_allowed(&first).await);
    assert!(!is_allowed(&first.clone()).await);
    assert!(is_allowed(&second).await);
    assert_eq!(second.stored_limit("api", &user()).await.unwrap(), None);
}

#[tokio::test]
async fn a_shadow_is_held_to_the_limits_of_its_name() {
    let store = memory(&clock());
    let layer = RateLimitLayer::fixed(5, 60)
        .name("api")
        .key(key::header(CLIENT))
        .store(&store);
    let alice = Key::header(CLIENT, "alice");
    layer
        .limiter()
        .set_limit("api", &alice, Limit::BLOCKED)
        .await
        .unwrap();
    let service = layer.shadow(true).layer(hello());
    let answer = send(&service, from("alice")).await;
    let decisions: &tollgate::Decisions = answer.extensions.get().unwrap();
    assert!(decisions.shadows().next().unwrap().is_denied());
}

#[tokio::test]
async fn a_policy_that_is_chosen_for_a_request_is_held_to_limits_of_its_name() {
    let store = sqlite(&clock());
    let layer = RateLimitLayer::fixed(5, 60)
        .name("api")
        .key(key::header(CLIENT))
        .store(&store)
        .policy_for(|_| Some(Policy::fixed(1, 60).name("plan")));
    let service = layer.layer(hello());
    assert_eq!(statuses(&service, "alice", 2).await, [200, 429]);
    let plan = Limiter::new(Policy::fixed(1, 60).name("plan")).store(&store);
    let alice = Key::header(CLIENT, "alice");
    plan.set_limit("plan", &alice, 3).await.unwrap();
    assert_eq!(statuses(&service, "alice", 3).await, [200, 200, 429]);
}

/// Of many tasks that charge while the limit changes no more pass than the highest limit of the time.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_passes_the_highest_limit_while_it_changes() {
    for policy in [Policy::fixed(10, LONG), Policy::sliding(10, LONG)] {
        let store = SqliteStore::in_memory().deadline(Duration::from_mins(1));
        let api = api(policy, &store);
        let tasks: Vec<_> = (0..16)
            .map(|_| {
                let api = api.clone();
                tokio::spawn(async move {
                    let mut admitted = 0;
                    for _ in 0..100 {
                        admitted += u64::from(is_allowed(&api).await);
                    }
                    admitted
                })
            })
            .collect();
        for limit in [100, 20, 300, 0, 200] {
            api.set_limit("api", &user(), limit).await.unwrap();
        }
        let mut admitted = 0;
        for task in tasks {
            admitted += task.await.unwrap();
        }
        assert!(admitted <= 300, "{admitted}");
        let seen = api.peek(&user()).await.unwrap();
        assert_eq!(seen.used(), admitted);
        let left = 200_u64.saturating_sub(admitted);
        assert_eq!(u64::from(seen.remaining()), left);
    }
}
