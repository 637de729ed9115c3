//! What passes is the inner service's own.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full};
use tollgate::Store;
use tower::{Layer, Service, ServiceExt};

use crate::support::{clock, from, hello, login, login_in_memory, memory, send, sqlite};

/// A service that gives this answer and counts its calls.
fn answering(
    response: impl Fn() -> Response<Full<Bytes>> + Clone,
) -> (
    Arc<AtomicUsize>,
    impl Service<Request<Body>, Response = Response<Full<Bytes>>, Error = Infallible> + Clone,
) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let service = tower::service_fn(move |_: Request<Body>| {
        counted.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(response()))
    });
    (calls, service)
}

async fn calls_of_four_requests(store: &impl Store) -> usize {
    let (calls, service) = answering(|| Response::new(Full::default()));
    let service = login(1, 60, store).layer(service);
    for _ in 0..4 {
        send(&service, from("alice")).await;
    }
    calls.load(Ordering::SeqCst)
}

#[tokio::test]
async fn the_inner_service_never_runs_for_a_refused_request() {
    assert_eq!(calls_of_four_requests(&memory(&clock())).await, 1);
    assert_eq!(calls_of_four_requests(&sqlite(&clock())).await, 1);
}

#[tokio::test]
async fn the_inner_service_never_runs_for_a_request_without_a_key() {
    let (calls, service) = answering(|| Response::new(Full::default()));
    let service = login_in_memory(1, 60).layer(service);
    assert_eq!(
        send(&service, Request::new(Body::empty())).await.status,
        400
    );
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn status_headers_and_body_of_an_allowed_response_are_kept() {
    let (_, service) = answering(|| {
        Response::builder()
            .status(203)
            .header("cache-control", "max-age=60")
            .header("set-cookie", "a=1")
            .header("set-cookie", "b=2")
            .body(Full::from("hi"))
            .unwrap()
    });
    let answer = send(&login_in_memory(1, 60).layer(service), from("alice")).await;
    assert_eq!((answer.status, answer.text()), (203, "hi"));
    assert_eq!(answer.only("cache-control"), "max-age=60");
    assert_eq!(answer.header("set-cookie"), "a=1, b=2");
    assert_eq!(answer.headers.len(), 5);
}

#[tokio::test]
async fn an_allowed_response_gets_no_cache_control_and_no_retry_after() {
    let answer = send(&login_in_memory(1, 60).layer(hello()), from("alice")).await;
    assert_eq!(answer.header("cache-control"), "");
    assert_eq!(answer.header("retry-after"), "");
}

#[tokio::test]
async fn a_handlers_own_503_keeps_its_retry_after() {
    let (_, service) = answering(|| {
        Response::builder()
            .status(503)
            .header("retry-after", "Fri, 31 Dec 2027 23:59:59 GMT")
            .body(Full::default())
            .unwrap()
    });
    let answer = send(&login_in_memory(1, 60).layer(service), from("alice")).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.only("retry-after"), "Fri, 31 Dec 2027 23:59:59 GMT");
    assert_eq!(answer.header("cache-control"), "");
}

#[tokio::test]
async fn a_handlers_own_429_is_passed_on_as_it_is() {
    let (_, service) = answering(|| {
        Response::builder()
            .status(429)
            .header("retry-after", "7")
            .body(Full::from("mine"))
            .unwrap()
    });
    let answer = send(&login_in_memory(1, 60).layer(service), from("alice")).await;
    assert_eq!((answer.status, answer.text()), (429, "mine"));
    assert_eq!(answer.only("retry-after"), "7");
    assert_eq!(answer.only("ratelimit"), "\"login\";r=0;t=60");
}

#[tokio::test]
async fn trailers_are_passed_on() {
    let service = tower::service_fn(|_: Request<Body>| async {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", HeaderValue::from_static("42"));
        let frames = [Frame::data(Bytes::from("hello")), Frame::trailers(trailers)];
        Ok::<_, Infallible>(Response::new(Streamed(frames.into())))
    });
    let service = login(1, 60, &sqlite(&clock())).layer(service);
    let response = service.oneshot(from("alice")).await.unwrap();
    let collected = response.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-checksum"], "42");
    assert_eq!(collected.to_bytes(), "hello");
}

/// A body of these frames, whose length nobody knows.
struct Streamed(VecDeque<Frame<Bytes>>);

impl http_body::Body for Streamed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

#[tokio::test]
async fn size_hint_and_end_of_an_allowed_body_are_the_inner_bodys() {
    let (_, service) = answering(|| Response::new(Full::from("hello")));
    let service = login_in_memory(1, 60).layer(service);
    let body = service.oneshot(from("alice")).await.unwrap().into_body();
    assert_eq!(body.size_hint().exact(), Some(5));
    assert!(!body.is_end_stream());

    let empty = tower::service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let service = login_in_memory(1, 60).layer(empty);
    let body = service.oneshot(from("alice")).await.unwrap().into_body();
    assert_eq!(body.size_hint().exact(), Some(0));
    assert!(body.is_end_stream());
}

#[tokio::test]
async fn a_body_of_unknown_length_stays_one() {
    let service = tower::service_fn(|_: Request<Body>| async {
        let frames = [Frame::data(Bytes::from("hello"))];
        Ok::<_, Infallible>(Response::new(Streamed(frames.into())))
    });
    let service = login_in_memory(1, 60).layer(service);
    let body = service.oneshot(from("alice")).await.unwrap().into_body();
    let unknown = SizeHint::default();
    assert_eq!(
        (body.size_hint().lower(), body.size_hint().upper()),
        (unknown.lower(), unknown.upper())
    );
    assert_eq!(body.collect().await.unwrap().to_bytes(), "hello");
}

#[tokio::test]
async fn the_request_reaches_the_inner_service_as_it_was() {
    let echo = tower::service_fn(|request: Request<Body>| async move {
        let head = format!(
            "{} {} {:?}",
            request.method(),
            request.uri(),
            request.headers().get("x-own")
        );
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let whole = format!("{head} {}", String::from_utf8_lossy(&body));
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(whole)))
    });
    let service = login(1, 60, &sqlite(&clock())).layer(echo);
    let request = Request::put("/a?b=c")
        .header("x-client-key", "alice")
        .header("x-own", "yes")
        .body(Body::from("payload"))
        .unwrap();
    assert_eq!(
        send(&service, request).await.text(),
        "PUT /a?b=c Some(\"yes\") payload"
    );
}
