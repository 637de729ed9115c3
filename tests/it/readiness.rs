//! The contract of tower: readiness, errors, permits, bounds.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tollgate::{FailureMode, RateLimit, RateLimitLayer, ResponseFuture, Store, key};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt};
use tower_test::{assert_request_eq, mock};

use crate::support::{clock, from, get, hello, login, memory, send, sqlite};

/// A service that must be made ready before each call; a clone of a ready one is not ready.
#[derive(Debug, Default)]
struct Strict {
    is_ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Service<Request<Body>> for Strict {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(self.is_ready, "called without having been made ready");
        self.is_ready = false;
        ready(Ok(Response::new(Full::default())))
    }
}

async fn assert_only_ready_services_are_called(store: &impl Store) {
    let mut service = login(2, 60, store).layer(Strict::default());
    let mut statuses = Vec::new();
    // One service for all requests, as a connection does it, and a clone now and then.
    for _ in 0..3 {
        let response = service
            .ready()
            .await
            .unwrap()
            .call(from("alice"))
            .await
            .unwrap();
        statuses.push(response.status().as_u16());
        statuses.push(send(&service, from("bob")).await.status);
        let response = service.ready().await.unwrap().call(get("/")).await.unwrap();
        assert_eq!(response.status(), 400);
    }
    assert_eq!(statuses, [200, 200, 200, 200, 429, 429]);
}

#[tokio::test]
async fn an_unready_clone_is_never_called() {
    assert_only_ready_services_are_called(&memory(&clock())).await;
    assert_only_ready_services_are_called(&sqlite(&clock())).await;
}

#[tokio::test]
async fn an_unready_clone_is_never_called_where_layers_nest_or_are_switched_off() {
    let store = sqlite(&clock());
    let layer = login(9, 60, &store);
    let inner = layer.clone().layer(Strict::default());
    let mut service = layer.layer(login(9, 60, &store).enabled(false).layer(inner));
    for _ in 0..3 {
        let response = service
            .ready()
            .await
            .unwrap()
            .call(from("alice"))
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
    }
}

#[tokio::test]
async fn pending_and_errors_of_poll_ready_pass_through() {
    let layer = login(9, 60, &memory(&clock()));
    let (mut service, mut handle) = mock::spawn_layer::<Request<Body>, Response<Body>, _>(layer);
    handle.allow(0);
    assert!(service.poll_ready::<Request<Body>>().is_pending());
    handle.allow(1);
    assert!(service.is_woken());
    assert!(matches!(
        service.poll_ready::<Request<Body>>(),
        Poll::Ready(Ok(()))
    ));
    handle.send_error("the inner service is gone");
    let Poll::Ready(Err(error)) = service.poll_ready::<Request<Body>>() else {
        panic!("no error");
    };
    assert_eq!(error.to_string(), "the inner service is gone");
}

#[tokio::test]
async fn the_mock_gets_the_request_and_its_answer_is_passed_on() {
    let layer = login(9, 60, &sqlite(&clock()));
    let (service, mut handle) = mock::pair::<Request<Body>, Response<Full<Bytes>>>();
    let service = layer.layer(service);
    let answer = tokio::spawn(async move { send(&service, from("alice")).await });
    let (request, respond) = handle.next_request().await.unwrap();
    assert_eq!(request.headers()["x-client-key"], "alice");
    respond.send_response(Response::new(Full::from("from the mock")));
    assert_eq!(answer.await.unwrap().text(), "from the mock");
}

#[tokio::test]
async fn a_service_of_another_kind_of_request_body_is_called_in_order() {
    let (service, mut handle) = mock::pair::<u32, Response<Full<Bytes>>>();
    let service = service.map_request(|request: Request<u32>| *request.body());
    let service = login(9, 60, &memory(&clock())).layer(service);
    let request = from("alice").map(|_| 7);
    let answer = tokio::spawn(async move { send(&service, request).await.status });
    assert_request_eq!(handle, 7).send_response(Response::new(Full::default()));
    assert_eq!(answer.await.unwrap(), 200);
}

