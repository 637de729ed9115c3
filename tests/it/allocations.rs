//! What a request that is decided in memory allocates: what its extensions and fields need, and no more.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use tollgate::{Policy, RateLimitLayer, Store, key};
use tower::{Layer, Service};

use crate::support::{CLIENT, LONG, clock, from, hello, login, memory, send, sqlite};

/// Of a refusal: its body, the texts in it, its fields, and the decision in its extensions.
const ANSWER: u64 = 21;

/// What a call that is answered at once allocates on this thread, and its status.
fn allocated<S, B>(service: &mut S) -> (u64, u16)
where
    S: Service<Request<Body>, Response = Response<B>>,
{
    let request = from("alice");
    let mut status = 0;
    let told = allocation_counter::measure(|| {
        let mut context = Context::from_waker(Waker::noop());
        assert!(service.poll_ready(&mut context).is_ready());
        let mut future = pin!(service.call(request));
        let Poll::Ready(Ok(response)) = future.as_mut().poll(&mut context) else {
            panic!("it was not decided in memory");
        };
        status = response.status().as_u16();
    });
    (told.count_total, status)
}

/// The decision behind an `Arc`, in both extensions, and two fields, of which one is the same each time.
fn by_hand()
-> impl Service<Request<Body>, Response = Response<Full<Bytes>>, Error = Infallible> + Clone {
    let policy = HeaderValue::from_str(&"login".repeat(3)).unwrap();
    tower::service_fn(move |mut request: Request<Body>| {
        let decision = Arc::new(7_u128);
        request.extensions_mut().insert(Arc::clone(&decision));
        let mut response = Response::new(Full::from("hello"));
        let limit = HeaderValue::from_str("\"login\";r=9;t=60").unwrap();
        response
            .headers_mut()
            .append("ratelimit-policy", policy.clone());
        response.headers_mut().append("ratelimit", limit);
        response.extensions_mut().insert(decision);
        std::future::ready(Ok(response))
    })
}

async fn is_held(store: &impl Store) {
    let needed = allocated(&mut by_hand()).0;
    let mut service = login(1_000_000, LONG, store).layer(hello::<Body>());
    // Until it has charged ahead.
    for _ in 0..2_000 {
        assert_eq!(send(&service, from("alice")).await.status, 200);
    }
    let (passed, status) = allocated(&mut service);
    assert_eq!(status, 200);
    assert!(passed <= needed, "{passed} for {needed}");
}

#[tokio::test]
async fn a_request_that_memory_lets_pass_allocates_what_its_extensions_and_fields_need() {
    is_held(&sqlite(&clock())).await;
    is_held(&memory(&clock())).await;
}

/// What several policies have in the extensions beside it, of which one alone needs no list: their verdicts, and the counters that
/// were charged. Room for more than one in their places would be moved with each decision of one policy, and cost it more.
const LISTS: u64 = 2;

/// For each further policy: the labels of its counter, since these tests have the feature `metrics`.
const LABELS: u64 = 1;

async fn several_are_held(policies: &[Policy]) {
    let further = policies.len() as u64 - 1;
    let needed = allocated(&mut by_hand()).0 + LISTS + further * LABELS;
    let layer = RateLimitLayer::new(policies.to_vec())
        .key(key::header(CLIENT))
        .store(&sqlite(&clock()));
    let mut service = layer.layer(hello::<Body>());
    for _ in 0..2_000 {
        assert_eq!(send(&service, from("alice")).await.status, 200);
    }
    let (passed, status) = allocated(&mut service);
    assert_eq!(status, 200);
    assert!(passed <= needed, "{passed} for {needed}");
}

#[tokio::test]
async fn several_policies_allocate_no_list_but_what_their_extensions_hold() {
    let policies = [
        Policy::fixed(1_000_000, LONG).name("login"),
        Policy::daily(1_000_000).name("quota"),
        Policy::sliding_counter(1_000_000, LONG).name("pace"),
        Policy::monthly(1_000_000).name("plan"),
    ];
    several_are_held(&policies[..2]).await;
    several_are_held(&policies).await;
}

/// Its body, its fields, and what says why.
#[tokio::test]
async fn a_request_that_is_known_to_be_over_allocates_its_answer() {
    let mut service = login(1, LONG, &sqlite(&clock())).layer(hello::<Body>());
    for status in [200, 429, 429] {
        assert_eq!(send(&service, from("alice")).await.status, status);
    }
    let (refused, status) = allocated(&mut service);
    assert_eq!(status, 429);
    assert!(refused <= ANSWER, "{refused}");
}
