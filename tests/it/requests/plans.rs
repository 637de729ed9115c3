//! One policy of a fixed set, chosen for each request.

use axum::body::Body;
use http::Request;
use tollgate::{Decisions, Key, Policy, PolicyError, RateLimitLayer, Store, key};
use tower::{Layer, ServiceBuilder};

use super::{from_alice_with, used};
use crate::support::{CLIENT, capture_log, clock, from, hello, memory, send, sqlite};

const PLAN: &str = "x-plan";

fn free() -> Policy {
    Policy::fixed(1, 60).name("free")
}

fn pro() -> Policy {
    Policy::fixed(3, 60).name("pro")
}

/// The plan is what the request says in [`PLAN`], or `free`.
fn plans(store: &(impl Store + ?Sized)) -> RateLimitLayer {
    RateLimitLayer::one_of([free(), pro()], |parts| match parts.headers.get(PLAN) {
        Some(plan) => plan.to_str().unwrap(),
        None => "free",
    })
    .key(key::header(CLIENT))
    .store(store)
}

fn on(plan: &str) -> Request<Body> {
    from_alice_with(PLAN, plan)
}

#[tokio::test]
async fn each_request_is_held_to_the_policy_of_its_plan() {
    let service = plans(&sqlite(&clock())).layer(hello());
    let mut statuses = Vec::new();
    for plan in ["free", "free", "pro", "pro", "pro", "pro"] {
        statuses.push(send(&service, on(plan)).await.status);
    }
    assert_eq!(statuses, [200, 429, 200, 200, 200, 429]);
}

#[tokio::test]
async fn the_fields_show_the_policy_that_applied() {
    let service = plans(&memory(&clock())).layer(hello());
    let answer = send(&service, on("pro")).await;
    assert_eq!(answer.only("ratelimit-policy"), "\"pro\";q=3;w=60");
    assert_eq!(answer.only("ratelimit"), "\"pro\";r=2;t=60");
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.only("ratelimit-policy"), "\"free\";q=1;w=60");
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.only("ratelimit-policy"), "\"free\";q=1;w=60");
    assert_eq!(
        answer.json()["violated-policies"],
        serde_json::json!(["free"])
    );
}

#[tokio::test]
async fn a_request_uses_nothing_of_the_other_plans() {
    let store = sqlite(&clock());
    send(&plans(&store).layer(hello()), on("pro")).await;
    assert_eq!(used(pro(), &store).await, 1);
    assert_eq!(used(free(), &store).await, 0);
}

#[tokio::test]
async fn a_plan_that_does_not_exist_is_a_mistake_in_the_set_up_and_never_unlimited() {
    let log = capture_log();
    let store = memory(&clock());
    let service = plans(&store).layer(hello());
    for name in ["gold", "", "free "] {
        let answer = send(&service, on(name)).await;
        assert_eq!(answer.status, 500, "{name}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(
            detail.ends_with("let one_of return the name of one of them [unknown-plan]"),
            "{detail}"
        );
        assert!(
            !detail.contains("gold") && !detail.contains("pro"),
            "{detail}"
        );
        assert_eq!(answer.header("ratelimit"), "");
    }
    let lines = log.lines_with("let one_of return the name of one of them");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].trim_start().starts_with("ERROR"), "{}", lines[0]);
    assert_eq!(used(free(), &store).await, 0);
}

#[tokio::test]
async fn a_policy_beside_the_plans_always_applies_and_can_not_be_chosen() {
    let store = memory(&clock());
    let all = Policy::fixed(3, 60).name("all");
    let layer = plans(&store).and(all.clone(), key::header(CLIENT));
    let service = layer.layer(hello());
    let answer = send(&service, on("pro")).await;
    assert_eq!(
        answer.only("ratelimit-policy"),
        "\"pro\";q=3;w=60, \"all\";q=3;w=60"
    );
    send(&service, from("alice")).await;
    assert_eq!(used(all, &store).await, 2);
    assert_eq!(send(&service, on("all")).await.status, 500);
}