/// Refuses a request of a service with one permit, and checks that the permit is there at once.
async fn assert_the_permit_is_free(layer: RateLimitLayer, request: Request<Body>, status: u16) {
    let permits = ConcurrencyLimit::new(hello::<Body>(), 1);
    let mut other = permits.clone();
    let mut service = layer.layer(permits);
    let response = service.ready().await.unwrap().call(request).await.unwrap();
    assert_eq!(response.status(), status);
    // The response and the service are still held.
    let freed = std::future::poll_fn(|cx| Poll::Ready(other.poll_ready(cx).is_ready())).await;
    assert!(freed, "the permit is held after a {status}");
    drop((response, service));
}

#[tokio::test]
async fn a_permit_of_the_inner_service_is_free_right_after_a_refusal() {
    assert_the_permit_is_free(login(0, 60, &memory(&clock())), from("alice"), 429).await;
    assert_the_permit_is_free(login(0, 60, &sqlite(&clock())), from("alice"), 429).await;
}

#[tokio::test]
async fn a_permit_of_the_inner_service_is_free_when_there_is_no_key() {
    assert_the_permit_is_free(login(9, 60, &memory(&clock())), get("/"), 400).await;
    let no_peer = login(9, 60, &memory(&clock())).key(key::peer_ip());
    assert_the_permit_is_free(no_peer, get("/"), 500).await;
}

#[tokio::test]
async fn a_permit_of_the_inner_service_is_free_when_the_store_fails() {
    let store = sqlite(&clock());
    store.close().await.unwrap();
    let closed = login(9, 60, &store).on_store_failure(FailureMode::Closed);
    assert_the_permit_is_free(closed, from("alice"), 503).await;
}

#[tokio::test]
async fn a_permit_is_held_while_an_allowed_request_runs_and_no_longer() {
    let permits = ConcurrencyLimit::new(hello::<Body>(), 1);
    let service = login(9, 60, &sqlite(&clock())).layer(permits);
    for _ in 0..3 {
        assert_eq!(send(&service, from("alice")).await.status, 200);
    }
}

#[derive(Debug, PartialEq, Eq)]
struct OwnError(u8);

impl fmt::Display for OwnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {}", self.0)
    }
}

impl Error for OwnError {}

async fn assert_errors_are_the_inner_services_own(store: &impl Store) {
    let failing =
        tower::service_fn(|_: Request<Body>| ready(Err::<Response<Full<Bytes>>, _>(OwnError(7))));
    let service = login(1, 60, store).layer(failing);
    let error: OwnError = service.clone().oneshot(from("alice")).await.unwrap_err();
    assert_eq!(error, OwnError(7));
    // A failed request keeps its charge.
    let refused: Result<_, OwnError> = service.oneshot(from("alice")).await;
    assert_eq!(refused.unwrap().status(), 429);
}

#[tokio::test]
async fn an_error_of_the_inner_service_is_passed_on_as_it_is() {
    assert_errors_are_the_inner_services_own(&memory(&clock())).await;
    assert_errors_are_the_inner_services_own(&sqlite(&clock())).await;
}

#[tokio::test]
async fn request_bodies_need_not_be_clone() {
    struct Unique(#[expect(dead_code, reason = "it is there not to be cloned")] Box<u8>);
    let service = login(1, 60, &sqlite(&clock())).layer(hello());
    let request = from("alice").map(|_| Unique(Box::new(1)));
    assert_eq!(send(&service, request).await.status, 200);
}

#[tokio::test]
async fn request_bodies_need_not_be_send_where_nobody_sends_them() {
    let service = login(1, 60, &sqlite(&clock())).layer(hello());
    let request = from("alice").map(|_| std::rc::Rc::new(1));
    assert_eq!(send(&service, request).await.status, 200);
}

#[test]
fn layer_service_and_future_are_send() {
    fn is_send<T: Send>() {}
    fn is_sync<T: Sync>() {}
    fn is_clone<T: Clone>() {}
    is_send::<RateLimitLayer>();
    is_sync::<RateLimitLayer>();
    is_clone::<RateLimitLayer>();
    is_send::<RateLimit<Strict>>();
    is_sync::<RateLimit<Strict>>();
    is_clone::<RateLimit<Strict>>();
    is_send::<ResponseFuture<Strict, Body>>();
}

#[tokio::test]
async fn the_inner_service_can_be_reached_and_taken_out() {
    let mut service = login(1, 60, &memory(&clock())).layer(Strict::default());
    assert!(!service.get_ref().is_ready);
    ServiceExt::<Request<Body>>::ready(&mut service)
        .await
        .unwrap();
    assert!(service.get_mut().is_ready);
    assert!(service.into_inner().is_ready);
}
