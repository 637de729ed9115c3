//! What is known only when the inner service has run: answers that do not count, and units that were used beside.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::sync::Notify;
use tollgate::{Decisions, Key, Policy, RateLimitLayer, Store, Verdict, key};
use tower::{Layer, Service, ServiceExt};

use crate::support::{CLIENT, LONG, clock, from, memory, send, sqlite, statuses};

/// A policy of each algorithm.
fn policies(limit: u32) -> [Policy; 5] {
    [
        Policy::fixed(limit, 60),
        Policy::sliding(limit, 60),
        Policy::sliding_counter(limit, 60),
        Policy::token_bucket(limit, 60),
        Policy::daily(limit),
    ]
    .map(|policy| policy.name("login"))
}

fn layer(policy: Policy, store: &impl Store) -> RateLimitLayer {
    let by_client = RateLimitLayer::new(policy).key(key::header(CLIENT));
    by_client.store(store)
}

/// A service that answers what the path says, or fails.
fn answering()
-> impl Service<Request<Body>, Response = Response<Body>, Error = &'static str, Future: Send> + Clone
{
    tower::service_fn(async |request: Request<Body>| {
        let status: u16 = request.uri().path()[1..].parse().map_err(|_| "failed")?;
        let status = StatusCode::from_u16(status).unwrap();
        Ok(status.into_response())
    })
}

fn login(path: &str) -> Request<Body> {
    let mut request = from("alice");
    *request.uri_mut() = path.parse().unwrap();
    request
}

#[tokio::test]
async fn a_login_limit_counts_failures_only_and_its_fields_show_it() {
    for policy in policies(2) {
        let layer = layer(policy.clone(), &sqlite(&clock()));
        let layer = layer.refund_if(|status| status.is_success());
        let service = layer.layer(answering());
        for _ in 0..5 {
            let answer = send(&service, login("/200")).await;
            assert_eq!(answer.status, 200, "{policy}");
            assert!(
                answer.header("ratelimit").starts_with("\"login\";r=2;"),
                "{policy}"
            );
        }
        let failed = send(&service, login("/401")).await;
        assert!(
            failed.header("ratelimit").starts_with("\"login\";r=1;"),
            "{policy}"
        );
        assert_eq!(send(&service, login("/200")).await.status, 200, "{policy}");
        assert_eq!(send(&service, login("/401")).await.status, 401, "{policy}");
        // The right password does not help any more.
        assert_eq!(send(&service, login("/200")).await.status, 429, "{policy}");
    }
}

#[tokio::test]
async fn an_inner_error_counts_as_a_failure() {
    let counts_failures = layer(Policy::fixed(1, 60).name("a"), &memory(&clock()));
    let service = counts_failures
        .refund_if(|status| status.is_success())
        .layer(answering());
    assert!(service.clone().oneshot(login("/fail")).await.is_err());
    assert_eq!(send(&service, login("/200")).await.status, 429);

    let counts_successes = layer(Policy::fixed(1, 60).name("b"), &memory(&clock()));
    let service = counts_successes
        .refund_if(|status| status.is_server_error())
        .layer(answering());
    assert!(service.clone().oneshot(login("/fail")).await.is_err());
    assert_eq!(send(&service, login("/500")).await.status, 500);
    assert_eq!(send(&service, login("/200")).await.status, 200);
    assert_eq!(send(&service, login("/200")).await.status, 429);
}

#[tokio::test]
async fn a_client_that_hangs_up_gets_nothing_back() {
    let (entered, never) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (entered, never) = (Arc::clone(&entered), Arc::clone(&never));
        tower::service_fn(move |_: Request<Body>| {
            let (entered, never) = (Arc::clone(&entered), Arc::clone(&never));
            async move {
                entered.notify_one();
                never.notified().await;
                Ok::<_, Infallible>(Response::new(Body::empty()))
            }
        })
    };
    let layer = layer(Policy::fixed(3, 60).name("p"), &memory(&clock())).refund_if(|_| true);
    let call = tokio::spawn(layer.layer(handler).oneshot(from("alice")));
    entered.notified().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    let look = layer.limiter().peek(Key::header(CLIENT, "alice")).await;
    assert_eq!(look.unwrap().used(), 1);
}

