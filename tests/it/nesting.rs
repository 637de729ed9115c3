//! Limits inside limits, and limits side by side.

use axum::Router;
use axum::routing::get as on_get;
use tollgate::{Key, Limiter, Policy, RateLimitLayer, Rejection, key};
use tower::{Layer, ServiceBuilder};

use crate::support::{
    CLIENT, LONG, clock, from, get, hello, login, memory, send, sqlite, statuses,
};

/// A layer as in the headline, but for the key and a window that no test crosses.
fn one_liner(limit: u32) -> RateLimitLayer {
    RateLimitLayer::fixed(limit, LONG).key(key::header(CLIENT))
}

#[tokio::test]
async fn a_strict_limit_on_a_route_and_a_wide_one_on_the_router_count_apart() {
    let (wide, strict) = (one_liner(100), one_liner(5));
    let (all, login) = (wide.limiter(), strict.limiter());
    let router = Router::new()
        .route("/login", on_get(|| async { "welcome" }).layer(strict))
        .route("/", on_get(|| async { "hello" }))
        .layer(wide);
    let mut login_request = Vec::new();
    for _ in 0..6 {
        let mut request = from("alice");
        *request.uri_mut() = "/login".parse().unwrap();
        login_request.push(send(&router, request).await.status);
    }
    assert_eq!(login_request, [200, 200, 200, 200, 200, 429]);
    assert_eq!(statuses(&router, "alice", 1).await, [200]);
    let key = Key::header(CLIENT, "alice");
    assert_eq!(all.peek(&key).await.unwrap().used(), 7);
    assert_eq!(login.peek(&key).await.unwrap().used(), 5);
}

#[tokio::test]
async fn two_layers_of_equal_numbers_never_meet_without_a_store() {
    let first = one_liner(3).layer(hello());
    let second = one_liner(3).layer(hello());
    assert_eq!(statuses(&first, "alice", 4).await, [200, 200, 200, 429]);
    assert_eq!(statuses(&second, "alice", 4).await, [200, 200, 200, 429]);
}

#[tokio::test]
async fn two_layers_of_equal_numbers_in_one_stack_both_count() {
    let (outer, inner) = (one_liner(3), one_liner(3));
    let limiters = [outer.limiter(), inner.limiter()];
    let service = ServiceBuilder::new()
        .layer(outer)
        .layer(inner)
        .service(hello());
    send(&service, from("alice")).await;
    for limiter in limiters {
        let key = Key::header(CLIENT, "alice");
        assert_eq!(limiter.peek(&key).await.unwrap().used(), 1);
    }
}

#[tokio::test]
async fn clones_of_a_layer_share_their_counters() {
    let layer = one_liner(3);
    let first = layer.clone().layer(hello());
    let second = layer.layer(hello());
    assert_eq!(statuses(&first, "alice", 2).await, [200, 200]);
    assert_eq!(statuses(&second, "alice", 2).await, [200, 429]);
}

#[tokio::test]
async fn services_made_for_each_request_share_one_counter() {
    let layer = one_liner(3);
    let mut seen = Vec::new();
    for _ in 0..5 {
        let service = layer.layer(hello());
        seen.extend(statuses(&service.clone(), "alice", 1).await);
    }
    assert_eq!(seen, [200, 200, 200, 429, 429]);
}

#[tokio::test]
async fn layers_of_one_name_on_one_store_share_their_counters() {
    let store = sqlite(&clock());
    let first = login(3, 60, &store).layer(hello());
    let second = login(3, 60, &store).layer(hello());
    assert_eq!(statuses(&first, "alice", 2).await, [200, 200]);
    assert_eq!(statuses(&second, "alice", 2).await, [200, 429]);
}

#[tokio::test]
async fn layers_of_one_name_but_other_windows_count_apart() {
    let store = sqlite(&clock());
    let minute = login(5, 60, &store).layer(hello());
    let day = login(50, 86_400, &store).layer(hello());
    assert_eq!(
        statuses(&minute, "alice", 6).await,
        [200, 200, 200, 200, 200, 429]
    );
    assert_eq!(
        send(&day, from("alice")).await.only("ratelimit-policy"),
        "\"login\";q=50;w=86400"
    );
    let answer = send(&day, from("alice")).await;
    assert!(answer.only("ratelimit").starts_with("\"login\";r=48;"));
}

#[tokio::test]
async fn five_a_minute_inside_fifty_a_day_each_count_every_request() {
    let store = sqlite(&clock());
    let service = ServiceBuilder::new()
        .layer(login(50, 3_600, &store).name("hour"))
        .layer(login(5, 60, &store).name("minute"))
        .service(hello());
    for left in 1..=5 {
        let answer = send(&service, from("alice")).await;
        let expected = format!(
            "\"minute\";r={};t=60, \"hour\";r={};t=3600",
            5 - left,
            50 - left
        );
        assert_eq!((answer.status, answer.header("ratelimit")), (200, expected));
    }
    assert_eq!(send(&service, from("alice")).await.status, 429);
}

