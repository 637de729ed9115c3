//! What clients are told of limits that were set for them.

use std::time::Duration;

use http::HeaderMap;
use tollgate::{Decisions, Key, Limit, Policy, RateLimitLayer, Rejection, ResetFormat, Store, key};
use tower::{Layer, ServiceBuilder};

use crate::support::{CLIENT, clock, from, hello, login, memory, send, sqlite, statuses};

fn alice() -> Key {
    Key::header(CLIENT, "alice")
}

/// What has a name of a rate limit field.
fn fields(headers: &HeaderMap) -> Vec<&str> {
    let names = headers.keys().map(http::HeaderName::as_str);
    names.filter(|name| name.contains("ratelimit")).collect()
}

async fn a_raised_limit_shows(store: &impl Store) {
    let layer = login(1, 60, store).x_rate_limit(ResetFormat::DeltaSeconds);
    let limiter = layer.limiter();
    let service = layer.layer(hello());
    assert_eq!(statuses(&service, "alice", 2).await, [200, 429]);
    limiter.set_limit("login", &alice(), 10).await.unwrap();
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.only("ratelimit-policy"), "\"login\";q=10;w=60");
    assert_eq!(answer.only("ratelimit"), "\"login\";r=8;t=60");
    assert_eq!(answer.x_fields(), ["10", "8", "60"]);
    let decisions: &Decisions = answer.extensions.get().unwrap();
    let verdict = decisions.iter().next().unwrap().verdicts().next().unwrap();
    assert_eq!(verdict.stored_limit(), Some(Limit::of(10)));
    let other = send(&service, from("bob")).await;
    assert_eq!(other.only("ratelimit-policy"), "\"login\";q=1;w=60");
    // Below what is used: nothing is left, and never less.
    limiter.set_limit("login", &alice(), 1).await.unwrap();
    let refused = send(&service, from("alice")).await;
    assert_eq!(
        (refused.status, refused.only("ratelimit")),
        (429, "\"login\";r=0;t=60")
    );
    assert_eq!(refused.json()["limit"], 1);
    assert!(limiter.remove_limit("login", &alice()).await.unwrap());
    assert_eq!(
        limiter.peek(&alice()).await.unwrap().policy(),
        limiter.policy()
    );
}

#[tokio::test]
async fn a_raised_limit_is_in_the_fields_and_lets_the_next_request_in() {
    a_raised_limit_shows(&sqlite(&clock())).await;
    a_raised_limit_shows(&memory(&clock())).await;
}

#[tokio::test]
async fn a_blocked_key_is_told_when_it_ends_or_nothing() {
    let layer = login(5, 60, &sqlite(&clock()));
    let limiter = layer.limiter();
    let service = layer.layer(hello());
    let hour = Duration::from_hours(1);
    let blocked = Limit::BLOCKED.ends_after(hour);
    limiter.set_limit("login", &alice(), blocked).await.unwrap();
    let refused = send(&service, from("alice")).await;
    assert_eq!((refused.status, refused.only("retry-after")), (429, "3600"));
    assert_eq!(refused.json()["retry_after"], 3_600);
    assert_eq!(refused.only("ratelimit"), "\"login\";r=0;t=3600");
    limiter
        .set_limit("login", &alice(), Limit::BLOCKED)
        .await
        .unwrap();
    let refused = send(&service, from("alice")).await;
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (429, String::new())
    );
    let body = refused.json();
    assert_eq!((body.get("retry_after"), &body["limit"]), (None, &0.into()));
    let detail = "The policy login allows no requests per 60 seconds.";
    assert_eq!(body["detail"], detail);
}

#[tokio::test]
async fn an_exempt_key_is_told_of_no_limit() {
    let layer = login(1, 60, &sqlite(&clock())).x_rate_limit(ResetFormat::DeltaSeconds);
    let limiter = layer.limiter();
    let service = layer.layer(hello());
    limiter
        .set_limit("login", &alice(), Limit::EXEMPT)
        .await
        .unwrap();
    for _ in 0..9 {
        let answer = send(&service, from("alice")).await;
        assert_eq!((answer.status, fields(&answer.headers)), (200, vec![]));
    }
    assert_eq!(
        limiter.peek(&alice()).await.unwrap().used(),
        9,
        "it is counted"
    );
    assert_eq!(statuses(&service, "bob", 2).await, [200, 429]);
}

#[tokio::test]
async fn of_several_policies_those_are_told_that_limit_the_key() {
    let policies = [
        Policy::fixed(5, 60).name("minute"),
        Policy::daily(9).name("day"),
    ];
    let layer = RateLimitLayer::new(policies)
        .key(key::header(CLIENT))
        .store(&sqlite(&clock()));
    let limiter = layer.limiter();
    let service = layer.layer(hello());
    limiter
        .set_limit("minute", &alice(), Limit::EXEMPT)
        .await
        .unwrap();
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.only("ratelimit-policy"), "\"day\";q=9;w=86400");
    assert_eq!(answer.header("ratelimit").matches(';').count(), 2);
    limiter
        .set_limit("day", &alice(), Limit::BLOCKED)
        .await
        .unwrap();
    let refused = send(&service, from("alice")).await;
    assert_eq!(
        refused.json()["violated-policies"],
        serde_json::json!(["day"])
    );
}

#[tokio::test]
async fn a_limit_inside_itself_is_held_to_what_was_set_for_both() {
    let store = sqlite(&clock());
    let (outer, inner) = (login(9, 60, &store), login(2, 60, &store));
    let limiter = inner.limiter();
    let service = ServiceBuilder::new()
        .layer(outer)
        .layer(inner)
        .service(hello());
    assert_eq!(statuses(&service, "alice", 3).await, [200, 200, 429]);
    limiter.set_limit("login", &alice(), 4).await.unwrap();
    // Three were charged: the one that the inner layer refused was.
    assert_eq!(statuses(&service, "alice", 2).await, [200, 429]);
    limiter
        .set_limit("login", &alice(), Limit::EXEMPT)
        .await
        .unwrap();
    assert_eq!(statuses(&service, "alice", 3).await, [200; 3]);
    let decision = limiter.peek(&alice()).await.unwrap();
    assert_eq!(decision.used(), 7, "each was charged once");
}

#[tokio::test]
async fn a_rejection_that_a_handler_makes_tells_the_limit_that_was_set() {
    let layer = login(5, 60, &memory(&clock()));
    let limiter = layer.limiter();
    limiter.set_limit("login", &alice(), 1).await.unwrap();
    limiter
        .check(&alice())
        .await
        .unwrap()
        .into_result()
        .unwrap();
    let denied = limiter
        .check(&alice())
        .await
        .unwrap()
        .into_result()
        .unwrap_err();
    let response = Rejection::from(denied).to_response(&tollgate::Problem::default());
    assert_eq!(response.headers()["ratelimit-policy"], "\"login\";q=1;w=60");
}
