//! Who uses most, and who is refused most.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate::{Key, Limiter, Policy, RateLimitLayer};
use tower::Layer;

use super::{admin, charge, get, user};
use crate::support::{CLIENT, clock, from, hello, login, memory, send, sqlite, statuses};

/// Keys with what they have had for certain.
fn ranks(ranking: &Value) -> Vec<(&str, u64)> {
    let keys = ranking["keys"].as_array().unwrap().iter();
    keys.map(|key| {
        (
            key["key"].as_str().unwrap(),
            key["at_least"].as_u64().unwrap(),
        )
    })
    .collect()
}

#[tokio::test]
async fn the_refused_and_the_busy_are_ranked_whatever_has_answered_them() {
    let clock = clock();
    let store = sqlite(&clock);
    let limit = login(40, 60, &store);
    let router = admin().layer(&limit).into_router().unwrap();
    let service = limit.layer(hello());
    // Most of them from a lease.
    assert_eq!(statuses(&service, "alice", 50).await[39..41], [200, 429]);
    assert_eq!(statuses(&service, "bob", 30).await, [200; 30]);
    let key = |name: &str| format!("header/{CLIENT}:{name}");
    let (alice, bob) = (key("alice"), key("bob"));
    let busiest = get(&router, "/busiest").await;
    assert_eq!(ranks(&busiest), [(&*alice, 40), (&*bob, 30)]);
    assert_eq!(busiest["keys"][0]["at_most"], 40);
    let sum = json!({"policy": "login", "since": "2083-01-15T04:00:00.000Z", "total": 70, "missing_at_most": 0});
    assert_eq!(busiest["counted"][0], sum);
    let refused = get(&router, "/refused?policy=login").await;
    assert_eq!(ranks(&refused), [(&*alice, 10)]);
    assert_eq!(
        get(&router, "/busiest?limit=1").await["keys"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn looks_and_what_costs_nothing_are_not_counted_and_costs_are() {
    let limiter = Limiter::new(Policy::sliding(10, 60).name("p")).store(&memory(&clock()));
    let router = admin().limiter(&limiter).into_router().unwrap();
    for _ in 0..9 {
        assert!(limiter.peek(user(1)).await.unwrap().is_allowed());
        assert!(limiter.check_n(user(1), 0).await.unwrap().is_allowed());
    }
    assert!(limiter.check_n(user(2), 7).await.unwrap().is_allowed());
    assert!(limiter.check_n(user(2), 7).await.unwrap().is_denied());
    assert_eq!(limiter.record(user(2), 5).await.unwrap().used(), 12);
    assert_eq!(ranks(&get(&router, "/busiest").await), [("user:2", 12)]);
    assert_eq!(ranks(&get(&router, "/refused").await), [("user:2", 1)]);
}

#[tokio::test]
async fn of_several_policies_the_one_that_refuses_has_refused() {
    let store = memory(&clock());
    let limiter = Limiter::new([
        Policy::sliding(1, 60).name("strict"),
        Policy::fixed(9, 60).name("wide"),
    ])
    .store(&store);
    let router = admin().limiter(&limiter).into_router().unwrap();
    assert_eq!(charge(&limiter, &user(1), 3).await, 1);
    assert_eq!(
        ranks(&get(&router, "/refused?policy=strict").await),
        [("user:1", 2)]
    );
    assert_eq!(ranks(&get(&router, "/refused?policy=wide").await), []);
    assert_eq!(
        ranks(&get(&router, "/busiest?policy=wide").await),
        [("user:1", 1)]
    );
    assert_eq!(
        get(&router, "/busiest").await["keys"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn what_is_charged_once_for_several_layers_is_counted_once() {
    let store = memory(&clock());
    let limit = login(2, 60, &store);
    let (router, service) = (
        admin().layer(&limit).into_router().unwrap(),
        limit.layer(limit.layer(hello())),
    );
    assert_eq!(statuses(&service, "alice", 3).await, [200, 200, 429]);
    assert_eq!(ranks(&get(&router, "/busiest").await)[0].1, 2);
    assert_eq!(ranks(&get(&router, "/refused").await)[0].1, 1);
}

#[tokio::test]
async fn two_limiters_on_one_counter_are_ranked_together() {
    let store = memory(&clock());
    let of = |limit| Limiter::new(Policy::fixed(limit, 60).name("api")).store(&store);
    let (one, other) = (of(5), of(9));
    let router = admin().limiter(&one).limiter(&other).into_router().unwrap();
    assert_eq!(
        (
            charge(&one, &user(1), 3).await,
            charge(&other, &user(1), 3).await
        ),
        (3, 3)
    );
    assert_eq!(ranks(&get(&router, "/busiest").await), [("user:1", 6)]);
}

#[tokio::test]
async fn a_policy_that_is_computed_under_the_layer_s_name_is_counted() {
    let limit = login(1, 60, &memory(&clock())).policy_for(|parts| {
        let limit = parts.headers.get("x-limit")?.to_str().ok()?.parse().ok()?;
        Some(Policy::fixed(limit, 60).name("login"))
    });
    let router = admin().layer(&limit).into_router().unwrap();
    let service = limit.layer(hello());
    for _ in 0..5 {
        let mut request = from("alice");
        request.headers_mut().insert("x-limit", 3.into());
        send(&service, request).await;
    }
    assert_eq!(ranks(&get(&router, "/busiest").await)[0].1, 3);
    assert_eq!(ranks(&get(&router, "/refused").await)[0].1, 2);
}

#[tokio::test]
async fn a_shadow_tells_whom_it_would_refuse() {
    let shadow = login(1, 60, &memory(&clock())).shadow(true);
    let router = admin().layer(&shadow).into_router().unwrap();
    assert_eq!(statuses(&shadow.layer(hello()), "alice", 3).await, [200; 3]);
    let refused = get(&router, "/refused?policy=shadow;login").await;
    assert_eq!(ranks(&refused)[0].1, 2);
    assert_eq!(refused["keys"][0]["policy"], "shadow;login");
}

#[tokio::test]
async fn who_has_stopped_is_gone_after_half_an_hour() {
    let clock = clock();
    let limiter = Limiter::new(Policy::fixed(1, 60).name("p")).store(&memory(&clock));
    let router = admin().limiter(&limiter).into_router().unwrap();
    charge(&limiter, &user(1), 9).await;
    clock.advance(Duration::from_mins(29));
    charge(&limiter, &user(2), 2).await;
    assert_eq!(
        ranks(&get(&router, "/refused").await),
        [("user:1", 8), ("user:2", 1)]
    );
    clock.advance(Duration::from_mins(1));
    let refused = get(&router, "/refused").await;
    assert_eq!(ranks(&refused), [("user:2", 1)]);
    assert_eq!(refused["counted"][0]["since"], "2083-01-15T04:15:00.000Z");
}

#[tokio::test]
async fn a_flood_of_keys_hides_no_key_that_comes_often() {
    let limiter = Limiter::new(Policy::fixed(1_000, 60).name("p")).store(&memory(&clock()));
    let router = admin().limiter(&limiter).into_router().unwrap();
    for n in 0..6_000 {
        charge(&limiter, &Key::new("flood", n), 1).await;
        if n % 20 == 0 {
            charge(&limiter, &user(42), 1).await;
        }
    }
    let busiest = get(&router, "/busiest?limit=1000").await;
    let counted = &busiest["counted"][0];
    assert_eq!(counted["total"], 6_300);
    assert!(counted["missing_at_most"].as_u64().unwrap() <= 6);
    let first = &busiest["keys"][0];
    assert_eq!(first["key"], "user:42");
    assert!(first["at_least"].as_u64() <= Some(300) && first["at_most"].as_u64() >= Some(300));
    assert_eq!(busiest["keys"].as_array().unwrap().len(), 1_000);
}

#[tokio::test]
async fn while_the_store_fails_those_are_ranked_who_were_let_pass_without_it() {
    let store = sqlite(&clock());
    let open = login(1, 60, &store).on_store_failure(tollgate::FailureMode::Open);
    let local = RateLimitLayer::fixed(1, 60)
        .name("local")
        .key(tollgate::key::constant("all"))
        .store(&store);
    let router = admin().layer(&open).layer(&local).into_router().unwrap();
    store.close().await.unwrap();
    assert_eq!(statuses(&open.layer(hello()), "alice", 3).await, [200; 3]);
    assert_eq!(
        statuses(&local.layer(hello()), "alice", 3).await,
        [200, 429, 429]
    );
    assert_eq!(ranks(&get(&router, "/busiest?policy=login").await)[0].1, 3);
    assert_eq!(ranks(&get(&router, "/busiest?policy=local").await)[0].1, 1);
    assert_eq!(ranks(&get(&router, "/refused?policy=local").await)[0].1, 2);
}
