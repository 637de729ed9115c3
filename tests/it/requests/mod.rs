//! What the head of a request decides: whether it counts, how much, and under which policy.

mod cost;
mod exempt;
mod plans;
mod policy_for;

use axum::body::Body;
use http::Request;
use tollgate::{Key, Limiter, Policy, Store};

use crate::support::{CLIENT, from};

/// `GET /` by `alice`, with this header too.
fn from_alice_with(name: &'static str, value: &str) -> Request<Body> {
    let mut request = from("alice");
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

/// What a policy has used for the client `alice` on the store.
async fn used(policy: Policy, store: &impl Store) -> u64 {
    let limiter = Limiter::new(policy).store(store);
    let seen = limiter.peek(&Key::header(CLIENT, "alice")).await;
    seen.unwrap().used()
}
