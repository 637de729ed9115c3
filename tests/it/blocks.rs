//! Keys that are blocked after a refusal, through a layer.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use tokio::sync::Semaphore;
use tollgate::{Key, Limiter, Policy, RateLimitLayer, key};
use tower::{Layer, ServiceExt};

use crate::support::{CLIENT, clock, from, hello, memory, send, sqlite, statuses};

const HOUR: Duration = Duration::from_hours(1);

#[tokio::test]
async fn a_blocked_client_is_told_the_whole_block_and_let_in_after_it() {
    let clock = clock();
    let layer = RateLimitLayer::sliding(2, 60)
        .name("login")
        .key(key::header(CLIENT))
        .store(&sqlite(&clock))
        .block_for(HOUR);
    let service = layer.layer(hello());
    assert_eq!(statuses(&service, "alice", 2).await, [200, 200]);
    let refused = send(&service, from("alice")).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.headers["retry-after"], "3600");
    assert_eq!(refused.headers["ratelimit"], "\"login\";r=0;t=3600");
    assert_eq!(refused.json()["retry_after"], 3_600);
    assert_eq!(
        refused.json()["detail"],
        "The policy login allows 2 requests per 60 seconds. Who exceeds it is blocked for 3600 seconds."
    );
    clock.advance(Duration::from_millis(3_599_999));
    let refused = send(&service, from("alice")).await;
    assert_eq!(
        (refused.status, &refused.headers["retry-after"]),
        (429, &"1".parse().unwrap())
    );
    assert_eq!(statuses(&service, "bob", 1).await, [200]);
    clock.advance(Duration::from_millis(1));
    assert_eq!(statuses(&service, "alice", 1).await, [200]);
}

#[tokio::test]
async fn an_operator_sees_a_block_and_ends_it() {
    let layer = RateLimitLayer::fixed(1, 60)
        .name("login")
        .key(key::header(CLIENT))
        .store(&memory(&clock()))
        .block_after(2, HOUR);
    let service = layer.layer(hello());
    assert_eq!(statuses(&service, "alice", 3).await, [200, 429, 429]);
    let (limiter, alice) = (layer.limiter(), Key::header(CLIENT, "alice"));
    let look = limiter.peek(&alice).await.unwrap();
    assert_eq!(look.retry_after(), Some(HOUR));
    assert_eq!(look.verdicts().next().unwrap().blocked_for(), Some(HOUR));
    assert_eq!(limiter.reset(&alice).await.unwrap(), 1);
    assert_eq!(statuses(&service, "alice", 1).await, [200]);
}

#[test]
fn a_block_of_no_time_or_after_no_refusal_is_refused_when_it_is_built() {
    let policy = || Policy::fixed(1, 60);
    for (refusals, lasts) in [
        (0, HOUR),
        (1, Duration::ZERO),
        (1, Duration::from_micros(1_500)),
        (1, Duration::from_hours(11 * 366 * 24)),
    ] {
        assert!(policy().try_block_after(refusals, lasts).is_err());
    }
    assert!(
        policy()
            .try_block_after(1, Duration::from_millis(1))
            .is_ok()
    );
}

#[tokio::test]
async fn an_inner_layer_on_the_counter_of_an_outer_one_blocks_too() {
    let store = sqlite(&clock());
    let outer = RateLimitLayer::fixed(9, 60)
        .name("login")
        .key(key::header(CLIENT))
        .store(&store);
    let inner = RateLimitLayer::fixed(2, 60)
        .name("login")
        .key(key::header(CLIENT))
        .store(&store)
        .block_for(HOUR);
    let service = outer.layer(inner.layer(hello()));
    assert_eq!(statuses(&service, "alice", 2).await, [200, 200]);
    let refused = send(&service, from("alice")).await;
    assert_eq!((refused.status, refused.only("retry-after")), (429, "3600"));
    let look = outer.limiter().peek(Key::header(CLIENT, "alice")).await;
    assert_eq!(
        look.unwrap().used(),
        3,
        "the outer one has charged it, once"
    );
}

/// Six log-ins at once, of which five run and wait until they may answer.
#[tokio::test]
async fn a_block_that_began_while_units_were_out_ends_when_they_come_back() {
    for policy in [Policy::sliding(5, 900), Policy::fixed(5, 900)] {
        let clock = clock();
        let (entered, answer) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let handler = {
            let (entered, answer) = (Arc::clone(&entered), Arc::clone(&answer));
            tower::service_fn(move |_: Request<Body>| {
                let (entered, answer) = (Arc::clone(&entered), Arc::clone(&answer));
                async move {
                    entered.add_permits(1);
                    answer.acquire().await.unwrap().forget();
                    Ok::<_, Infallible>(Response::new(Body::empty()))
                }
            })
        };
        let layer = RateLimitLayer::new(policy.name("login").block_for(HOUR))
            .key(key::header(CLIENT))
            .store(&sqlite(&clock))
            .refund_if(|status| status.is_success());
        let service = layer.layer(handler);
        let calls: Vec<_> = (0..5)
            .map(|_| tokio::spawn(service.clone().oneshot(from("alice"))))
            .collect();
        entered.acquire_many(5).await.unwrap().forget();
        clock.advance(Duration::from_millis(1));
        let refused = send(&service, from("alice")).await;
        assert_eq!((refused.status, refused.only("retry-after")), (429, "3600"));
        answer.add_permits(6);
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap().status(), 200);
        }
        assert_eq!(statuses(&service, "alice", 1).await, [200]);
    }
}

#[tokio::test]
async fn a_block_that_began_before_the_units_were_taken_outlasts_their_refund() {
    let clock = clock();
    let store = sqlite(&clock);
    let policy = Policy::fixed(5, 900).name("login");
    let blocking = Limiter::new(policy.clone().block_for(HOUR)).store(&store);
    let alice = Key::header(CLIENT, "alice");
    assert!(blocking.check_n(&alice, 6).await.unwrap().is_denied());
    clock.advance(Duration::from_millis(1));
    // A limiter of the same counter that does not block.
    let plain = Limiter::new(policy).store(&store);
    let charged = plain.check(&alice).await.unwrap();
    blocking.refund(&charged).await.unwrap();
    let look = blocking.peek(&alice).await.unwrap();
    assert_eq!((look.used(), look.is_denied()), (0, true));
}
