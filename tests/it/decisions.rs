//! What the layers tell handlers and other layers.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::extract::Extension;
use axum::routing::get as on_get;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tollgate::{Decision, Decisions, RateLimitLayer, key};
use tower::{Layer, Service, ServiceBuilder};

use crate::support::{Answer, clock, from, get, hello, login, memory, send, sqlite};

/// Names of the policies that decided, outermost first, a `!` after the one that refused.
fn told(decisions: Option<&Decisions>) -> Option<String> {
    let decisions = decisions?;
    let names = decisions.iter().map(|decision| {
        let mark = if decision.is_denied() { "!" } else { "" };
        format!("{}{mark}", decision.policy().as_name())
    });
    Some(names.collect::<Vec<_>>().join(" "))
}

/// A service that answers with the decisions that it sees.
fn telling()
-> impl Service<Request<Body>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>
+ Clone
+ Send {
    tower::service_fn(|request: Request<Body>| {
        let told = told(request.extensions().get()).unwrap_or("nothing".to_owned());
        std::future::ready(Ok(Response::new(Full::from(told))))
    })
}

fn in_response(answer: &Answer) -> Option<String> {
    told(answer.extensions.get())
}

#[tokio::test]
async fn the_inner_service_and_the_response_have_the_decision() {
    let answer = send(
        &login(5, 60, &sqlite(&clock())).layer(telling()),
        from("alice"),
    )
    .await;
    assert_eq!(answer.text(), "login");
    assert_eq!(in_response(&answer).unwrap(), "login");
    let decisions: &Decisions = answer.extensions.get().unwrap();
    let decision = decisions.iter().next().unwrap();
    assert_eq!(
        (decision.remaining(), decision.used(), decision.cost()),
        (4, 1, 1)
    );
    assert!(decisions.denied().is_none());
}

#[tokio::test]
async fn nested_decisions_are_listed_outermost_first() {
    let store = sqlite(&clock());
    let service = ServiceBuilder::new()
        .layer(login(9, 60, &store).name("one"))
        .layer(login(9, 60, &memory(&clock())).name("two"))
        .layer(login(9, 60, &store).name("three"))
        .service(telling());
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.text(), "one two three");
    assert_eq!(in_response(&answer).unwrap(), "one two three");
}

#[tokio::test]
async fn an_outer_allowed_does_not_hide_an_inner_refusal() {
    let store = memory(&clock());
    let service = ServiceBuilder::new()
        .layer(login(9, 60, &store).name("outer"))
        .layer(login(0, 60, &store).name("inner"))
        .service(telling());
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.status, 429);
    assert_eq!(in_response(&answer).unwrap(), "outer inner!");
    let decisions: &Decisions = answer.extensions.get().unwrap();
    assert_eq!(decisions.denied().unwrap().policy().as_name(), "inner");
}

#[tokio::test]
async fn a_refusal_of_the_only_layer_is_in_the_response() {
    let answer = send(
        &login(0, 60, &sqlite(&clock())).layer(hello()),
        from("alice"),
    )
    .await;
    assert_eq!(in_response(&answer).unwrap(), "login!");
}

#[tokio::test]
async fn the_same_layer_met_twice_is_listed_once() {
    let layer = login(9, 60, &memory(&clock()));
    let service = ServiceBuilder::new()
        .layer(layer.clone())
        .layer(layer)
        .service(telling());
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.text(), "login");
    assert_eq!(in_response(&answer).unwrap(), "login");
}

#[tokio::test]
async fn the_same_layer_met_again_around_another_one_is_charged_once() {
    let store = memory(&clock());
    let layer = login(9, 60, &store);
    let service = ServiceBuilder::new()
        .layer(layer.clone())
        .layer(login(9, 60, &store).name("other"))
        .layer(layer)
        .service(telling());
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.text(), "login other");
    assert_eq!(in_response(&answer).unwrap(), "login other");
}

#[tokio::test]
async fn a_switched_off_layer_tells_nothing() {
    let service = login(9, 60, &memory(&clock()))
        .enabled(false)
        .layer(telling());
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.text(), "nothing");
    assert_eq!(in_response(&answer), None);
}

#[tokio::test]
async fn a_request_without_a_key_has_no_decisions() {
    let answer = send(&login(9, 60, &memory(&clock())).layer(hello()), get("/")).await;
    assert_eq!(answer.status, 400);
    assert_eq!(in_response(&answer), None);
}

#[tokio::test]
async fn an_axum_handler_reads_them_as_an_extension() {
    let layer = RateLimitLayer::fixed(9, 60)
        .key(key::constant("all"))
        .store(&memory(&clock()));
    let handler = |Extension(decisions): Extension<Decisions>| async move {
        decisions
            .iter()
            .map(Decision::remaining)
            .min()
            .unwrap()
            .to_string()
    };
    let router = Router::new().route("/", on_get(handler)).layer(layer);
    assert_eq!(send(&router, get("/")).await.text(), "8");
}

#[tokio::test]
async fn a_response_made_from_an_inner_request_of_its_own_keeps_both_lists() {
    let store = memory(&clock());
    let inner = login(9, 60, &store).name("inner").layer(hello());
    let forwarding = tower::service_fn(move |_: Request<Body>| {
        let inner = inner.clone();
        async move { tower::ServiceExt::oneshot(inner, from("alice")).await }
    });
    let service = login(9, 60, &store).name("outer").layer(forwarding);
    let answer = send(&service, from("alice")).await;
    assert_eq!(in_response(&answer).unwrap(), "outer inner");
}

#[tokio::test]
async fn a_decision_told_to_others_does_not_show_the_key() {
    let answer = send(
        &login(9, 60, &memory(&clock())).layer(hello()),
        from("alice"),
    )
    .await;
    let debug = format!("{:?}", answer.extensions.get::<Decisions>().unwrap());
    assert!(!debug.contains("alice"), "{debug}");
}
