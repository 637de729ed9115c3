//! What was recorded.

use std::time::Duration;

use serde_json::json;
use tollgate::{Policy, RateLimitLayer, SqliteStore, key};
use tower::Layer;

use super::{admin, ask, get, status};
use crate::support::{CLIENT, clock, hello, sqlite, statuses};

/// Three days, of which the second has nothing, and the last is today.
async fn site() -> (axum::Router, SqliteStore) {
    let clock = clock();
    let store = sqlite(&clock);
    let of = |name: &str| {
        let layer = RateLimitLayer::new(Policy::fixed(100, 60).name(name));
        layer.key(key::header(CLIENT)).store(&store).audit(&store)
    };
    let (api, login) = (of("api").layer(hello()), of("login").layer(hello()));
    statuses(&api, "alice", 3).await;
    statuses(&api, "bob", 1).await;
    clock.advance(Duration::from_hours(48));
    statuses(&login, "alice", 2).await;
    let admin = admin().layer(&of("api")).store(&store);
    (admin.into_router().unwrap(), store)
}

#[tokio::test]
async fn usage_is_of_thirty_days_unless_others_are_asked_for() {
    let (router, _store) = site().await;
    let all = json!({"from": "2082-12-19", "to": "2083-01-17", "requests": 6, "units": 6});
    assert_eq!(get(&router, "/usage").await, all);
    let until = get(&router, "/usage?to=2083-01-16").await;
    assert_eq!(
        (&until["from"], &until["requests"]),
        (&"2082-12-18".into(), &4.into())
    );
    let since = get(&router, "/usage?from=2083-01-16").await;
    assert_eq!(
        (&since["to"], &since["requests"]),
        (&"2083-01-17".into(), &2.into())
    );
    let key = super::encoded(&format!("header/{CLIENT}:alice"));
    assert_eq!(
        get(&router, &format!("/usage?key={key}&policy=api")).await["requests"],
        3
    );
    assert_eq!(get(&router, "/usage?route=/nowhere").await["requests"], 0);
}

#[tokio::test]
async fn usage_is_broken_down_and_days_come_in_pages() {
    let (router, _store) = site().await;
    let [alice, bob] = ["alice", "bob"].map(|name| format!("header/{CLIENT}:{name}"));
    let keys = get(&router, "/usage/keys").await;
    assert_eq!(
        keys["usage"],
        json!([{"key": alice, "requests": 5, "units": 5}, {"key": bob, "requests": 1, "units": 1}])
    );
    assert_eq!(
        get(&router, "/usage/keys?limit=1").await["usage"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let policies = get(&router, "/usage/policies").await;
    assert_eq!(
        policies["usage"][1],
        json!({"policy": "login", "requests": 2, "units": 2})
    );
    assert_eq!(
        get(&router, "/usage/routes").await["usage"],
        json!([{"route": "", "requests": 6, "units": 6}])
    );

    let first = get(&router, "/usage/days?limit=1").await;
    assert_eq!(
        first["usage"],
        json!([{"day": "2083-01-15", "requests": 4, "units": 4}])
    );
    let after = first["next"].as_str().unwrap();
    let second = get(&router, &format!("/usage/days?limit=1&after={after}")).await;
    assert_eq!(
        second["usage"],
        json!([{"day": "2083-01-17", "requests": 2, "units": 2}])
    );
    assert!(second.get("next").is_none());
}

#[tokio::test]
async fn days_that_are_none_are_told() {
    let (router, _store) = site().await;
    for query in [
        "from=2083-02-29",
        "to=2083-13-01",
        "from=yesterday",
        "from=",
        "from=2083-01-02&to=2083-01-01",
        "from=2000-01-01&to=2083-01-01",
        "from=2083-01-01T00:00:00Z",
    ] {
        for path in [
            "/usage",
            "/usage/days",
            "/usage/keys",
            "/usage/policies",
            "/usage/routes",
        ] {
            let answer = ask(&router, "GET", &format!("{path}?{query}")).await;
            assert_eq!(answer.status, 422, "{query}");
        }
    }
    assert_eq!(status(&router, "/usage/days?after=soon").await, 422);
    assert_eq!(status(&router, "/usage?key=alice").await, 422);
    // At the ends of the calendar.
    assert_eq!(status(&router, "/usage?to=0000-01-01").await, 200);
    assert_eq!(status(&router, "/usage?to=9999-12-31").await, 200);
}
