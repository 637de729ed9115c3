//! What a refusal by several policies answers, and what others are told of a decision.

use std::time::Duration;

use http::Method;
use tollgate::{
    Decisions, FailureMode, Key, Limiter, Policy, Problem, Rejection, ResetFormat, SqliteStore,
    Verdict,
};
use tower::Layer;

use super::{burst_and_quota, by_client};
use crate::support::{Answer, CLIENT, clock, from, hello, memory, send, sqlite, statuses};

#[tokio::test]
async fn the_violated_policies_are_exactly_those_that_were_exceeded() {
    let names = ["a", "b", "c"];
    for exceeded in 1..8_u32 {
        let is_exceeded = |place: usize| exceeded & (1 << place) != 0;
        let policies = [0, 1, 2].map(|place| {
            let limit = if is_exceeded(place) { 0 } else { 9 };
            Policy::sliding(limit, 60).name(names[place])
        });
        let service = by_client(policies, &sqlite(&clock())).layer(hello());
        let answer = send(&service, from("alice")).await;
        assert_eq!(answer.status, 429);
        let violated: Vec<_> = (0..3).filter(|place| is_exceeded(*place)).collect();
        let violated: Vec<_> = violated.into_iter().map(|place| names[place]).collect();
        assert_eq!(
            answer.json()["violated-policies"],
            serde_json::json!(violated)
        );
    }
}

/// The refusal by a short and a long policy, of which the long one allows twice as much.
async fn refused_by_both(is_long_first: bool) -> Answer {
    let clock = clock();
    let store = memory(&clock);
    let short = Policy::fixed(1, 60).name("short");
    let long = Policy::fixed(2, 900).name("long");
    let open = Policy::fixed(9, 3_600).name("open");
    // A unit of the long one is used before.
    let alone = by_client(long.clone(), &store).layer(hello());
    assert_eq!(statuses(&alone, "alice", 1).await, [200]);
    let policies = if is_long_first {
        [long, open, short]
    } else {
        [open, short, long]
    };
    let service = by_client(policies, &store).layer(hello());
    assert_eq!(statuses(&service, "alice", 1).await, [200]);
    clock.advance(Duration::from_millis(1_500));
    send(&service, from("alice")).await
}

#[tokio::test]
async fn retry_after_is_the_latest_of_the_violated_policies_in_header_and_body() {
    for is_long_first in [true, false] {
        let answer = refused_by_both(is_long_first).await;
        assert_eq!(answer.status, 429);
        assert_eq!(answer.only("retry-after"), "899");
        assert_eq!(answer.json()["retry_after"], 899);
    }
}

#[tokio::test]
async fn limit_and_window_of_the_body_are_of_the_policy_that_set_retry_after() {
    for is_long_first in [true, false] {
        let problem = refused_by_both(is_long_first).await.json();
        assert_eq!(
            (&problem["limit"], &problem["window_seconds"]),
            (&2.into(), &900.into())
        );
        assert_eq!(
            problem["detail"],
            "The policy long allows 2 requests per 900 seconds."
        );
    }
}

#[tokio::test]
async fn the_longer_wait_of_a_policy_that_has_room_does_not_count() {
    let service = burst_and_quota(&memory(&clock())).layer(hello());
    statuses(&service, "alice", 2).await;
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.only("retry-after"), "10");
    let expected = serde_json::json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota Exceeded",
        "status": 429,
        "detail": "The policy burst allows 2 requests per 10 seconds.",
        "limit": 2,
        "window_seconds": 10,
        "retry_after": 10,
        "violated-policies": ["burst"],
    });
    assert_eq!(answer.json(), expected);
}

#[tokio::test]
async fn no_wait_is_promised_when_one_of_the_violated_policies_never_has_room() {
    let exhausted = Policy::fixed(1, 900).name("exhausted");
    let never = Policy::fixed(0, 60).name("never");
    for policies in [
        [exhausted.clone(), never.clone()],
        [never.clone(), exhausted.clone()],
    ] {
        let store = memory(&clock());
        let alone = by_client(exhausted.clone(), &store).layer(hello());
        assert_eq!(statuses(&alone, "alice", 1).await, [200]);
        let names = policies
            .each_ref()
            .map(|policy| policy.as_name().to_owned());
        let answer = send(&by_client(policies, &store).layer(hello()), from("alice")).await;
        assert_eq!(answer.status, 429);
        assert_eq!(answer.header("retry-after"), "");
        let problem = answer.json();
        assert_eq!(problem.get("retry_after"), None);
        assert_eq!(problem["limit"], 0);
        assert_eq!(problem["violated-policies"], serde_json::json!(names));
    }
}

#[tokio::test]
async fn a_detail_of_ones_own_is_told_all_verdicts() {
    let problem = Problem::new("about:blank", "Too Many Requests").detail(|denied| {
        let waits = denied
            .verdicts()
            .map(|verdict| match verdict.retry_after() {
                Some(wait) => format!("{} in {} s", verdict.policy().as_name(), wait.as_secs()),
                None => format!("{} now", verdict.policy().as_name()),
            });
        waits.collect::<Vec<_>>().join(", ")
    });
    let layer = burst_and_quota(&memory(&clock())).problem(problem);
    let service = layer.layer(hello());
    statuses(&service, "alice", 2).await;
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.json()["detail"], "burst in 10 s, quota now");
}

