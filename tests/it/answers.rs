//! The 429 as it is by default.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get as on_get;
use http::HeaderValue;
use proptest::prelude::*;
use tollgate::{Decision, Key, Limiter, Policy, Problem, RateLimitLayer, Rejection, key};
use tower::Layer;

use crate::support::{
    Answer, clock, from, get, hello, login, login_in_memory, memory, send, sqlite, statuses,
};

/// The answer to the first request over a limit of 1 per `window`, so long after the window's start.
async fn refused_after(window: Duration, after: Duration) -> Answer {
    let clock = clock();
    let layer = RateLimitLayer::new(Policy::try_fixed(1, window).unwrap())
        .key(key::constant("all"))
        .store(&memory(&clock));
    let service = layer.layer(hello());
    clock.advance(after);
    assert_eq!(send(&service, get("/")).await.status, 200);
    send(&service, get("/")).await
}

#[tokio::test]
async fn the_request_after_the_limit_is_refused_with_429() {
    let service = login(3, 60, &sqlite(&clock())).layer(hello());
    assert_eq!(
        statuses(&service, "alice", 5).await,
        [200, 200, 200, 429, 429]
    );
}

#[tokio::test]
async fn the_content_type_is_exactly_problem_json() {
    let service = login_in_memory(0, 60).layer(hello());
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.only("content-type"), "application/problem+json");
}

#[tokio::test]
async fn the_body_has_the_members_of_a_problem_document_in_their_types() {
    let service = login_in_memory(1, 60).layer(hello());
    send(&service, from("alice")).await;
    let problem = send(&service, from("alice")).await.json();
    let expected = serde_json::json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota Exceeded",
        "status": 429,
        "detail": problem["detail"],
        "limit": 1,
        "window_seconds": 60,
        "retry_after": 60,
        "violated-policies": ["login"],
    });
    assert_eq!(problem, expected);
    assert!(problem["detail"].is_string());
}

#[tokio::test]
async fn the_body_says_the_same_as_the_header_fields() {
    let answer = refused_after(Duration::from_mins(1), Duration::from_millis(57_900)).await;
    let problem = answer.json();
    assert_eq!(problem["status"], answer.status);
    assert_eq!(
        problem["retry_after"].to_string(),
        answer.only("retry-after")
    );
    assert_eq!(answer.only("ratelimit"), "\"fixed-1-60s\";r=0;t=3");
    assert_eq!(
        problem["violated-policies"],
        serde_json::json!(["fixed-1-60s"])
    );
}

#[tokio::test]
async fn the_title_is_the_same_at_every_occurrence() {
    let service = login_in_memory(0, 60).layer(hello());
    let (first, second) = (
        send(&service, from("alice")).await,
        send(&service, from("bob")).await,
    );
    assert_eq!(first.json()["title"], second.json()["title"]);
    assert_eq!(first.json()["type"], second.json()["type"]);
}

#[tokio::test]
async fn retry_after_is_what_is_left_of_the_window_in_seconds_rounded_up() {
    for (left_millis, seconds) in [
        (60_000, "60"),
        (10_000, "10"),
        (2_100, "3"),
        (2_001, "3"),
        (2_000, "2"),
        (1, "1"),
    ] {
        let answer = refused_after(
            Duration::from_mins(1),
            Duration::from_millis(60_000 - left_millis),
        )
        .await;
        assert_eq!(answer.only("retry-after"), seconds, "{left_millis} ms left");
        assert_eq!(answer.json()["retry_after"].to_string(), seconds);
    }
}

#[tokio::test]
async fn retry_after_of_the_shortest_and_the_longest_window_is_a_plain_number() {
    let shortest = refused_after(Duration::from_millis(1), Duration::ZERO).await;
    assert_eq!(shortest.only("retry-after"), "1");
    let longest = refused_after(Duration::from_hours(3_660 * 24), Duration::ZERO).await;
    let seconds: u64 = longest.only("retry-after").parse().unwrap();
    assert!((1..=3_660 * 86_400).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn a_limit_of_0_refuses_everything_and_promises_no_wait() {
    let service = login(0, 60, &sqlite(&clock())).layer(hello());
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("retry-after"), "");
    assert_eq!(answer.json().get("retry_after"), None);
    assert_eq!(answer.only("ratelimit-policy"), "\"login\";q=0;w=60");
    assert_eq!(answer.only("cache-control"), "no-store");
}

#[tokio::test]
async fn a_client_that_asks_for_html_still_gets_the_problem_document() {
    let service = login_in_memory(0, 60).layer(hello());
    for accept in ["text/html", "application/xml", "image/png;q=0.1", "*/*;q=0"] {
        let mut request = from("alice");
        request
            .headers_mut()
            .insert("accept", HeaderValue::from_static(accept));
        let answer = send(&service, request).await;
        assert_eq!(answer.status, 429);
        assert_eq!(answer.only("content-type"), "application/problem+json");
        assert_eq!(answer.json()["status"], 429);
    }
}

#[tokio::test]
async fn the_answer_must_not_be_cached() {
    let service = login_in_memory(0, 60).layer(hello());
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.only("cache-control"), "no-store");
}

