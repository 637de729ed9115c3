//! The state of a key, and letting it through.

use std::time::Duration;

use tollgate::{Key, Limiter, MemoryStore, Policy, RateLimitLayer};

use super::{admin, ask, charge, encoded, get, user};
use crate::support::{clock, memory, sqlite};

#[tokio::test]
async fn the_state_of_a_key_tells_why_it_is_refused_and_for_how_long() {
    let clock = clock();
    let store = sqlite(&clock);
    let login = Policy::fixed(2, 60)
        .name("login")
        .block_for(Duration::from_mins(10));
    let limiter = Limiter::new([login, Policy::daily(100).name("day")]).store(&store);
    let router = admin().limiter(&limiter).into_router().unwrap();
    assert_eq!(charge(&limiter, &user(42), 3).await, 2);
    clock.advance(Duration::from_millis(500));

    let state = get(&router, "/counters?key=user:42").await;
    assert_eq!(state["key"], "user:42");
    let [day, login] = &*state["counters"].as_array().unwrap().clone() else {
        panic!("{state}");
    };
    assert_eq!((&day["policy"], &day["used"]), (&"day".into(), &2.into()));
    assert_eq!(
        (&day["allowed"], &day["remaining"]),
        (&true.into(), &98.into())
    );
    assert_eq!((&login["limit"], &login["used"]), (&2.into(), &2.into()));
    assert_eq!(
        (&login["attempts"], &login["remaining"]),
        (&3.into(), &0.into())
    );
    assert_eq!(login["allowed"], false);
    for name in [
        "reset_after_seconds",
        "retry_after_seconds",
        "blocked_for_seconds",
    ] {
        assert_eq!(login[name], 599.5, "{name}");
    }
    let one = get(&router, "/counters?key=user:42&policy=day").await;
    assert_eq!(one["counters"].as_array().unwrap().len(), 1);
    // Looking has used nothing.
    assert_eq!(get(&router, "/counters?key=user:42").await, state);
}

#[tokio::test]
async fn a_reset_lets_a_key_through_and_what_begins_with_it_only_when_asked() {
    let store = memory(&clock());
    let limiter = Limiter::new(Policy::sliding(1, 60).name("login")).store(&store);
    let other = Limiter::new(Policy::fixed(1, 60).name("other")).store(&store);
    let router = admin()
        .limiter(&limiter)
        .limiter(&other)
        .into_router()
        .unwrap();
    let route = user(42).and("route", "/a|b é");
    for limiter in [&limiter, &other] {
        for key in [user(42), route.clone(), user(421)] {
            assert_eq!(charge(limiter, &key, 2).await, 1);
        }
    }
    let reset = ask(&router, "DELETE", "/counters?key=user:42&policy=login")
        .await
        .json();
    assert_eq!(
        (&reset["units"], &reset["policies"][0]["policy"]),
        (&1.into(), &"login".into())
    );
    assert_eq!(charge(&limiter, &user(42), 1).await, 1);
    assert_eq!(charge(&limiter, &route, 1).await, 0);
    assert_eq!(charge(&other, &user(42), 1).await, 0);

    let target = format!("/counters?key={}", encoded(route.as_str()));
    assert_eq!(ask(&router, "DELETE", &target).await.json()["units"], 2);
    assert_eq!(charge(&limiter, &route, 1).await, 1);

    let reset = ask(&router, "DELETE", "/counters?under=user:42")
        .await
        .json();
    assert_eq!(
        (&reset["units"], reset["policies"].as_array().unwrap().len()),
        (&3.into(), 2)
    );
    assert_eq!(charge(&other, &user(42), 1).await, 1);
    assert_eq!(charge(&other, &user(421), 1).await, 0);
}

#[tokio::test]
async fn a_whole_policy_is_reset_only_when_that_is_said() {
    let store = memory(&clock());
    let login = RateLimitLayer::sliding(1, 60).name("login").store(&store);
    // A shadow counts apart.
    let shadow = login.clone().shadow(true);
    let router = admin().layer(&login).layer(&shadow).into_router().unwrap();
    let (limiter, shadow) = (login.limiter(), shadow.limiter());
    for limiter in [&limiter, &shadow] {
        for id in 0..5 {
            assert_eq!(charge(limiter, &user(id), 2).await, 1);
        }
    }
    for query in [
        "policy=login",
        "all=true",
        "all=1&policy=login",
        "all=true&policy=login&key=user:1",
        "key=user:1&under=user:1",
        "",
        "key=&policy=login",
    ] {
        let target = format!("/counters?{query}");
        assert_eq!(ask(&router, "DELETE", &target).await.status, 422, "{query}");
    }
    assert_eq!(charge(&limiter, &user(1), 1).await, 0);
    let reset = ask(&router, "DELETE", "/counters?policy=login&all=true").await;
    assert_eq!(reset.json()["units"], 5);
    assert_eq!(charge(&limiter, &user(1), 1).await, 1);
    assert_eq!(charge(&shadow, &user(1), 1).await, 0);
    let reset = ask(
        &router,
        "DELETE",
        "/counters?policy=shadow%3Blogin&key=user:1",
    )
    .await;
    assert_eq!(reset.json()["units"], 1);
    assert_eq!(charge(&shadow, &user(1), 1).await, 1);
}

#[tokio::test]
async fn keys_are_read_as_they_are_stored_and_nothing_else_is_one() {
    let limiter = Limiter::new(Policy::fixed(9, 60).name("p")).store(&MemoryStore::new());
    let router = admin().limiter(&limiter).into_router().unwrap();
    let odd = Key::header("x-api-key", [0xA1, b'%', b'|'].as_slice()).and("q", "' OR 1=1; --");
    assert_eq!(charge(&limiter, &odd, 1).await, 1);
    let state = get(&router, &format!("/counters?key={}", encoded(odd.as_str()))).await;
    assert_eq!(state["counters"][0]["used"], 1);
    for text in [
        "", "alice", "user", "user:a|", "user:%41", "user:#zz", "ip%",
    ] {
        let target = format!("/counters?key={}", encoded(text));
        let answer = ask(&router, "GET", &target).await;
        assert_eq!(answer.status, 422, "{text}");
        assert!(
            answer.json()["detail"]
                .as_str()
                .unwrap()
                .contains("kind:value")
        );
    }
}

#[tokio::test]
async fn a_reset_reaches_every_store_that_answers() {
    let (closed, open) = (sqlite(&clock()), memory(&clock()));
    let first = Limiter::new(Policy::fixed(1, 60).name("first")).store(&closed);
    let second = Limiter::new(Policy::fixed(1, 60).name("second")).store(&open);
    let admin = admin().limiter(&first).limiter(&second);
    let router = admin.into_router().unwrap();
    assert_eq!(charge(&second, &user(42), 2).await, 1);
    closed.close().await.unwrap();
    let answer = ask(&router, "DELETE", "/counters?key=user:42").await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(charge(&second, &user(42), 1).await, 1);
}
