//! Limits that are set at run time.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use tollgate::{Limit, Limiter, ManualClock, MemoryStore, Policy};

use super::schema::OpenApi;
use super::{SECRET, admin, ask, charge, encoded, get, status, user};
use crate::support::{Answer, clock, send, sqlite};

async fn put(router: &Router, target: &str, body: impl Into<Body>) -> Answer {
    let request = Request::put(target).header("x-admin-key", SECRET);
    let answer = send(router, request.body(body.into()).unwrap()).await;
    OpenApi::read().check("PUT", target, &answer);
    answer
}

async fn set(router: &Router, target: &str, body: Value) -> Value {
    let answer = put(router, target, body.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn site(clock: &ManualClock) -> (Router, Limiter) {
    let limiter = Limiter::new(Policy::sliding(2, 60).name("api")).store(&sqlite(clock));
    (admin().limiter(&limiter).into_router().unwrap(), limiter)
}

#[tokio::test]
async fn a_key_is_blocked_and_exempt_and_given_more_without_a_deploy() {
    let (router, limiter) = site(&clock());
    let target = "/limit?policy=api&key=user:42";
    assert_eq!(status(&router, target).await, 404);
    let blocked = set(&router, target, json!({"limit": "blocked"})).await;
    assert_eq!(
        blocked,
        json!({"policy": "api", "key": "user:42", "limit": "blocked"})
    );
    assert_eq!(charge(&limiter, &user(42), 1).await, 0);
    assert_eq!(
        get(&router, "/counters?key=user:42").await["counters"][0]["set_limit"],
        "blocked"
    );

    set(&router, target, json!({"limit": 3})).await;
    assert_eq!(charge(&limiter, &user(42), 5).await, 3);
    set(&router, target, json!({"limit": "exempt"})).await;
    assert_eq!(charge(&limiter, &user(42), 5).await, 5);
    let state = get(&router, "/counters?key=user:42").await["counters"][0].clone();
    assert_eq!(
        (&state["set_limit"], &state["used"], state.get("limit")),
        (&"exempt".into(), &8.into(), None)
    );

    assert_eq!(get(&router, target).await["limit"], "exempt");
    assert_eq!(
        ask(&router, "DELETE", target).await.json(),
        json!({"removed": true})
    );
    assert_eq!(
        ask(&router, "DELETE", target).await.json(),
        json!({"removed": false})
    );
    assert_eq!(charge(&limiter, &user(42), 1).await, 0);
    // What was counted under any of them is ranked.
    let busiest = get(&router, "/busiest").await;
    assert_eq!(
        busiest["keys"][0],
        json!({"policy": "api", "key": "user:42", "at_least": 8, "at_most": 8})
    );
}

#[tokio::test]
async fn a_limit_ends_at_an_instant_or_after_a_while() {
    let clock = clock();
    let (router, limiter) = site(&clock);
    let target = "/limit?policy=api&key=user:42";
    let hour = set(
        &router,
        target,
        json!({"limit": 0, "ends_after_seconds": 3_600}),
    )
    .await;
    assert_eq!(
        (&hour["limit"], &hour["ends_at"]),
        (&"blocked".into(), &"2083-01-15T05:00:00.000Z".into())
    );
    assert_eq!(get(&router, target).await, hour);
    let until = json!({"limit": "blocked", "ends_at": "2083-01-15T05:30:00+01:00"});
    assert_eq!(
        set(&router, target, until).await["ends_at"],
        "2083-01-15T04:30:00.000Z"
    );
    clock.advance(Duration::from_mins(30));
    assert_eq!(charge(&limiter, &user(42), 1).await, 1);
    assert_eq!(status(&router, target).await, 404);
}

#[tokio::test]
async fn the_limit_of_all_is_set_only_when_that_is_said() {
    let (router, limiter) = site(&clock());
    for query in [
        "",
        "policy=api",
        "policy=api&key=user:1&all=true",
        "policy=api&all=yes",
        "key=user:1",
        "policy=api&key=",
    ] {
        let target = format!("/limit?{query}");
        assert_eq!(
            put(&router, &target, r#"{"limit": "blocked"}"#)
                .await
                .status,
            422,
            "{query}"
        );
        assert_eq!(ask(&router, "DELETE", &target).await.status, 422, "{query}");
    }
    assert_eq!(charge(&limiter, &user(1), 1).await, 1);
    let all = set(&router, "/limit?policy=api&all=true", json!({"limit": 9})).await;
    assert_eq!(all, json!({"policy": "api", "limit": 9}));
    assert_eq!(charge(&limiter, &user(1), 9).await, 8);
    assert_eq!(
        get(&router, "/limits?policy=api").await["limits"],
        json!([])
    );
}

#[tokio::test]
async fn bodies_that_are_no_limit_are_told_what_one_is() {
    let (router, limiter) = site(&clock());
    let target = "/limit?policy=api&key=user:42";
    for body in ["", "{", "limit=5", "\u{0}", "{\"limit\": 5} 5"] {
        assert_eq!(put(&router, target, body).await.status, 400, "{body}");
    }
    for body in [
        "{}",
        "5",
        "[]",
        "null",
        r#"{"limit": -1}"#,
        r#"{"limit": 4294967296}"#,
        r#"{"limit": 1.5}"#,
        r#"{"limit": "all"}"#,
        r#"{"limit": null}"#,
        r#"{"limit": {"blocked": null}}"#,
        "[5, null, 60]",
        r#"{"limit": 5, "limit": 6}"#,
        r#"{"limit": 5, "key": "user:1"}"#,
        r#"{"limit": 5, "ends_at": "soon"}"#,
        r#"{"limit": 5, "ends_at": "2020-01-01T00:00:00Z"}"#,
        r#"{"limit": 5, "ends_after_seconds": 0}"#,
        r#"{"limit": 5, "ends_after_seconds": -1}"#,
        r#"{"limit": 5, "ends_after_seconds": 18446744073709551615}"#,
        r#"{"limit": 5, "ends_after_seconds": 60, "ends_at": "2030-01-01T00:00:00Z"}"#,
    ] {
        assert_eq!(put(&router, target, body).await.status, 422, "{body}");
    }
    let deep = "[".repeat(4_000);
    assert_eq!(put(&router, target, deep).await.status, 400);
    let endless = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>("x".repeat(99)));
    assert_eq!(
        put(&router, target, Body::from_stream(endless))
            .await
            .status,
        413
    );
    let broken = futures_util::stream::iter([Ok("{"), Err(std::io::Error::other("gone"))]);
    assert_eq!(
        put(&router, target, Body::from_stream(broken)).await.status,
        400
    );
    let long = (0..200).fold(user(1), |key, n| key.and("part", n));
    let long = format!("/limit?policy=api&key={}", encoded(long.as_str()));
    assert_eq!(put(&router, &long, r#"{"limit": 5}"#).await.status, 422);
    assert_eq!(charge(&limiter, &user(42), 3).await, 2, "nothing was set");
}

#[tokio::test]
async fn while_limits_are_added_no_page_tells_one_twice_or_leaves_one_out() {
    let limiter = Limiter::new(Policy::fixed(2, 60).name("api")).store(&MemoryStore::new());
    let router = admin().limiter(&limiter).into_router().unwrap();
    let add = async |id: u32| {
        limiter
            .set_limit("api", &user(format!("{id:04}")), Limit::of(id))
            .await
            .unwrap();
    };
    for id in (0..100).step_by(2) {
        add(id).await;
    }
    let (mut found, mut after, mut added) = (Vec::new(), String::new(), 0);
    loop {
        let page = get(&router, &format!("/limits?policy=api&limit=7{after}")).await;
        let limits = page["limits"].as_array().unwrap().iter();
        found.extend(limits.map(|limit| limit["key"].as_str().unwrap().to_owned()));
        // Before the page and behind it.
        for id in [2 * added + 1, 99 - 2 * added] {
            add(id).await;
        }
        added += 1;
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", encoded(next)),
            None => break,
        }
    }
    assert!(found.is_sorted_by(|one, other| one < other), "{found:?}");
    for id in (0..100).step_by(2) {
        let key = user(format!("{id:04}"));
        assert!(found.iter().any(|found| *found == key.as_str()), "{id}");
    }
    assert_eq!(status(&router, "/limits?policy=api&after=alice").await, 422);
}
