//! Requests that are given up at any point.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use axum::Router;
use axum::body::Body;
use axum::routing::get as on_get;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tollgate::{Key, RateLimitLayer, key};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt};

use crate::support::{CLIENT, clock, from, hello, login, memory, send, serve, sqlite, statuses};

/// A service that never answers, and tells when it is called.
fn stuck(
    called: Arc<Notify>,
) -> impl Service<Request<Body>, Response = Response<Full<Bytes>>, Error = Infallible> + Clone {
    tower::service_fn(move |_: Request<Body>| {
        called.notify_one();
        pending()
    })
}

/// Polls a future once, and drops it.
fn poll_once(future: impl Future) {
    let mut future = pin!(future);
    let _ = future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
}

#[tokio::test]
async fn a_future_dropped_unpolled_leaves_the_store_usable() {
    let layer = login(100, 60, &sqlite(&clock()));
    let mut service = layer.layer(hello::<Body>());
    for _ in 0..50 {
        drop(service.ready().await.unwrap().call(from("alice")));
    }
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.status, 200);
    let decision = layer
        .limiter()
        .peek(&Key::header(CLIENT, "alice"))
        .await
        .unwrap();
    assert!((1..=51).contains(&decision.used()), "{}", decision.used());
    assert_eq!(decision.used(), decision.attempts());
}

#[tokio::test]
async fn a_future_dropped_after_its_first_poll_leaves_the_store_usable() {
    let layer = login(100, 60, &sqlite(&clock()));
    let mut service = layer.layer(hello::<Body>());
    for _ in 0..50 {
        poll_once(service.ready().await.unwrap().call(from("alice")));
    }
    assert_eq!(send(&service, from("alice")).await.status, 200);
    let decision = layer
        .limiter()
        .peek(&Key::header(CLIENT, "alice"))
        .await
        .unwrap();
    assert!((1..=51).contains(&decision.used()), "{}", decision.used());
}

#[tokio::test]
async fn dropped_requests_take_nothing_from_those_beside_them() {
    let layer = login(20, 60, &sqlite(&clock()));
    let mut kept = Vec::new();
    for _ in 0..20 {
        let mut service = layer.layer(hello::<Body>());
        drop(service.ready().await.unwrap().call(from("mallory")));
        kept.push(service.ready().await.unwrap().call(from("alice")));
        poll_once(service.ready().await.unwrap().call(from("mallory")));
    }
    for future in kept {
        assert_eq!(future.await.unwrap().status(), 200);
    }
    assert_eq!(statuses(&layer.layer(hello()), "alice", 1).await, [429]);
}

#[tokio::test]
async fn a_dropped_future_frees_the_permit_of_the_inner_service() {
    let permits = ConcurrencyLimit::new(hello::<Body>(), 1);
    let mut other = permits.clone();
    let mut service = login(100, 60, &sqlite(&clock())).layer(permits);
    for is_polled in [false, true, false, true] {
        let future = service.ready().await.unwrap().call(from("alice"));
        if is_polled {
            poll_once(future);
        } else {
            drop(future);
        }
        // Asked once: a permit that never comes must fail the test, not hang it.
        let mut asked = pin!(other.ready());
        let answer = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(answer.is_ready(), "polled: {is_polled}");
        other = other.clone();
    }
    assert_eq!(send(&service, from("alice")).await.status, 200);
}

#[tokio::test]
async fn a_request_given_up_while_the_inner_service_runs_keeps_its_charge() {
    let called = Arc::new(Notify::new());
    for layer in [
        login(1, 60, &memory(&clock())),
        login(1, 60, &sqlite(&clock())),
    ] {
        let service = layer.layer(stuck(Arc::clone(&called)));
        let mut request = Box::pin(service.oneshot(from("alice")));
        tokio::select! {
            _ = &mut request => unreachable!("the inner service never answers"),
            () = called.notified() => (),
        }
        drop(request);
        assert_eq!(statuses(&layer.layer(hello()), "alice", 1).await, [429]);
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_while_the_handler_runs_keeps_its_charge() {
    struct Gone(Arc<Notify>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }

    let (called, gone) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let layer = RateLimitLayer::fixed(1, 60)
        .key(key::peer_ip())
        .store(&sqlite(&clock()));
    let limiter = layer.limiter();
    let (on_call, on_drop) = (Arc::clone(&called), Arc::clone(&gone));
    let handler = move || async move {
        let _gone = Gone(on_drop);
        on_call.notify_one();
        pending::<&str>().await
    };
    let router = Router::new().route("/", on_get(handler)).layer(layer);
    let mut client = TcpStream::connect(serve(router).await).await.unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    called.notified().await;
    drop(client);
    gone.notified().await;
    let decision = limiter
        .peek(&Key::ip("127.0.0.1".parse().unwrap()))
        .await
        .unwrap();
    assert_eq!((decision.used(), decision.remaining()), (1, 0));
}
