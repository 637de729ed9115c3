//! Going on without the store: limits in this process's memory, and a store that is not asked for a moment.

use std::time::Duration;

use sqlx::{Connection, Executor, SqliteConnection};
use tempfile::TempDir;
use tollgate::{
    Decision, Decisions, FailureMode, Key, Limiter, ManualClock, Policy, ResetFormat, SqliteStore,
    StoreError, Verdict,
};
use tower::{Layer, ServiceBuilder};

use crate::support::{Answer, clock, from, hello, login, memory, send, sqlite, statuses};

/// A store that answers nothing any more.
async fn silent(clock: &ManualClock) -> SqliteStore {
    let store = sqlite(clock);
    store.close().await.unwrap();
    store
}

/// A store on a file, and another connection that holds the file's write lock.
async fn locked(clock: &ManualClock) -> (TempDir, SqliteStore, SqliteConnection) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let store = SqliteStore::open(&path).await.unwrap().clock(clock);
    // A busy machine must not fail a test: it is the lock that ends a charge.
    let store = store.deadline(Duration::from_mins(1));
    let url = format!("sqlite://{}", path.display());
    let mut other = SqliteConnection::connect(&url).await.unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    (folder, store, other)
}

fn only(answer: &Answer) -> &Decision {
    let decisions: &Decisions = answer.extensions.get().unwrap();
    decisions.iter().next().unwrap()
}

/// Whether each of so many charges was admitted.
async fn admitted(limiter: &Limiter, key: &Key, times: usize) -> Vec<bool> {
    let mut admitted = Vec::new();
    for _ in 0..times {
        let decision = limiter.check(key).await.unwrap();
        assert!(decision.is_degraded() && !decision.is_uncounted());
        admitted.push(decision.is_allowed());
    }
    admitted
}

#[tokio::test]
async fn a_limit_goes_on_in_memory_with_its_fields_when_the_store_gives_no_answer() {
    let store = silent(&clock()).await;
    let layer = login(2, 60, &store).x_rate_limit(ResetFormat::DeltaSeconds);
    let service = layer.layer(hello());
    for (status, left) in [(200, 1), (200, 0), (429, 0)] {
        let answer = send(&service, from("alice")).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.only("ratelimit-policy"), "\"login\";q=2;w=60");
        assert_eq!(answer.only("ratelimit"), format!("\"login\";r={left};t=60"));
        assert_eq!(answer.only("x-ratelimit-remaining"), left.to_string());
        assert!(only(&answer).is_degraded() && !only(&answer).is_uncounted());
    }
    let refused = send(&service, from("alice")).await;
    assert_eq!(refused.only("retry-after"), "60");
    assert_eq!(refused.json()["status"], 429);
    assert_eq!(statuses(&service, "bob", 1).await, [200]);
}

#[tokio::test]
async fn every_algorithm_goes_on_in_memory_by_the_stores_clock() {
    let policies = [
        Policy::fixed(2, 60),
        Policy::sliding(2, 60),
        Policy::sliding_counter(2, 60),
        Policy::token_bucket(2, 60),
        Policy::hourly(2),
    ];
    let clock = clock();
    let store = silent(&clock).await;
    let key = Key::new("user", "alice");
    for policy in policies {
        let limiter = Limiter::new(policy).store(&store);
        assert_eq!(admitted(&limiter, &key, 3).await, [true, true, false]);
        clock.advance(Duration::from_secs(7_200));
        assert_eq!(admitted(&limiter, &key, 1).await, [true]);
    }
}

#[tokio::test]
async fn limits_that_share_a_store_share_its_memory_too() {
    let store = silent(&clock()).await;
    let key = Key::new("user", "alice");
    let [one, other] = [(); 2].map(|()| {
        let policy = Policy::fixed(2, 60).name("shared");
        Limiter::new(policy).store(&store.clone())
    });
    assert_eq!(admitted(&one, &key, 1).await, [true]);
    assert_eq!(admitted(&other, &key, 2).await, [true, false]);
    let elsewhere = Limiter::new(Policy::fixed(2, 60).name("shared"));
    let elsewhere = elsewhere.store(&silent(&clock()).await);
    assert_eq!(admitted(&elsewhere, &key, 1).await, [true]);
}

