//! Setting, reading and removing limits.

use std::time::Duration;

use tollgate::{FailureMode, Key, Limit, MemoryStore, SqliteStore, StoreError};

use super::{api, is_allowed, user};
use crate::support::{START, clock, memory, sqlite};

#[tokio::test]
async fn nonsense_is_an_error_that_says_what_to_do_and_sets_nothing() {
    let api = api(5, &memory(&clock()));
    let unknown = api.set_limit("apu", &user(1), 9).await.unwrap_err();
    assert_eq!(unknown.name(), Some("unknown-policy"));
    assert!(unknown.to_string().contains("\"apu\""), "{unknown}");
    let long_name = "n".repeat(100_000);
    let error = api.remove_limit(&long_name, None).await.unwrap_err();
    assert!(error.to_string().len() < 250, "{error}");
    for ended in [
        Limit::EXEMPT.ends_at(START),
        Limit::of(9).ends_after(Duration::ZERO),
        Limit::of(9).ends_after(Duration::from_micros(999)),
    ] {
        let error = api.set_limit("api", &user(1), ended).await.unwrap_err();
        assert_eq!(error.name(), Some("ended-limit"));
    }
    let parts = (0..40).fold(user(1), |key, n| key.and("a-part-of-a-key", n));
    let long = (0..20).fold(parts, |key, n| key.and("part", "v".repeat(60 + n % 2)));
    assert!(long.as_str().len() > 1_024);
    let error = api.set_limit("api", &long, 9).await.unwrap_err();
    assert_eq!(
        (error.name(), error.is_transient()),
        (Some("long-key"), false)
    );
    assert_eq!(api.stored_limits("api", None, 9).await.unwrap(), []);
    assert!(is_allowed(&api, &long).await, "it is a key all the same");
    let forever = Limit::BLOCKED.ends_after(Duration::MAX);
    api.set_limit("api", &user(1), forever).await.unwrap();
    assert!(!is_allowed(&api, &user(1)).await);
}

#[tokio::test]
async fn letter_case_of_a_policys_name_does_not_count() {
    let api = api(5, &sqlite(&clock()));
    api.set_limit("API", &user(1), Limit::BLOCKED)
        .await
        .unwrap();
    assert!(!is_allowed(&api, &user(1)).await);
    let stored = api.stored_limit("Api", &user(1)).await.unwrap().unwrap();
    assert_eq!(
        (stored.key(), stored.limit()),
        (Some(&user(1)), Limit::BLOCKED)
    );
    assert_eq!(stored.ends_at(), None);
}

#[tokio::test]
async fn hostile_keys_are_stored_as_text() {
    for store in [sqlite(&clock()), SqliteStore::in_memory()] {
        let api = api(5, &store);
        let keys = [
            "'; DROP TABLE rate_limit_limits; --",
            "%",
            "a|b",
            "\0",
            "é🦀",
            "",
        ];
        for value in keys {
            let key = Key::new("user", value);
            api.set_limit("api", &key, Limit::BLOCKED).await.unwrap();
            assert!(!is_allowed(&api, &key).await, "{value}");
        }
        assert_eq!(api.stored_limits("api", None, 99).await.unwrap().len(), 6);
        assert_eq!(api.stored_limit("api", None).await.unwrap(), None);
        assert!(is_allowed(&api, &user(1)).await);
    }
}

/// What is spent in memory would not see it.
#[tokio::test]
async fn a_busy_key_is_held_to_a_new_limit_at_once() {
    let api = api(1_000_000, &sqlite(&clock()));
    for limit in [Limit::BLOCKED, Limit::of(1_500)] {
        api.remove_limit("api", &user(1)).await.unwrap();
        api.reset(&user(1)).await.unwrap();
        for _ in 0..2_000 {
            assert!(is_allowed(&api, &user(1)).await);
        }
        api.set_limit("api", &user(1), limit).await.unwrap();
        assert!(!is_allowed(&api, &user(1)).await, "{limit}");
        let seen = api.peek(&user(1)).await.unwrap();
        assert_eq!((seen.used(), seen.remaining()), (2_000, 0), "{limit}");
    }
    api.set_limit("api", None, Limit::BLOCKED).await.unwrap();
    api.set_limit("api", &user(1), Limit::EXEMPT).await.unwrap();
    for _ in 0..2_000 {
        assert!(is_allowed(&api, &user(1)).await);
    }
    api.remove_limit("api", &user(1)).await.unwrap();
    assert!(!is_allowed(&api, &user(1)).await);
}

/// An exempt key takes much ahead: not beyond the end of its limit.
#[tokio::test]
async fn what_was_charged_ahead_is_not_spent_when_the_limit_has_ended() {
    let clock = clock();
    let api = api(10, &sqlite(&clock));
    let exempt = Limit::EXEMPT.ends_after(Duration::from_secs(10));
    api.set_limit("api", &user(1), exempt).await.unwrap();
    for _ in 0..2_000 {
        assert!(is_allowed(&api, &user(1)).await);
    }
    clock.advance(Duration::from_millis(9_999));
    assert!(is_allowed(&api, &user(1)).await);
    clock.advance(Duration::from_millis(1));
    assert!(!is_allowed(&api, &user(1)).await);
}

#[tokio::test]
async fn limits_hold_also_when_the_store_gives_no_answer() {
    let store = sqlite(&clock());
    let api = api(5, &store).on_store_failure(FailureMode::Local);
    api.set_limit("api", &user(1), Limit::BLOCKED)
        .await
        .unwrap();
    api.set_limit("api", &user(2), Limit::EXEMPT).await.unwrap();
    api.set_limit("api", None, 2).await.unwrap();
    store.close().await.unwrap();
    assert!(!is_allowed(&api, &user(1)).await);
    let mut admitted = Vec::new();
    for _ in 0..3 {
        assert!(is_allowed(&api, &user(2)).await);
        admitted.push(is_allowed(&api, &user(3)).await);
    }
    assert_eq!(admitted, [true, true, false]);
}

#[tokio::test]
async fn limits_that_another_store_has_set_hold_without_it_once_they_were_met() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let open = async || {
        SqliteStore::open(&path)
            .await
            .unwrap()
            .deadline(Duration::from_mins(1))
    };
    let (ours, theirs) = (open().await, open().await);
    api(5, &theirs)
        .set_limit("api", &user(1), Limit::BLOCKED)
        .await
        .unwrap();
    let api = api(5, &ours);
    assert!(!is_allowed(&api, &user(1)).await);
    ours.close().await.unwrap();
    let refused = api.check(&user(1)).await.unwrap();
    assert!(refused.is_degraded() && refused.is_denied());
    assert!(is_allowed(&api, &user(2)).await);
}

#[tokio::test]
async fn a_closed_store_sets_and_tells_nothing() {
    let store = sqlite(&clock());
    let api = api(5, &store);
    store.close().await.unwrap();
    let set = api.set_limit("api", &user(1), 9).await;
    assert!(matches!(set, Err(StoreError::Closed)), "{set:?}");
    let stored = api.stored_limit("api", &user(1)).await;
    assert!(matches!(stored, Err(StoreError::Closed)), "{stored:?}");
}

#[tokio::test]
async fn limits_are_no_keys_of_a_cap() {
    let store = MemoryStore::new().max_keys(2).clock(&clock());
    let api = api(5, &store);
    for n in 0..100 {
        api.set_limit("api", &user(n), n).await.unwrap();
    }
    assert!(is_allowed(&api, &user(99)).await);
    assert_eq!(
        api.stored_limits("api", None, 1_000).await.unwrap().len(),
        100
    );
}
