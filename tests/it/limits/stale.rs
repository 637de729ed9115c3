//! What was set, changed and removed, by whom, and what is known of it afterwards.

use std::time::Duration;

use tempfile::TempDir;
use tollgate::{Key, Limit, Limiter, ManualClock, Policy, SqliteStore, Store};

use super::{api, is_allowed, user};
use crate::support::{clock, memory, sqlite};

/// Two stores on one file, as two processes have them.
async fn two_on_a_file(clock: &ManualClock) -> (TempDir, [SqliteStore; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let open = async || {
        let store = SqliteStore::open(&path).await.unwrap();
        store.deadline(Duration::from_mins(1)).clock(clock)
    };
    let stores = [open().await, open().await];
    (folder, stores)
}

/// A limiter that asks the store each time.
fn unleased(store: &SqliteStore) -> Limiter {
    Limiter::new(Policy::fixed(5, 86_400).name("api").leases(false)).store(store)
}

/// A limit of all keys that this process has set, and another one has removed.
#[tokio::test]
async fn a_policys_limit_that_was_removed_elsewhere_does_not_hold_without_the_store() {
    let (_folder, [ours, theirs]) = two_on_a_file(&clock()).await;
    let (api, other) = (unleased(&ours), unleased(&theirs));
    api.set_limit("api", None, Limit::BLOCKED).await.unwrap();
    assert!(!is_allowed(&api, &user(1)).await);
    assert!(other.remove_limit("api", None).await.unwrap());
    // It has met that there is none, for this very key.
    assert!(is_allowed(&api, &user(1)).await);
    ours.close().await.unwrap();
    assert!(is_allowed(&api, &user(1)).await);
    assert!(is_allowed(&api, &user(2)).await);
}

/// A limit of all keys that another process has set, and this one has removed.
#[tokio::test]
async fn a_policys_limit_that_this_process_has_removed_does_not_hold_without_the_store() {
    let (_folder, [ours, theirs]) = two_on_a_file(&clock()).await;
    let (api, other) = (unleased(&ours), unleased(&theirs));
    other.set_limit("api", None, Limit::BLOCKED).await.unwrap();
    assert!(!is_allowed(&api, &user(1)).await);
    assert!(api.remove_limit("api", None).await.unwrap());
    ours.close().await.unwrap();
    assert!(is_allowed(&api, &user(1)).await);
}

/// The same number for longer.
#[tokio::test]
async fn a_limit_that_was_prolonged_elsewhere_holds_as_long_without_the_store() {
    let clock = clock();
    let (_folder, [ours, theirs]) = two_on_a_file(&clock).await;
    let (api, other) = (unleased(&ours), unleased(&theirs));
    let minute = Limit::BLOCKED.ends_after(Duration::from_mins(1));
    other.set_limit("api", &user(1), minute).await.unwrap();
    assert!(!is_allowed(&api, &user(1)).await);
    other
        .set_limit("api", &user(1), Limit::BLOCKED)
        .await
        .unwrap();
    // It has met the new one.
    assert!(!is_allowed(&api, &user(1)).await);
    ours.close().await.unwrap();
    clock.advance(Duration::from_mins(2));
    assert!(!is_allowed(&api, &user(1)).await);
}

/// A kind may be empty: `key LIKE '%_:%'` wants a character before the colon.
#[tokio::test]
async fn every_key_that_can_be_charged_can_be_limited() {
    let mut failed = Vec::new();
    for store in [sqlite(&clock()), SqliteStore::in_memory()] {
        let api = api(5, &store);
        for (kind, value) in [
            ("", ""),
            ("", "x"),
            ("a", ""),
            ("a", "\0"),
            ("a", "\u{1}\n\t"),
            ("%", "_"),
            ("a:b", "c|d}"),
            ("\u{10FFFF}", "\u{10FFFF}"),
            ("'", "\""),
            ("\\", "\\u0000"),
            ("é", "漢字"),
            ("\0", "\0"),
            (":", ":"),
        ] {
            let key = Key::new(kind, value);
            assert!(is_allowed(&api, &key).await);
            match api.set_limit("api", &key, Limit::BLOCKED).await {
                Ok(()) => assert!(!is_allowed(&api, &key).await, "{kind:?} {value:?}"),
                Err(error) => failed.push(format!("{:?}: {error}", key.as_str())),
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

/// docs/limits.md: "whoever loses the exemption has used what he has used".
#[tokio::test]
async fn who_loses_the_exemption_has_used_what_he_has_used() {
    let policies = [
        Policy::fixed(10, 86_400),
        Policy::sliding(10, 86_400),
        Policy::sliding_counter(10, 86_400),
        Policy::token_bucket(10, 86_400),
    ];
    for policy in policies {
        for exempt in [false, true] {
            let clock = clock();
            let limiter = Limiter::new(policy.clone().name("api")).store(&sqlite(&clock));
            if exempt {
                limiter
                    .set_limit("api", &user(1), Limit::EXEMPT)
                    .await
                    .unwrap();
            }
            for _ in 0..10 {
                assert!(is_allowed(&limiter, &user(1)).await);
            }
            clock.advance(Duration::from_mins(1));
            // A look by an exempt key is nothing, another request is.
            let _ = limiter.check(&user(1)).await.unwrap();
            if exempt {
                limiter.remove_limit("api", &user(1)).await.unwrap();
            }
            let used = limiter.peek(&user(1)).await.unwrap().used();
            assert!(used >= 10, "{policy} exempt {exempt}: {used}");
        }
    }
}

/// A request that was let in under another limit gives its unit back: one unit, and not what would have drained at the other rate.
async fn a_refund_gives_back_its_units_alone(store: &impl Store, clock: &tollgate::ManualClock) {
    let limiter = Limiter::new(Policy::token_bucket(10, 86_400).name("api")).store(store);
    limiter
        .set_limit("api", &user(1), Limit::EXEMPT)
        .await
        .unwrap();
    let exempt = limiter.check(&user(1)).await.unwrap();
    limiter.remove_limit("api", &user(1)).await.unwrap();
    for _ in 0..9 {
        assert!(is_allowed(&limiter, &user(1)).await);
    }
    assert!(!is_allowed(&limiter, &user(1)).await);
    clock.advance(Duration::from_secs(1));
    limiter.refund(&exempt).await.unwrap();
    let mut passed = 0;
    while is_allowed(&limiter, &user(1)).await {
        passed += 1;
    }
    assert!(passed <= 1, "{passed} more than 10 in the day");
}

#[tokio::test]
async fn a_refund_of_before_a_bucket_lost_its_exemption_on_sqlite() {
    let clock = clock();
    a_refund_gives_back_its_units_alone(&sqlite(&clock), &clock).await;
}

#[tokio::test]
async fn a_refund_of_before_a_bucket_lost_its_exemption_in_memory() {
    let clock = clock();
    a_refund_gives_back_its_units_alone(&memory(&clock), &clock).await;
}
