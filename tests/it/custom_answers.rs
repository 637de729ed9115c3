//! Answers that a user words or makes.

use http::{Method, Response};
use tollgate::{FailureMode, Problem, RateLimitLayer, Rejection, key};
use tower::Layer;

use crate::support::{clock, from, get, hello, login, login_in_memory, memory, send, sqlite};

/// What the callback was asked for, as the body; the status is the default one.
fn told(why: &Rejection) -> Response<String> {
    let kind = match why {
        Rejection::Denied(decision) => format!("denied by {}", decision.policy().as_name()),
        Rejection::KeyMissing(error) => format!("key missing: {error}"),
        Rejection::Setup(error) => format!("set-up: {error}"),
        Rejection::Store(error) => format!("store: {error}"),
        other => format!("{other:?}"),
    };
    let mut response = Response::new(kind);
    *response.status_mut() = why.status();
    response
}

#[tokio::test]
async fn a_problem_of_ones_own_sets_type_title_and_detail() {
    let problem = Problem::new("/problems/rate-limit-exceeded", "Too Many Requests")
        .detail(|denied| format!("{} per minute", denied.policy().limit()));
    let service = login_in_memory(0, 60).problem(problem).layer(hello());
    let problem = send(&service, from("alice")).await.json();
    assert_eq!(problem["type"], "/problems/rate-limit-exceeded");
    assert_eq!(problem["title"], "Too Many Requests");
    assert_eq!(problem["detail"], "0 per minute");
    assert_eq!(problem["status"], 429);
}

#[tokio::test]
async fn quotes_backslashes_and_line_separators_in_texts_are_escaped() {
    let text = "a \"quote\", a \\ backslash, a \u{2028} separator, a \0 nul, a\nline";
    let problem = Problem::new("about:blank", text).detail(move |_| text.to_owned());
    let service = login_in_memory(0, 60).problem(problem).layer(hello());
    let problem = send(&service, from("alice")).await.json();
    assert_eq!(problem["title"], text);
    assert_eq!(problem["detail"], text);
}

#[tokio::test]
async fn a_refusal_may_be_answered_by_the_user() {
    let layer = login_in_memory(0, 60).rejection(|why, _| Some(told(why)));
    let answer = send(&layer.layer(hello()), from("alice")).await;
    assert_eq!((answer.status, answer.text()), (429, "denied by login"));
    assert_eq!(answer.only("ratelimit"), "\"login\";r=0;t=60");
    assert_eq!(answer.only("ratelimit-policy"), "\"login\";q=0;w=60");
    assert_eq!(answer.only("cache-control"), "no-store");
    assert_eq!(answer.header("content-type"), "");
}