#[tokio::test]
async fn several_policies_are_charged_all_or_nothing_in_memory_too() {
    let store = silent(&clock()).await;
    let limiter = Limiter::new([
        Policy::sliding(2, 10).name("burst"),
        Policy::fixed(5, 60).name("quota"),
    ]);
    let limiter = limiter.store(&store);
    let key = Key::new("user", "alice");
    assert_eq!(
        admitted(&limiter, &key, 4).await,
        [true, true, false, false]
    );
    let looked = limiter.check_n(&key, 0).await.unwrap();
    let used: Vec<_> = looked.verdicts().map(Verdict::used).collect();
    assert_eq!(used, [2, 2], "what is refused uses nothing of the other");
}

#[tokio::test]
async fn a_counter_that_an_outer_layer_has_charged_in_memory_is_not_charged_again() {
    let store = silent(&clock()).await;
    for (client, outer, inner, expected) in [
        ("same", 3, 3, [200, 200, 200, 429]),
        ("lower inside", 9, 2, [200, 200, 429, 429]),
        ("lower outside", 2, 9, [200, 200, 429, 429]),
    ] {
        let service = ServiceBuilder::new()
            .layer(login(outer, 60, &store))
            .layer(login(inner, 60, &store))
            .service(hello());
        assert_eq!(statuses(&service, client, 4).await, expected, "{client}");
    }
}

#[tokio::test]
async fn a_counter_beside_one_that_an_outer_layer_has_charged_is_charged_in_memory() {
    let store = silent(&clock()).await;
    let inner = login(9, 60, &store).and(
        Policy::fixed(2, 60).name("own"),
        tollgate::key::constant("all"),
    );
    let service = login(3, 60, &store).layer(inner.layer(hello()));
    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.push(send(&service, from("alice")).await);
    }
    let told: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(told, [200, 200, 429]);
    assert_eq!(
        answers[1].header("ratelimit"),
        "\"login\";r=7;t=60, \"own\";r=0;t=60, \"login\";r=1;t=60"
    );
    let decisions: &Decisions = answers[1].extensions.get().unwrap();
    assert!(decisions.iter().all(Decision::is_degraded));
}

#[tokio::test]
async fn what_one_limit_counts_in_memory_is_no_answer_for_those_that_must_have_the_stores() {
    let store = silent(&clock()).await;
    for (failure_mode, expected) in [(FailureMode::Closed, 503), (FailureMode::Open, 200)] {
        for limit in [9, 0] {
            let inner = login(limit, 60, &store).on_store_failure(failure_mode);
            let service = login(9, 60, &store).layer(inner.layer(hello()));
            assert_eq!(statuses(&service, "alice", 1).await, [expected]);
        }
    }
}

#[tokio::test]
async fn a_limit_that_goes_on_in_memory_is_held_by_what_an_open_one_outside_lets_pass() {
    let store = silent(&clock()).await;
    let outer = login(1, 60, &store).on_store_failure(FailureMode::Open);
    let service = outer.layer(login(2, 60, &store).layer(hello()));
    assert_eq!(statuses(&service, "alice", 3).await, [200, 200, 429]);
    let answer = send(&service, from("bob")).await;
    assert_eq!(answer.only("ratelimit"), "\"login\";r=1;t=60");
}

#[tokio::test]
async fn a_limit_on_a_store_that_answers_is_not_degraded_by_one_that_does_not() {
    let clock = clock();
    let service = ServiceBuilder::new()
        .layer(login(9, 60, &memory(&clock)).name("outer"))
        .layer(login(2, 60, &silent(&clock).await).name("inner"))
        .service(hello());
    let answer = send(&service, from("alice")).await;
    let decisions: &Decisions = answer.extensions.get().unwrap();
    let told: Vec<_> = decisions.iter().map(Decision::is_degraded).collect();
    assert_eq!(told, [false, true]);
}