#[tokio::test]
async fn nested_layers_on_one_counter_give_a_charge_back_once() {
    let store = sqlite(&clock());
    let policy = Policy::sliding(5, 60).name("p");
    let layer = layer(policy, &store).refund_if(|status| status.is_success());
    let service = layer.layer(layer.layer(answering()));
    assert_eq!(send(&service, login("/401")).await.status, 401);
    assert_eq!(send(&service, login("/200")).await.status, 200);
    let look = layer.limiter().peek(Key::header(CLIENT, "alice")).await;
    assert_eq!(look.unwrap().used(), 1);
}

#[tokio::test]
async fn an_inner_layer_of_another_limit_gives_nothing_back_that_the_outer_one_has_charged() {
    let store = memory(&clock());
    let outer = layer(Policy::sliding(5, 60).name("p"), &store);
    let inner = layer(Policy::sliding(3, 60).name("p"), &store);
    let inner = inner.and(Policy::sliding(9, 60).name("q"), key::header(CLIENT));
    let inner = inner.refund_if(|status| status.is_success());
    let service = outer.layer(inner.layer(answering()));
    assert_eq!(send(&service, login("/200")).await.status, 200);
    let used = inner
        .limiter()
        .peek(Key::header(CLIENT, "alice"))
        .await
        .unwrap();
    let used: Vec<_> = used.verdicts().map(Verdict::used).collect();
    assert_eq!(used, [1, 0]);
}

/// Charges what the path says beside the unit of the request.
async fn work(Extension(decisions): Extension<Decisions>, request: Request<Body>) -> &'static str {
    decisions.charge_more(request.uri().path()[1..].parse().unwrap());
    "done"
}

#[tokio::test]
async fn a_handler_charges_what_it_has_used_and_may_pass_the_limit() {
    for policy in policies(10) {
        let store = sqlite(&clock());
        let layer = layer(policy.clone(), &store);
        let app = Router::new()
            .route("/{units}", get(work))
            .layer(layer.clone());
        let first = send(&app, login("/4")).await;
        assert!(
            first.header("ratelimit").starts_with("\"login\";r=5;"),
            "{policy}"
        );
        let second = send(&app, login("/20")).await;
        assert_eq!(second.status, 200, "{policy}");
        assert!(
            second.header("ratelimit").starts_with("\"login\";r=0;"),
            "{policy}"
        );
        let told = second.extensions.get::<Decisions>().unwrap();
        assert_eq!(told.iter().next().unwrap().used(), 26, "{policy}");
        let look = layer
            .limiter()
            .peek(Key::header(CLIENT, "alice"))
            .await
            .unwrap();
        assert_eq!((look.used(), look.remaining()), (26, 0), "{policy}");
        assert_eq!(send(&app, login("/1")).await.status, 429, "{policy}");
    }
}

#[tokio::test]
async fn a_body_that_goes_on_after_the_head_charges_too() {
    let store = sqlite(&clock());
    let layer = layer(Policy::fixed(10, 60).name("bytes"), &store);
    let streaming = async |Extension(decisions): Extension<Decisions>| {
        Body::new(Charging {
            decisions,
            frames: 3,
        })
    };
    let app = Router::new()
        .route("/", get(streaming))
        .layer(layer.clone());
    let response = app.clone().oneshot(from("alice")).await.unwrap();
    assert!(
        response.headers()["ratelimit"]
            .to_str()
            .unwrap()
            .contains("r=9;")
    );
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "...");
    let look = layer
        .limiter()
        .peek(Key::header(CLIENT, "alice"))
        .await
        .unwrap();
    assert_eq!(look.used(), 7);
    assert_eq!(statuses(&app, "alice", 1).await, [200]);
}

