//! Lists: what is in them, and page by page.

use std::time::Duration;

use tollgate::{Admin, AdminError, Limiter, MemoryStore, Policy, RateLimitLayer, SqliteStore};

use super::{admin, ask, get, status};
use crate::support::clock;

/// The ids of all pages.
async fn ids(router: &axum::Router, limit: usize) -> Vec<String> {
    let mut ids = Vec::new();
    let mut after = String::new();
    loop {
        let page = get(router, &format!("/policies?limit={limit}{after}")).await;
        let policies = page["policies"].as_array().unwrap().iter();
        ids.extend(policies.map(|policy| policy["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", super::encoded(next)),
            None => return ids,
        }
    }
}

#[tokio::test]
async fn pages_tell_each_policy_once() {
    let store = MemoryStore::new();
    let policies: Vec<_> = (0..25)
        .map(|n| Policy::fixed(9, 60).name(&format!("p{n}")))
        .collect();
    let layer = RateLimitLayer::new(policies).store(&store);
    let router = admin()
        .layer(&layer)
        .layer(&layer.clone().shadow(true))
        .into_router()
        .unwrap();
    let all = ids(&router, 1_000).await;
    assert_eq!(all.len(), 50);
    assert!(all.is_sorted());
    for limit in [1, 7, 25, 49, 50, 51] {
        assert_eq!(ids(&router, limit).await, all, "{limit}");
    }
    // Where nothing is, a page begins as well.
    let page = get(&router, "/policies?after=p3-and-a-half&limit=1").await;
    assert_eq!(page["policies"][0]["id"], "p4");
    for limit in ["0", "1001", "ten", "-1", "1e3", ""] {
        assert_eq!(
            status(&router, &format!("/policies?limit={limit}")).await,
            422
        );
    }
}

#[tokio::test]
async fn a_policy_tells_what_it_is_set_to() {
    let store = SqliteStore::in_memory().clock(&clock());
    let bucket = Policy::token_bucket(10, 1).burst(50).name("bucket");
    let login = Policy::sliding(5, 900)
        .name("login")
        .block_after(3, Duration::from_hours(1));
    let admin = admin()
        .layer(
            &RateLimitLayer::new([bucket, login, Policy::monthly(9).leases(false)]).store(&store),
        )
        .layer(
            &RateLimitLayer::fixed(100, 60)
                .name("api")
                .store(&store)
                .on_store_failure(tollgate::FailureMode::Closed),
        );
    let router = admin.into_router().unwrap();
    let bucket = get(&router, "/policy?policy=bucket").await;
    assert_eq!(
        (&bucket["algorithm"], &bucket["limit"], &bucket["burst"]),
        (&"token-bucket".into(), &50.into(), &50.into())
    );
    assert_eq!(
        (
            &bucket["rate"],
            &bucket["rate_seconds"],
            &bucket["window_seconds"]
        ),
        (&10.into(), &1.into(), &5.into())
    );
    let login = get(&router, "/policy?policy=login").await;
    assert_eq!(
        login["block"],
        serde_json::json!({"after_refusals": 3, "seconds": 3_600})
    );
    assert_eq!(
        (&login["store"], &login["on_store_failure"]),
        (&"memory".into(), &"local".into())
    );
    let api = get(&router, "/policy?policy=api").await;
    assert_eq!(
        (&api["leases"], &api["on_store_failure"]),
        (&true.into(), &"closed".into())
    );
    assert_eq!(api["keyed_by"], "peer ip");
    let month = get(&router, "/policy?policy=monthly-9").await;
    assert_eq!(
        (&month["leases"], &month["algorithm"]),
        (&false.into(), &"monthly".into())
    );
    assert_eq!(status(&router, "/policy?policy=LOGIN").await, 404);
}

#[tokio::test]
async fn plans_are_all_listed_and_counters_that_are_shared_once() {
    let store = MemoryStore::new();
    let plans = [
        Policy::daily(10).name("free"),
        Policy::daily(100).name("pro"),
    ];
    let plans = RateLimitLayer::one_of(plans, |_| "free").store(&store);
    let of = |limit| RateLimitLayer::fixed(limit, 60).name("api").store(&store);
    let admin = admin()
        .layer(&plans)
        .layer(&of(5))
        .layer(&of(9))
        .layer(&of(7))
        .layer(&of(5));
    let router = admin.into_router().unwrap();
    assert_eq!(ids(&router, 100).await, ["api", "free", "pro"]);
    let api = get(&router, "/policy?policy=api").await;
    assert_eq!(
        (&api["limit"], &api["other_limits"]),
        (&5.into(), &serde_json::json!([7, 9]))
    );
}

#[test]
fn policies_of_one_name_that_count_apart_can_t_be_told_apart() {
    let of = |policy: Policy| Limiter::new(policy.name("login")).store(&MemoryStore::new());
    let error = |admin: Admin| admin.into_router().unwrap_err();
    let two_stores = admin()
        .limiter(&of(Policy::fixed(3, 60)))
        .limiter(&of(Policy::fixed(3, 60)));
    assert_eq!(error(two_stores), AdminError::NameTwice("login".to_owned()));
    let store = MemoryStore::new();
    let of = |policy: Policy| Limiter::new(policy.name("login")).store(&store);
    let two_windows = admin()
        .limiter(&of(Policy::fixed(3, 60)))
        .limiter(&of(Policy::fixed(3, 61)));
    assert_eq!(
        error(two_windows),
        AdminError::NameTwice("login".to_owned())
    );
    // Without a store each layer counts for itself.
    let unnamed = [(); 2].map(|()| RateLimitLayer::fixed(3, 60));
    let unnamed = admin().layer(&unnamed[0]).layer(&unnamed[1]);
    assert_eq!(
        error(unnamed),
        AdminError::NameTwice("fixed-3-60s".to_owned())
    );
}

#[tokio::test]
async fn stores_tell_who_counts_there_and_whether_they_answer() {
    let clock = clock();
    let (memory, small) = (
        MemoryStore::new().clock(&clock),
        MemoryStore::new().max_keys(1).clock(&clock),
    );
    let of = |name: &str, store: &MemoryStore| {
        Limiter::new(Policy::fixed(1, 60).name(name)).store(store)
    };
    let full = of("full", &small);
    let admin = admin()
        .limiter(&of("a", &memory))
        .limiter(&full)
        .limiter(&of("b", &memory));
    let router = admin.into_router().unwrap();
    let stores = get(&router, "/stores").await;
    assert_eq!(
        stores["stores"][0]["policies"],
        serde_json::json!(["a", "b"])
    );
    assert_eq!(stores["stores"][1]["answers"], true);
    super::charge(&full, &super::user(1), 2).await;
    assert!(full.check(super::user(2)).await.is_err(), "there is room");
    let stores = ask(&router, "GET", "/stores").await.json();
    let failing = &stores["stores"][1];
    assert_eq!(
        (&failing["answers"], &failing["failing"]["unanswered"]),
        (&false.into(), &1.into())
    );
    assert!(
        failing["failing"]["cause"]
            .as_str()
            .unwrap()
            .contains("cap"),
        "{failing}"
    );
    assert_eq!(stores["stores"][0]["answers"], true);
}