#[tokio::test]
async fn a_refusal_of_the_inner_one_has_the_list_fields_of_both_and_one_retry_after() {
    let store = memory(&clock());
    let service = ServiceBuilder::new()
        .layer(login(100, 3_600, &store).name("all"))
        .layer(login(1, 60, &store))
        .service(hello());
    send(&service, from("alice")).await;
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.only("retry-after"), "60");
    assert_eq!(answer.only("cache-control"), "no-store");
    assert_eq!(
        answer.header("ratelimit-policy"),
        "\"login\";q=1;w=60, \"all\";q=100;w=3600"
    );
    assert_eq!(
        answer.header("ratelimit"),
        "\"login\";r=0;t=60, \"all\";r=98;t=3600"
    );
    assert_eq!(
        answer.json()["violated-policies"],
        serde_json::json!(["login"])
    );
}

#[tokio::test]
async fn a_refusal_of_the_outer_one_never_asks_the_inner_one() {
    let store = memory(&clock());
    let inner = login(9, 60, &store);
    let limiter = inner.limiter();
    let service = ServiceBuilder::new()
        .layer(login(1, 3_600, &store).name("all"))
        .layer(inner)
        .service(hello());
    send(&service, from("alice")).await;
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.only("ratelimit"), "\"all\";r=0;t=3600");
    let key = Key::header(CLIENT, "alice");
    assert_eq!(limiter.peek(&key).await.unwrap().attempts(), 1);
}

#[tokio::test]
async fn the_same_layer_around_and_inside_charges_a_request_once() {
    let layer = login(3, 60, &sqlite(&clock()));
    let service = ServiceBuilder::new()
        .layer(layer.clone())
        .layer(layer)
        .service(hello());
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.only("ratelimit"), "\"login\";r=2;t=60");
    assert_eq!(statuses(&service, "alice", 3).await, [200, 200, 429]);
}

#[tokio::test]
async fn one_policy_with_two_keys_in_one_request_charges_both() {
    let layer = login(3, 60, &memory(&clock()));
    let limiter = layer.limiter();
    let service = ServiceBuilder::new()
        .layer(layer.clone())
        .layer(layer.key(key::constant("all")))
        .service(hello());
    assert_eq!(send(&service, from("alice")).await.status, 200);
    for key in [Key::header(CLIENT, "alice"), Key::constant("all")] {
        assert_eq!(limiter.peek(&key).await.unwrap().used(), 1);
    }
}

#[tokio::test]
async fn a_refusal_that_a_handler_answers_has_the_fields_of_the_layer_too() {
    let store = memory(&clock());
    let mails = Limiter::new(Policy::fixed(0, 3_600).name("mails")).store(&store);
    let handler = move || async move {
        let decision = mails.check(&Key::constant("all")).await.unwrap();
        Rejection::Denied(decision)
    };
    let router = Router::new()
        .route("/", on_get(handler))
        .layer(login(5, 60, &store));
    let answer = send(&router, from("alice")).await;
    assert_eq!(answer.status, 429);
    assert_eq!(
        answer.header("ratelimit"),
        "\"mails\";r=0;t=3600, \"login\";r=4;t=60"
    );
    assert_eq!(answer.header("retry-after"), "");
    assert_eq!(
        answer.json()["violated-policies"],
        serde_json::json!(["mails"])
    );
}

#[tokio::test]
async fn a_lower_limit_on_the_same_counter_still_refuses_inside_a_higher_one() {
    let store = memory(&clock());
    let service = ServiceBuilder::new()
        .layer(login(100, 60, &store))
        .layer(login(2, 60, &store))
        .service(hello());
    let statuses = statuses(&service, "alice", 4).await;
    assert_eq!(statuses.last(), Some(&429), "{statuses:?}");
}

#[tokio::test]
async fn what_is_left_to_the_inner_one_is_told_right_also_when_memory_lets_it_pass() {
    let store = sqlite(&clock());
    let inner = RateLimitLayer::new([
        Policy::fixed(5_000, LONG).name("login"),
        Policy::daily(9_000).name("quota"),
    ]);
    let inner = inner.key(key::header(CLIENT)).store(&store);
    let service = login(10_000, LONG, &store).layer(inner.layer(hello()));
    // Until both have charged ahead, and beyond it.
    for n in 1..=2_000 {
        let answer = send(&service, from("alice")).await;
        assert_eq!(answer.status, 200);
        let own = format!("\"login\";r={};t=", 5_000 - n);
        let quota = format!("\"quota\";r={};t=", 9_000 - n);
        let fields = answer.header("ratelimit");
        assert!(fields.contains(&own) && fields.contains(&quota), "{fields}");
    }
}

#[tokio::test]
async fn a_switched_off_limit_counts_nothing_and_lets_all_pass() {
    let layer = login(1, 60, &memory(&clock()));
    let limiter = layer.limiter();
    let service = layer.enabled(false).layer(hello());
    assert_eq!(statuses(&service, "alice", 3).await, [200, 200, 200]);
    assert_eq!(send(&service, get("/")).await.status, 200);
    let key = Key::header(CLIENT, "alice");
    assert_eq!(limiter.peek(&key).await.unwrap().attempts(), 0);
}

#[tokio::test]
async fn a_limit_switched_off_and_on_again_limits() {
    let layer = login(1, 60, &memory(&clock())).enabled(false).enabled(true);
    assert_eq!(
        statuses(&layer.layer(hello()), "alice", 2).await,
        [200, 429]
    );
}