/// A body of which each frame charges two units.
struct Charging {
    decisions: Decisions,
    frames: u32,
}

impl http_body::Body for Charging {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(left) = self.frames.checked_sub(1) else {
            return Poll::Ready(None);
        };
        self.frames = left;
        self.decisions.charge_more(2);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b".")))))
    }
}

#[tokio::test]
async fn more_can_be_charged_to_one_policy_by_its_name() {
    let store = memory(&clock());
    let requests = layer(Policy::fixed(100, 60).name("requests"), &store);
    let tokens = layer(Policy::daily(1_000).name("tokens"), &store);
    let handler = async |Extension(decisions): Extension<Decisions>| {
        assert!(decisions.charge_more_to("tokens", 499));
        assert!(!decisions.charge_more_to("other", 499));
        "done"
    };
    let app = Router::new()
        .route("/", post(handler).get(handler))
        .layer(tokens)
        .layer(requests);
    let answer = send(&app, from("alice")).await;
    let fields = answer.header("ratelimit");
    assert!(fields.contains("\"tokens\";r=500;"), "{fields}");
    assert!(fields.contains("\"requests\";r=99;"), "{fields}");
}

#[tokio::test]
async fn nested_layers_on_one_counter_charge_more_once() {
    let store = memory(&clock());
    let layer = layer(Policy::fixed(10, 60).name("login"), &store);
    let app = Router::new()
        .route("/{units}", get(work).layer(layer.clone()))
        .layer(layer.clone());
    assert_eq!(send(&app, login("/4")).await.status, 200);
    let look = layer
        .limiter()
        .peek(Key::header(CLIENT, "alice"))
        .await
        .unwrap();
    assert_eq!(look.used(), 5);
}

#[tokio::test]
async fn what_is_refunded_is_the_request_and_not_what_was_charged_beside_it() {
    let layer = layer(Policy::fixed(10, 60).name("login"), &memory(&clock())).refund_if(|_| true);
    let app = Router::new()
        .route("/{units}", get(work))
        .layer(layer.clone());
    let answer = send(&app, login("/4")).await;
    assert!(answer.header("ratelimit").starts_with("\"login\";r=6;"));
    let look = layer
        .limiter()
        .peek(Key::header(CLIENT, "alice"))
        .await
        .unwrap();
    assert_eq!(look.used(), 4);
}

#[tokio::test]
async fn what_a_bucket_takes_back_slowly_is_told_in_numbers_that_parsers_take() {
    let policy = Policy::try_token_bucket(1, Duration::from_secs(LONG)).unwrap();
    let layer = layer(policy.name("slow"), &memory(&clock()))
        .x_rate_limit(tollgate::ResetFormat::EpochSeconds);
    let app = Router::new().route("/{units}", get(work)).layer(layer);
    let most = format!("/{}", u32::MAX);
    assert_eq!(send(&app, login(&most)).await.status, 200);
    let refused = send(&app, login("/1")).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.only("ratelimit"), "\"slow\";r=0;t=999999999999999");
    assert_eq!(refused.only("retry-after"), "999999999999999");
    assert!(refused.only("x-ratelimit-reset").len() <= 15);
    assert_eq!(refused.json()["retry_after"], 999_999_999_999_999_u64);
}

#[tokio::test]
async fn after_a_refund_the_decision_tells_what_a_look_tells() {
    let clock = clock();
    let layer = layer(Policy::sliding(5, 60).name("login"), &memory(&clock));
    let layer = layer.refund_if(|status| status.is_success());
    let service = layer.layer(answering());
    assert_eq!(send(&service, login("/401")).await.status, 401);
    clock.advance(Duration::from_secs(50));
    let answer = send(&service, login("/200")).await;
    let told = answer.extensions.get::<Decisions>().unwrap();
    let told = told.iter().next().unwrap().reset_after();
    let look = layer.limiter().peek(Key::header(CLIENT, "alice")).await;
    assert_eq!(
        (told, look.unwrap().reset_after()),
        (Duration::from_secs(10), told)
    );
}