#[tokio::test]
async fn a_wrong_number_of_keys_is_an_error_in_every_mode() {
    let store = silent(&clock()).await;
    let limiter = Limiter::new([Policy::fixed(1, 60), Policy::fixed(2, 3_600)]).store(&store);
    let keys = [1, 2, 3].map(|n| Key::new("user", n));
    for mode in [FailureMode::Local, FailureMode::Open, FailureMode::Closed] {
        let error = limiter.clone().on_store_failure(mode).check(&keys).await;
        assert!(
            matches!(error, Err(StoreError::KeyCount { .. })),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn an_operator_hears_of_the_outage_and_a_reset_ends_what_was_counted_in_it() {
    let store = silent(&clock()).await;
    let limiter = Limiter::new(Policy::fixed(1, 60)).store(&store);
    let key = Key::new("user", "alice");
    assert_eq!(admitted(&limiter, &key, 2).await, [true, false]);
    assert!(limiter.peek(&key).await.is_err());
    assert!(limiter.reset(&key).await.is_err());
    assert_eq!(admitted(&limiter, &key, 1).await, [true]);
}

#[tokio::test]
async fn where_memory_has_no_room_a_new_key_gets_the_stores_error() {
    let store = silent(&clock()).await;
    let names = (0..16).map(|n| format!("none-{n}"));
    let policies = names.map(|name| Policy::fixed(0, 60).name(&name));
    let refusing = Limiter::new(policies.collect::<Vec<_>>()).store(&store);
    for n in 0..262_144 / 16 {
        let decision = refusing.check(&Key::new("user", n)).await.unwrap();
        assert!(decision.is_denied());
    }
    let limiter = Limiter::new(Policy::fixed(1, 60)).store(&store);
    let error = limiter.check(&Key::new("user", "new")).await;
    assert!(matches!(error, Err(StoreError::Closed)), "{error:?}");
    let service = login(1, 60, &store).layer(hello());
    assert_eq!(statuses(&service, "new", 1).await, [503]);
    let known = refusing.check(&Key::new("user", 1)).await.unwrap();
    assert!(known.is_denied());
}

#[tokio::test]
async fn a_locked_file_is_counted_beside_and_counts_by_itself_when_it_is_free() {
    let clock = clock();
    let (_folder, store, mut other) = locked(&clock).await;
    let service = login(2, 60, &store).layer(hello());
    assert_eq!(statuses(&service, "alice", 3).await, [200, 200, 429]);
    other.execute("ROLLBACK").await.unwrap();
    // The breaker may be open, for a second at most.
    let decision = loop {
        let answer = send(&service, from("alice")).await;
        if !only(&answer).is_degraded() {
            break only(&answer).clone();
        }
        assert_eq!(answer.status, 429);
    };
    assert!(decision.is_allowed());
    assert_eq!(decision.used(), 1, "what was counted beside is not written");
}

#[tokio::test]
async fn a_lock_that_lasts_is_a_503_at_once_until_the_file_is_free() {
    let (_folder, store, mut other) = locked(&clock()).await;
    let limiter = Limiter::new(Policy::fixed(9, 60)).store(&store);
    let limiter = limiter.on_store_failure(FailureMode::Closed);
    let key = Key::new("user", "alice");
    loop {
        match limiter.check(&key).await.unwrap_err() {
            StoreError::BreakerOpen => break,
            error => assert!(error.is_transient(), "{error:?}"),
        }
    }
    other.execute("ROLLBACK").await.unwrap();
    loop {
        match limiter.check(&key).await {
            Ok(decision) => break assert_eq!(decision.used(), 1),
            Err(error) => assert!(matches!(error, StoreError::BreakerOpen), "{error:?}"),
        }
    }
}