#[tokio::test]
async fn nothing_in_the_answer_tells_the_key_or_where_it_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let store = tollgate::SqliteStore::open(folder.path().join("secret-place.db"))
        .await
        .unwrap();
    let store = store.deadline(Duration::from_mins(1)).clock(&clock());
    let service = login(0, 60, &store).layer(hello());
    let answer = send(&service, from("alice-s-api-key")).await;
    let all = format!(
        "{:?} {} {:?}",
        answer.headers,
        answer.text(),
        answer.extensions
    );
    for secret in [
        "alice-s-api-key",
        "secret-place",
        "INSERT",
        "rate_limit_windows",
    ] {
        assert!(!all.contains(secret), "{secret} in {all}");
    }
    assert_eq!(answer.status, 429);
    store.close().await.unwrap();
}

#[tokio::test]
async fn the_body_has_the_length_that_it_says() {
    use http_body::Body;
    use tower::ServiceExt;
    let service = login_in_memory(0, 60).layer(hello());
    let response = service.oneshot(from("alice")).await.unwrap();
    let told = response.body().size_hint().exact();
    assert!(!response.body().is_end_stream());
    let answer = Answer::read(response).await;
    assert_eq!(told, Some(answer.body.len() as u64));
}

#[tokio::test]
async fn a_handler_that_returns_a_rejection_answers_like_the_layer() {
    async fn handler(State(limiter): State<Limiter>) -> Result<&'static str, Rejection> {
        limiter.check(&Key::constant("all")).await?.into_result()?;
        Ok("hello")
    }
    let clock = clock();
    let limiter = Limiter::new(Policy::fixed(1, 60).name("all")).store(&memory(&clock));
    let by_hand = Router::new()
        .route("/", on_get(handler))
        .with_state(limiter);
    let layer = RateLimitLayer::fixed(1, 60)
        .name("all")
        .key(key::constant("all"))
        .store(&memory(&clock));
    let by_layer = layer.layer(hello());

    send(&by_hand, get("/")).await;
    send(&by_layer, get("/")).await;
    let (by_hand, by_layer) = (
        send(&by_hand, get("/")).await,
        send(&by_layer, get("/")).await,
    );
    assert_eq!(by_hand.status, 429);
    assert_eq!(by_hand.body, by_layer.body);
    for name in by_layer.headers.keys() {
        assert_eq!(
            by_hand.header(name.as_str()),
            by_layer.header(name.as_str()),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_rejection_turned_into_a_response_by_hand_is_the_layers_answer() {
    let problem = Problem::new("/problems/slow-down", "Slow Down");
    let clock = clock();
    let layer = login(1, 60, &memory(&clock)).problem(problem.clone());
    let service = layer.layer(hello());
    send(&service, from("alice")).await;
    let by_layer = send(&service, from("alice")).await;

    let limiter = layer.limiter();
    let decision = limiter
        .check(&Key::header("x-client-key", "alice"))
        .await
        .unwrap();
    let by_hand = Rejection::Denied(decision).to_response(&problem);
    assert_eq!(by_hand.status(), by_layer.status);
    assert_eq!(by_hand.headers(), &by_layer.headers);
    assert_eq!(by_hand.body(), &by_layer.body);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_a_detail_says_the_body_is_one_json_object(said in any::<String>()) {
        let problem = said.clone();
        let detail = move |_: &Decision| problem.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = runtime.block_on(async {
            let problem = Problem::new("about:blank", "Too Many Requests").detail(detail);
            let service = login_in_memory(0, 60).problem(problem).layer(hello());
            send(&service, from("alice")).await
        });
        let problem = answer.json();
        prop_assert_eq!(problem["detail"].as_str(), Some(&*said));
        prop_assert_eq!(problem.as_object().unwrap().len(), 7);
    }
}
