//! What is in the rows.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use axum::body::Body;
use axum::response::IntoResponse;
use axum::routing::{get as on_get, post};
use axum::{Extension, Router};
use http::{Method, Request, Response, StatusCode};
use tollgate::{Decisions, FailureMode, Policy, RateLimitLayer, key};
use tower::{Layer, Service, ServiceExt};

use super::Recorded;
use crate::support::{CLIENT, from, hello, login, memory, send, statuses};

/// A service that answers what the path says, or fails.
fn answering()
-> impl Service<Request<Body>, Response = Response<Body>, Error = &'static str, Future: Send> + Clone
{
    tower::service_fn(async |request: Request<Body>| {
        let status: u16 = request.uri().path()[1..].parse().map_err(|_| "failed")?;
        Ok(StatusCode::from_u16(status).unwrap().into_response())
    })
}

fn request(method: &str, path: &str) -> Request<Body> {
    let mut request = from("alice");
    *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
    *request.uri_mut() = path.parse().unwrap();
    request
}

const ALICE: &str = "header/x-client-key:alice";

#[tokio::test]
async fn each_allowed_request_is_a_row_with_its_route_and_status() {
    let recorded = Recorded::open().await;
    let limit = login(3, 60, &recorded.store).audit(&recorded.store);
    let app = Router::new()
        .route("/user/{id}", on_get(|| async { "somebody" }))
        .route("/missing", post(|| async { StatusCode::NOT_FOUND }))
        .layer(limit);
    send(&app, request("GET", "/user/42?secret=1")).await;
    recorded.clock.advance(Duration::from_millis(1));
    send(&app, request("POST", "/missing")).await;
    recorded.clock.advance(Duration::from_millis(1));
    send(&app, request("GET", "/no/such/path")).await;
    let refused = send(&app, request("GET", "/user/42")).await;
    assert_eq!(refused.status, 429);
    assert_eq!(
        recorded.lines().await,
        [
            format!("login {ALICE} GET /user/{{id}} 200 1"),
            format!("login {ALICE} POST /missing 404 1"),
            format!("login {ALICE} GET - 404 1"),
        ]
    );
    let times = recorded.texts("SELECT at FROM api_call_log LIMIT 1").await;
    assert_eq!(times, ["2083-01-15T04:00:00.000Z"]);
}

#[tokio::test]
async fn what_is_exempt_skipped_or_refused_by_the_layer_is_no_row() {
    let recorded = Recorded::open().await;
    let limit = login(1, 60, &recorded.store).audit(&recorded.store);
    let limit = limit.skip(|parts| parts.uri.path() == "/health");
    let service = limit.layer(hello::<Body>());
    send(&service, request("GET", "/health")).await;
    // Without a key.
    send(&service, Request::new(Body::empty())).await;
    assert_eq!(statuses(&service, "alice", 3).await, [200, 429, 429]);
    let off = login(1, 60, &recorded.store).audit(&recorded.store);
    send(&off.enabled(false).layer(hello()), from("bob")).await;
    assert_eq!(recorded.lines().await.len(), 1);
}

#[tokio::test]
async fn units_are_told_after_refunds_and_with_what_the_handler_has_charged() {
    let recorded = Recorded::open().await;
    let limit = login(100, 60, &memory(&recorded.clock))
        .cost(|_| 3)
        .refund_if(|status| status.is_client_error())
        .audit(&recorded.store);
    let more = async |Extension(decisions): Extension<Decisions>| {
        decisions.charge_more(4);
    };
    let more_and_failed = async |Extension(decisions): Extension<Decisions>| {
        decisions.charge_more(5);
        StatusCode::BAD_REQUEST
    };
    let app = Router::new()
        .route("/plain", on_get(|| async {}))
        .route("/failed", on_get(|| async { StatusCode::BAD_REQUEST }))
        .route("/more", on_get(more))
        .route("/more-and-failed", on_get(more_and_failed))
        .layer(limit);
    for path in ["/plain", "/failed", "/more", "/more-and-failed"] {
        send(&app, request("GET", path)).await;
    }
    assert_eq!(
        recorded.lines().await,
        [
            format!("login {ALICE} GET /plain 200 3"),
            format!("login {ALICE} GET /failed 400 0"),
            format!("login {ALICE} GET /more 200 7"),
            format!("login {ALICE} GET /more-and-failed 400 5"),
        ]
    );
}