#[tokio::test]
async fn a_missing_key_may_be_answered_by_the_user() {
    let layer = login_in_memory(0, 60).rejection(|why, _| Some(told(why)));
    let answer = send(&layer.layer(hello()), get("/")).await;
    assert_eq!(answer.status, 400);
    assert!(
        answer.text().starts_with("key missing: "),
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn an_incomplete_set_up_may_be_answered_by_the_user() {
    let layer = login_in_memory(0, 60)
        .key(key::peer_ip())
        .rejection(|why, _| Some(told(why)));
    let answer = send(&layer.layer(hello()), get("/")).await;
    assert_eq!(answer.status, 500);
    assert!(answer.text().starts_with("set-up: "), "{}", answer.text());
}

#[tokio::test]
async fn a_failed_store_may_be_answered_by_the_user() {
    let store = sqlite(&clock());
    let layer = login(9, 60, &store).on_store_failure(FailureMode::Closed);
    let layer = layer.rejection(|why, _| Some(told(why)));
    store.close().await.unwrap();
    let answer = send(&layer.layer(hello()), from("alice")).await;
    assert_eq!(answer.status, 503);
    assert!(answer.text().starts_with("store: "), "{}", answer.text());
    assert!(answer.only("retry-after").parse::<u64>().unwrap() >= 1);
    assert_eq!(answer.only("cache-control"), "no-store");
}

#[tokio::test]
async fn none_leaves_each_answer_to_the_layer() {
    let store = sqlite(&clock());
    let plain = login(0, 60, &store).on_store_failure(FailureMode::Closed);
    let falling_back = plain.clone().rejection(|_, _| None::<Response<&str>>);
    let no_peer = login(0, 60, &store).key(key::peer_ip());
    let no_peer_falling_back = no_peer.clone().rejection(|_, _| None::<Response<&str>>);
    let mut compared = Vec::new();
    for (plain, custom) in [(plain, falling_back), (no_peer, no_peer_falling_back)] {
        let (plain, custom) = (plain.layer(hello()), custom.layer(hello()));
        for request in [|| from("alice"), || get("/")] {
            compared.push((
                send(&plain, request()).await,
                send(&custom, request()).await,
            ));
        }
        store.close().await.unwrap();
        compared.push((
            send(&plain, from("alice")).await,
            send(&custom, from("alice")).await,
        ));
    }
    let statuses: Vec<_> = compared.iter().map(|(plain, _)| plain.status).collect();
    assert_eq!(statuses, [429, 400, 503, 500, 500, 500]);
    for (plain, custom) in compared {
        assert_eq!(
            (plain.status, &plain.headers, &plain.body),
            (custom.status, &custom.headers, &custom.body)
        );
    }
}

#[tokio::test]
async fn the_callback_sees_the_requests_head() {
    let layer = login_in_memory(0, 60).rejection(|why, parts| {
        let is_plain = parts.uri.path() == "/plain" && parts.method == Method::GET;
        is_plain.then(|| told(why))
    });
    let service = layer.layer(hello());
    let mut plain = from("alice");
    *plain.uri_mut() = "/plain".parse().unwrap();
    assert_eq!(send(&service, plain).await.text(), "denied by login");
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.only("content-type"), "application/problem+json");
}

#[tokio::test]
async fn the_callback_sees_the_decision_that_refused() {
    let layer = login_in_memory(2, 60).rejection(|why, _| {
        let decision = why.decision()?;
        let said = (
            decision.used(),
            decision.attempts(),
            decision.remaining(),
            why.retry_after_seconds(),
        );
        Some(Response::new(format!("{said:?}")))
    });
    let service = layer.layer(hello());
    for _ in 0..2 {
        send(&service, from("alice")).await;
    }
    assert_eq!(
        send(&service, from("alice")).await.text(),
        "(2, 3, 0, Some(60))"
    );
}

#[tokio::test]
async fn status_headers_and_body_of_a_custom_answer_are_kept() {
    let layer = login_in_memory(1, 60).rejection(|_, _| {
        Response::builder()
            .status(418)
            .header("retry-after", "7")
            .header("cache-control", "private")
            .header("x-own", "yes")
            .body(&b"\x00\xff"[..])
            .ok()
    });
    let service = layer.layer(hello());
    send(&service, from("alice")).await;
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.status, 418);
    assert_eq!(answer.only("retry-after"), "7");
    assert_eq!(answer.only("cache-control"), "private");
    assert_eq!(answer.only("x-own"), "yes");
    assert_eq!(&answer.body[..], b"\x00\xff");
}

#[tokio::test]
async fn the_callback_is_not_asked_for_requests_that_pass() {
    let layer = login_in_memory(1, 60).rejection(|_, _| Some(Response::new("asked")));
    assert_eq!(
        send(&layer.layer(hello()), from("alice")).await.text(),
        "hello"
    );
}

#[tokio::test]
async fn names_of_odd_but_legal_characters_are_said_everywhere_alike() {
    for name in ["A", "api:v2/search-*", "Z_.:/*-9", &"n".repeat(64)] {
        let layer = RateLimitLayer::fixed(0, 60)
            .name(name)
            .key(key::constant("all"))
            .store(&memory(&clock()));
        let answer = send(&layer.layer(hello()), get("/")).await;
        assert_eq!(
            answer.only("ratelimit-policy"),
            format!("\"{name}\";q=0;w=60")
        );
        assert_eq!(
            answer.json()["violated-policies"],
            serde_json::json!([name])
        );
    }
}

#[test]
fn names_that_are_no_token_are_refused_when_they_are_built() {
    let policy = tollgate::Policy::fixed(1, 60);
    for name in [
        "",
        " ",
        "a b",
        "\"",
        "a\\b",
        "a,b",
        "a;b",
        "é",
        "a\u{7f}",
        "a\r\nx: y",
        &"n".repeat(65),
    ] {
        assert!(policy.clone().try_name(name).is_err(), "{name:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_made_of_the_default_one_has_each_field_once() {
    let layer = login_in_memory(0, 60)
        .dialect(tollgate::Dialect::Editors2026)
        .rejection(|why, _| {
            let mut response = why.to_response(&Problem::default());
            let id = "42".parse().unwrap();
            response.headers_mut().insert("x-request-id", id);
            Some(response)
        });
    let answer = send(&layer.layer(hello()), from("alice")).await;
    assert_eq!((answer.status, answer.only("x-request-id")), (429, "42"));
    assert_eq!(answer.only("ratelimit"), "\"login\";a=0;w=60");
    assert_eq!(answer.only("ratelimit-policy"), "\"login\";q=0;w=60");
    assert_eq!(answer.only("cache-control"), "no-store");
}

#[tokio::test]
async fn a_head_request_gets_no_length_where_none_may_be_told() {
    for status in [204, 304] {
        let layer = login_in_memory(0, 60)
            .rejection(move |_, _| Response::builder().status(status).body("").ok());
        let mut request = from("alice");
        *request.method_mut() = Method::HEAD;
        let answer = send(&layer.layer(hello()), request).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("content-length"), "");
    }
}