#[tokio::test]
async fn a_refused_head_has_the_fields_of_get_and_no_body() {
    let service = burst_and_quota(&memory(&clock())).layer(hello());
    statuses(&service, "alice", 2).await;
    let whole = send(&service, from("alice")).await;
    let mut request = from("alice");
    *request.method_mut() = Method::HEAD;
    let answer = send(&service, request).await;
    assert_eq!(answer.status, 429);
    assert!(answer.body.is_empty());
    assert_eq!(answer.only("content-length"), whole.body.len().to_string());
    for name in whole.headers.keys() {
        let name = name.as_str();
        assert_eq!(answer.header(name), whole.header(name), "{name}");
    }
}

#[tokio::test]
async fn a_handler_that_refuses_by_a_limiter_of_several_answers_like_the_layer() {
    let layer = burst_and_quota(&memory(&clock()));
    let service = layer.layer(hello());
    statuses(&service, "alice", 2).await;
    let by_layer = send(&service, from("alice")).await;
    let decision = layer.limiter().check(&Key::header(CLIENT, "alice")).await;
    let by_hand = Rejection::Denied(decision.unwrap()).to_response(&Problem::default());
    assert_eq!(by_hand.status(), by_layer.status);
    assert_eq!(by_hand.headers(), &by_layer.headers);
    assert_eq!(by_hand.body(), &by_layer.body);
}

#[tokio::test]
async fn the_decision_of_an_allowed_request_has_a_verdict_of_each_policy() {
    let service = burst_and_quota(&sqlite(&clock())).layer(hello());
    let answer = send(&service, from("alice")).await;
    let decisions: &Decisions = answer.extensions.get().unwrap();
    assert_eq!(decisions.iter().len(), 1);
    let decision = decisions.iter().next().unwrap();
    let told = |verdict: &Verdict| {
        let name = verdict.policy().as_name().to_owned();
        (name, verdict.used(), verdict.remaining(), verdict.cost())
    };
    let told: Vec<_> = decision.verdicts().map(told).collect();
    assert_eq!(
        told,
        [("burst".to_owned(), 1, 1, 1), ("quota".to_owned(), 1, 2, 1)]
    );
    assert_eq!(decision.violated().count(), 0);
    assert_eq!(
        (decision.policy().as_name(), decision.remaining()),
        ("burst", 1)
    );
}

#[tokio::test]
async fn the_decision_of_a_refused_request_has_a_verdict_of_each_policy() {
    let service = burst_and_quota(&sqlite(&clock())).layer(hello());
    statuses(&service, "alice", 2).await;
    let answer = send(&service, from("alice")).await;
    let decisions: &Decisions = answer.extensions.get().unwrap();
    let decision = decisions.denied().unwrap();
    let told = |verdict: &Verdict| (verdict.is_denied(), verdict.used(), verdict.remaining());
    let told: Vec<_> = decision.verdicts().map(told).collect();
    assert_eq!(told, [(true, 2, 0), (false, 2, 1)]);
    let violated: Vec<_> = decision.violated().map(Policy::as_name).collect();
    assert_eq!(violated, ["burst"]);
}

/// A store in a file, closed again.
async fn closed_file() -> (tempfile::TempDir, SqliteStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("limits.db")).await;
    let store = store.unwrap();
    store.close().await.unwrap();
    (folder, store)
}

#[tokio::test]
async fn an_open_limit_without_its_store_lets_pass_and_marks_every_policy_as_uncounted() {
    let (_folder, store) = closed_file().await;
    let layer = burst_and_quota(&store).on_store_failure(FailureMode::Open);
    let service = layer.x_rate_limit(ResetFormat::DeltaSeconds).layer(hello());
    for _ in 0..4 {
        let answer = send(&service, from("alice")).await;
        assert_eq!((answer.status, answer.text()), (200, "hello"));
        assert!(answer.headers.is_empty(), "{:?}", answer.headers);
        let decisions: &Decisions = answer.extensions.get().unwrap();
        let decision = decisions.iter().next().unwrap();
        assert!(decision.is_degraded() && decision.is_allowed());
        let told: Vec<_> = decision.verdicts().map(Verdict::used).collect();
        assert_eq!(told, [0, 0]);
    }
}

#[tokio::test]
async fn a_closed_limit_without_its_store_is_a_503_without_fields() {
    let (_folder, store) = closed_file().await;
    let layer = burst_and_quota(&store).on_store_failure(FailureMode::Closed);
    let answer = send(&layer.layer(hello()), from("alice")).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.only("retry-after"), "5");
    assert_eq!(
        answer.header("ratelimit") + &answer.header("ratelimit-policy"),
        ""
    );
    assert_eq!(answer.json().get("violated-policies"), None);
}

#[tokio::test]
async fn an_error_of_a_refusal_names_the_policy_with_the_longest_wait() {
    let policies = [
        Policy::fixed(1, 60).name("short"),
        Policy::fixed(1, 900).name("long"),
    ];
    let limiter = Limiter::new(policies).store(&memory(&clock()));
    let alice = Key::new("user", "alice");
    limiter.check(&alice).await.unwrap().into_result().unwrap();
    let denied = limiter.check(&alice).await.unwrap().into_result();
    let said = denied.unwrap_err().to_string();
    assert_eq!(said, "over the rate limit long: wait 900 s");
}