#[tokio::test]
async fn a_look_is_a_request_that_has_used_nothing() {
    let recorded = Recorded::open().await;
    let limit = login(1, 60, &recorded.store).cost(|_| 0);
    let service = limit.audit(&recorded.store).layer(hello::<Body>());
    assert_eq!(statuses(&service, "alice", 2).await, [200, 200]);
    let line = format!("login {ALICE} GET - 200 0");
    assert_eq!(recorded.lines().await, [line.clone(), line]);
}

#[tokio::test]
async fn an_error_of_the_inner_service_is_a_row_without_a_status() {
    let recorded = Recorded::open().await;
    let limit = login(9, 60, &recorded.store).audit(&recorded.store);
    for limit in [
        limit.clone(),
        limit.refund_if(|status| status.is_server_error()),
    ] {
        let service = limit.layer(answering());
        service.oneshot(request("GET", "/error")).await.unwrap_err();
    }
    assert_eq!(
        recorded.lines().await,
        [
            format!("login {ALICE} GET - - 1"),
            format!("login {ALICE} GET - - 0"),
        ]
    );
}

#[tokio::test]
async fn a_request_that_is_given_up_is_a_row_without_a_status() {
    let recorded = Recorded::open().await;
    let limit = login(9, 60, &memory(&recorded.clock)).audit(&recorded.store);
    let stuck =
        tower::service_fn(|_: Request<Body>| pending::<Result<Response<Body>, Infallible>>());
    let mut service = limit.layer(stuck);
    {
        let mut answer = pin!(service.ready().await.unwrap().call(from("alice")));
        let mut context = Context::from_waker(Waker::noop());
        assert!(answer.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(recorded.lines().await, [format!("login {ALICE} GET - - 1")]);
}

#[tokio::test]
async fn a_panic_of_the_handler_is_a_row_without_a_status() {
    let recorded = Recorded::open().await;
    let limit = login(9, 60, &recorded.store).audit(&recorded.store);
    let panics = async || -> &'static str { panic!("as the test wants it") };
    let app = Router::new().route("/", on_get(panics)).layer(limit);
    let answer = tokio::spawn(app.oneshot(from("alice"))).await;
    assert!(answer.unwrap_err().is_panic());
    assert_eq!(recorded.lines().await, [format!("login {ALICE} GET / - 1")]);
}

#[tokio::test]
async fn a_request_is_one_row_whatever_number_of_policies_it_has() {
    let recorded = Recorded::open().await;
    let policies = [
        Policy::fixed(10, 60).name("minute"),
        Policy::daily(100).name("day"),
    ];
    let limit = RateLimitLayer::new(policies)
        .key(key::header(CLIENT))
        .and(Policy::fixed(50, 60).name("all"), key::constant("all"))
        .store(&recorded.store)
        .audit(&recorded.store);
    send(&limit.layer(hello()), from("alice")).await;
    let line = format!("minute {ALICE} GET - 200 1");
    assert_eq!(recorded.lines().await, [line]);
}

#[tokio::test]
async fn nested_layers_record_each_what_they_have_charged() {
    let recorded = Recorded::open().await;
    let global = RateLimitLayer::fixed(2, 60).name("global");
    let global = global.key(key::header(CLIENT)).store(&recorded.store);
    let global = global.audit(&recorded.store);
    let strict = login(1, 60, &recorded.store).audit(&recorded.store);
    // The outer one once more, whose counter is charged already.
    let service = global.layer(global.layer(strict.layer(hello::<Body>())));
    assert_eq!(statuses(&service, "alice", 3).await, [200, 429, 429]);
    let mut lines = recorded.lines().await;
    lines.sort();
    assert_eq!(
        lines,
        [
            format!("global {ALICE} GET - 200 1"),
            format!("global {ALICE} GET - 429 1"),
            format!("login {ALICE} GET - 200 1"),
        ]
    );
}

#[tokio::test]
async fn what_is_held_to_a_limit_and_charged_outside_has_used_nothing_inside() {
    let recorded = Recorded::open().await;
    let [outer, inner] = [9, 5].map(|limit| {
        let layer = login(limit, 60, &recorded.store);
        layer.audit(&recorded.store)
    });
    let service = outer.layer(inner.layer(hello::<Body>()));
    send(&service, from("alice")).await;
    let mut lines = recorded.lines().await;
    lines.sort();
    let [inside, outside] = [0, 1].map(|units| format!("login {ALICE} GET - 200 {units}"));
    assert_eq!(lines, [inside, outside]);
}

#[tokio::test]
async fn what_a_handler_charges_more_is_recorded_once_by_the_outermost_layer_that_has_the_counter()
{
    for outer_cost in [1, 0] {
        let recorded = Recorded::open().await;
        let [outer, inner] = [(90, outer_cost), (80, 1)].map(|(limit, cost)| {
            let layer = login(limit, 60, &recorded.store).cost(move |_| cost);
            layer.audit(&recorded.store)
        });
        let handler = tower::service_fn(async |request: Request<Body>| {
            let decisions: &Decisions = request.extensions().get().unwrap();
            decisions.charge_more(5);
            Ok::<_, Infallible>(Response::new(Body::empty()))
        });
        send(&outer.layer(inner.layer(handler)), from("alice")).await;
        let mut lines = recorded.lines().await;
        lines.sort();
        let inner_cost = 1 - outer_cost;
        let expected = [inner_cost, outer_cost + 5];
        let expected = expected.map(|units| format!("login {ALICE} GET - 200 {units}"));
        assert_eq!(lines, expected, "{outer_cost}");
    }
}

#[tokio::test]
async fn a_shadow_records_nothing() {
    let recorded = Recorded::open().await;
    let limit = login(1, 60, &recorded.store).audit(&recorded.store);
    let service = limit.shadow(true).layer(hello::<Body>());
    assert_eq!(statuses(&service, "alice", 2).await, [200, 200]);
    assert!(recorded.lines().await.is_empty());
}

#[tokio::test]
async fn what_passes_without_having_been_counted_is_a_row_too() {
    let recorded = Recorded::open().await;
    let other = Recorded::open().await;
    other.store.close().await.unwrap();
    let limit = login(1, 60, &other.store).audit(&recorded.store);
    let limit = limit.on_store_failure(FailureMode::Open);
    let service = limit.layer(hello::<Body>());
    assert_eq!(statuses(&service, "alice", 2).await, [200, 200]);
    let line = format!("login {ALICE} GET - 200 0");
    assert_eq!(recorded.lines().await, [line.clone(), line]);
}

#[tokio::test]
async fn a_method_that_a_client_has_made_up_is_cut() {
    let recorded = Recorded::open().await;
    let limit = login(9, 60, &recorded.store).audit(&recorded.store);
    let service = limit.layer(hello());
    send(&service, request(&"X".repeat(1_000), "/")).await;
    let line = format!("login {ALICE} {} - 200 1", "X".repeat(16));
    assert_eq!(recorded.lines().await, [line]);
}

#[tokio::test]
async fn a_key_is_stored_as_the_counters_have_it() {
    let recorded = Recorded::open().await;
    let limit = login(9, 60, &recorded.store).audit(&recorded.store);
    let service = limit.layer(hello::<Body>());
    let clients = [
        "it's; DROP TABLE api_calls".to_owned(),
        "a|b:c%".to_owned(),
        "long".repeat(500),
    ];
    for client in clients {
        assert_eq!(send(&service, from(client)).await.status, 200);
    }
    assert_eq!(recorded.lines().await.len(), 3);
    let others = "SELECT key FROM api_calls EXCEPT SELECT key FROM rate_limit_windows";
    assert!(recorded.texts(others).await.is_empty());
}
