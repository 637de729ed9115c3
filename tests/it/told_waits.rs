//! How a layer tells the waits of its refusals.

use std::time::Duration;

use http::Response;
use tollgate::{
    Decisions, FailureMode, Key, Limiter, Policy, RateLimitLayer, Rejection, ResetFormat, key,
};
use tower::Layer;

use crate::fields::parsed;
use crate::support::{
    Answer, clock, from, get, hello, login, login_in_memory, memory, send, sqlite,
};

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

/// The first refusal by a policy of 1 per so many seconds.
async fn refused(seconds: u64, set: impl FnOnce(RateLimitLayer) -> RateLimitLayer) -> Answer {
    let service = set(login_in_memory(1, seconds)).layer(hello());
    send(&service, from("alice")).await;
    send(&service, from("alice")).await
}

/// The seconds that an answer tells, which are the same wherever it tells them; the body is the problem document.
fn told(answer: &Answer) -> Option<u64> {
    let header = answer.headers.get("retry-after");
    let header = header.map(|seconds| seconds.to_str().unwrap().parse().unwrap());
    assert_eq!(answer.json()["retry_after"].as_u64(), header);
    let fields = parsed(answer.only("ratelimit"));
    let window = fields[0].1.iter().find(|(name, _)| name == "t");
    assert_eq!(window.map(|(_, seconds)| seconds.cast_unsigned()), header);
    let decisions = answer.extensions.get::<Decisions>().unwrap();
    let decision = decisions.denied().unwrap().retry_after();
    let decision = decision.map(|wait| wait.as_nanos().div_ceil(1_000_000_000));
    assert_eq!(decision, header.map(u128::from));
    header
}

#[tokio::test]
async fn a_wait_above_the_maximum_is_told_as_the_maximum() {
    let answer = refused(86_400, |layer| layer.retry_after_max(HOUR)).await;
    assert_eq!(told(&answer), Some(3_600));
}

#[tokio::test]
async fn a_wait_below_the_maximum_is_told_exactly() {
    let answer = refused(900, |layer| layer.retry_after_max(HOUR)).await;
    assert_eq!(told(&answer), Some(900));
}

#[tokio::test]
async fn a_maximum_of_nothing_still_tells_a_second() {
    let service = login_in_memory(1, 900)
        .retry_after_max(Duration::ZERO)
        .layer(hello());
    send(&service, from("alice")).await;
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.only("retry-after"), "1");
    assert_eq!(answer.only("ratelimit"), "\"login\";r=0;t=1");
}

#[tokio::test]
async fn a_wait_above_the_bound_is_told_nowhere() {
    let answer = refused(86_400, |layer| layer.no_retry_after_above(HOUR)).await;
    assert_eq!(answer.status, 429);
    assert_eq!(told(&answer), None);
    assert_eq!(answer.only("ratelimit"), "\"login\";r=0");
    assert_eq!(answer.only("ratelimit-policy"), "\"login\";q=1;w=86400");
}

#[tokio::test]
async fn a_wait_of_just_the_bound_is_told() {
    let answer = refused(3_600, |layer| layer.no_retry_after_above(HOUR)).await;
    assert_eq!(told(&answer), Some(3_600));
}

#[tokio::test]
async fn x_ratelimit_reset_tells_what_the_others_do() {
    let set = |layer: RateLimitLayer| layer.x_rate_limit(ResetFormat::DeltaSeconds);
    let capped = refused(86_400, |layer| set(layer).retry_after_max(HOUR)).await;
    assert_eq!(capped.only("x-ratelimit-reset"), "3600");
    let untold = refused(86_400, |layer| set(layer).no_retry_after_above(HOUR)).await;
    assert_eq!(untold.header("x-ratelimit-reset"), "");
    assert_eq!(untold.only("x-ratelimit-remaining"), "0");
}

#[tokio::test]
async fn an_untold_wait_of_an_inner_limit_stays_untold_outside() {
    let store = memory(&clock());
    let x = |layer: RateLimitLayer| layer.x_rate_limit(ResetFormat::DeltaSeconds);
    let inner = x(login(1, 60, &store)).no_retry_after_above(Duration::ZERO);
    let service = x(login(2, 900, &store).name("outer")).layer(inner.layer(hello()));
    send(&service, from("alice")).await;
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.only("x-ratelimit-limit"), "1");
    assert_eq!(answer.only("x-ratelimit-remaining"), "0");
    assert_eq!(answer.header("x-ratelimit-reset"), "");
    assert_eq!(answer.header("retry-after"), "");
}

#[tokio::test]
async fn what_passes_is_told_exactly() {
    let layer = login_in_memory(5, 86_400)
        .retry_after_max(MINUTE)
        .no_retry_after_above(MINUTE)
        .jitter(HOUR);
    let answer = send(&layer.layer(hello()), from("alice")).await;
    let fields = parsed(answer.only("ratelimit"));
    assert_eq!(fields[0].1[0], ("r".to_owned(), 4));
    assert!(fields[0].1[1].1 > 60, "{fields:?}");
}