#[tokio::test]
async fn the_limiter_looks_at_each_plan_and_resets_each() {
    let layer = plans(&memory(&clock()));
    let service = layer.layer(hello());
    send(&service, on("pro")).await;
    send(&service, on("pro")).await;
    send(&service, on("free")).await;
    let (limiter, alice) = (layer.limiter(), Key::header(CLIENT, "alice"));
    let seen = limiter.peek(&alice).await.unwrap();
    let used: Vec<_> = seen
        .verdicts()
        .map(|verdict| (verdict.policy().as_name(), verdict.used()))
        .collect();
    assert_eq!(used, [("free", 1), ("pro", 2)]);
    assert_eq!(limiter.reset(&alice).await.unwrap(), 3);
    assert_eq!(send(&service, on("free")).await.status, 200);
}

#[tokio::test]
async fn all_plans_are_announced_once() {
    let log = capture_log();
    let service = plans(&memory(&clock())).layer(hello());
    for plan in ["free", "pro", "pro"] {
        send(&service, on(plan)).await;
    }
    for said in ["free: 1 per 60 s", "pro: 3 per 60 s"] {
        assert_eq!(log.lines_with(said).len(), 1, "{said}");
    }
}

#[tokio::test]
async fn the_same_plans_around_and_inside_charge_a_request_once() {
    let store = sqlite(&clock());
    let layer = plans(&store);
    let service = ServiceBuilder::new()
        .layer(layer.clone())
        .layer(layer)
        .service(hello());
    let answer = send(&service, on("pro")).await;
    assert_eq!(answer.only("ratelimit"), "\"pro\";r=2;t=60");
    let decisions: &Decisions = answer.extensions.get().unwrap();
    assert_eq!(decisions.iter().len(), 1);
    assert_eq!(used(pro(), &store).await, 1);
}

#[tokio::test]
async fn who_changes_plans_has_the_counter_of_the_new_one() {
    let service = plans(&memory(&clock())).layer(hello());
    assert_eq!(send(&service, on("free")).await.status, 200);
    assert_eq!(send(&service, on("free")).await.status, 429);
    let answer = send(&service, on("pro")).await;
    assert_eq!(answer.only("ratelimit"), "\"pro\";r=2;t=60");
}

#[tokio::test]
async fn a_plan_may_be_read_from_an_extension() {
    #[derive(Clone)]
    struct Account {
        plan: String,
    }

    let layer = RateLimitLayer::one_of(vec![free(), pro()], |parts| {
        let account = parts.extensions.get::<Account>();
        account.map_or("free", |account| &account.plan)
    });
    let service = layer.key(key::header(CLIENT)).layer(hello());
    let mut request = from("alice");
    request.extensions_mut().insert(Account {
        plan: "pro".to_owned(),
    });
    let answer = send(&service, request).await;
    assert_eq!(answer.only("ratelimit-policy"), "\"pro\";q=3;w=60");
}

#[test]
fn plans_of_one_name_and_no_plans_are_errors() {
    let twice = RateLimitLayer::try_one_of([free(), Policy::daily(9).name("Free")], |_| "free");
    let taken = PolicyError::DuplicateName("Free".to_owned());
    assert_eq!(twice.err(), Some(taken));
    let none: Vec<Policy> = Vec::new();
    let none = RateLimitLayer::try_one_of(none, |_| "free");
    assert_eq!(none.err(), Some(PolicyError::NoPolicy));
}

#[test]
#[should_panic(expected = "a rate limit without any policy: give at least one")]
fn no_plans_panic() {
    let _ = RateLimitLayer::one_of([], |_| "free");
}

#[tokio::test]
async fn a_plan_is_found_whatever_the_case_of_its_name_as_policies_are_told_apart() {
    let store = memory(&clock());
    let answer = send(&plans(&store).layer(hello()), on("FREE")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(used(free(), &store).await, 1);
}