#[tokio::test]
async fn of_several_violated_policies_none_tells_more_than_retry_after() {
    let layer = RateLimitLayer::new([
        Policy::fixed(1, 900).name("short"),
        Policy::fixed(1, 3_600).name("long"),
    ])
    .key(key::constant("all"))
    .store(&memory(&clock()))
    .retry_after_max(Duration::from_mins(30))
    .jitter(MINUTE);
    let service = layer.layer(hello());
    send(&service, get("/")).await;
    for _ in 0..50 {
        let answer = send(&service, get("/")).await;
        let told: i64 = answer.only("retry-after").parse().unwrap();
        let fields = parsed(answer.only("ratelimit"));
        let windows: Vec<_> = fields.iter().map(|(_, params)| params[1].1).collect();
        assert_eq!(windows[1], told);
        assert_eq!(windows[0], told - 900, "the same jitter on both");
        assert!((1_800..=1_860).contains(&told), "{told}");
    }
}

#[tokio::test]
async fn a_short_wait_beside_an_untold_one_is_told_of_its_policy() {
    let layer = RateLimitLayer::new([
        Policy::fixed(1, 60).name("burst"),
        Policy::fixed(1, 86_400).name("day"),
    ])
    .key(key::constant("all"))
    .store(&memory(&clock()))
    .no_retry_after_above(HOUR);
    let service = layer.layer(hello());
    send(&service, get("/")).await;
    let answer = send(&service, get("/")).await;
    assert_eq!(answer.only("ratelimit"), "\"burst\";r=0;t=60, \"day\";r=0");
    assert_eq!(answer.header("retry-after"), "");
}

#[tokio::test]
async fn jitter_only_lengthens_and_by_no_more_than_its_maximum() {
    let service = login_in_memory(1, 900)
        .jitter(Duration::from_secs(100))
        .layer(hello());
    send(&service, from("alice")).await;
    let mut waits = Vec::new();
    for _ in 0..200 {
        waits.push(told(&send(&service, from("alice")).await).unwrap());
    }
    assert!(waits.iter().all(|wait| (900..=1_000).contains(wait)));
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 20, "spread over {} seconds only", waits.len());
}

#[tokio::test]
async fn jitter_is_added_after_the_maximum() {
    let set = |layer: RateLimitLayer| {
        layer
            .retry_after_max(MINUTE)
            .jitter(Duration::from_secs(1_000))
    };
    let service = set(login_in_memory(1, 86_400)).layer(hello());
    send(&service, from("alice")).await;
    let mut waits = Vec::new();
    for _ in 0..50 {
        waits.push(told(&send(&service, from("alice")).await).unwrap());
    }
    assert!(waits.iter().all(|wait| (60..=1_060).contains(wait)));
    assert!(waits.iter().any(|wait| *wait > 60));
}

#[tokio::test]
async fn the_longest_jitter_leaves_a_number_of_15_digits() {
    let answer = refused(900, |layer| layer.jitter(Duration::MAX)).await;
    assert!(told(&answer).unwrap() <= 999_999_999_999_999);
}

#[tokio::test]
async fn no_wait_is_made_up_where_none_helps() {
    let layer = login_in_memory(0, 60).jitter(HOUR).retry_after_max(MINUTE);
    let answer = send(&layer.layer(hello()), from("alice")).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("retry-after"), "");
    assert_eq!(answer.json().get("retry_after"), None);
}

#[tokio::test]
async fn an_answer_of_ones_own_sees_the_told_wait() {
    let layer = login_in_memory(1, 86_400)
        .retry_after_max(HOUR)
        .jitter(HOUR)
        .rejection(|why, _| {
            let seconds = why.retry_after_seconds()?;
            let wait = why.decision()?.retry_after()?;
            assert!(wait <= Duration::from_secs(seconds));
            Some(Response::new(seconds.to_string()))
        });
    let service = layer.layer(hello());
    send(&service, from("alice")).await;
    for _ in 0..20 {
        let answer = send(&service, from("alice")).await;
        assert_eq!(answer.text(), answer.only("retry-after"));
    }
}

#[tokio::test]
async fn the_problem_s_detail_sees_the_told_wait() {
    let detail = |denied: &tollgate::Decision| format!("{:?}", denied.retry_after());
    let problem = tollgate::Problem::default().detail(detail);
    let answer = refused(86_400, |layer| layer.problem(problem).retry_after_max(HOUR)).await;
    assert_eq!(answer.json()["detail"], "Some(3600s)");
}

#[tokio::test]
async fn a_handlers_refusal_is_told_as_the_layer_tells_its_own() {
    let layer = login_in_memory(9, 60).retry_after_max(MINUTE);
    let exports = Limiter::new(Policy::fixed(1, 86_400).name("exports")).store(&memory(&clock()));
    let user = Key::new("user", 42);
    let _ = exports.check(&user).await.unwrap();
    let denied = exports.check(&user).await.unwrap().into_result();
    let why = Rejection::from(denied.unwrap_err());
    let (parts, ()) = http::Request::new(()).into_parts();
    let answer = layer.answer(&why, &parts);
    assert_eq!(answer.headers()["retry-after"], "60");
    assert_eq!(answer.headers()["ratelimit"], "\"exports\";r=0;t=60");
}

#[tokio::test]
async fn the_wait_for_a_failed_store_is_as_ever() {
    let store = sqlite(&clock());
    let layer = login(9, 60, &store)
        .on_store_failure(FailureMode::Closed)
        .retry_after_max(Duration::from_secs(1))
        .jitter(HOUR);
    store.close().await.unwrap();
    let answer = send(&layer.layer(hello()), from("alice")).await;
    assert_eq!((answer.status, answer.only("retry-after")), (503, "5"));
}
