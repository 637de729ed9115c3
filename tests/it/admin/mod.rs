//! The admin API, as the file that describes it has it.

mod authentication;
mod counters;
mod hostile;
mod limits;
mod lists;
mod mounting;
mod openapi;
mod rankings;
mod schema;
mod usage;

use axum::Router;
use axum::body::Body;
use http::Request;
use serde_json::Value;
use tollgate::{Admin, AdminKey, Key, Limiter};

use self::schema::OpenApi;
use crate::support::{Answer, send};

pub(super) const SECRET: &str = "6c1f0a7be2d94f5bb2c17ef0d3a1e8a4";

fn admin() -> Admin {
    Admin::new(AdminKey::new(SECRET).unwrap())
}

fn user(id: impl tollgate::KeyValue) -> Key {
    Key::new("user", id)
}

/// A text as a query has it.
fn encoded(text: &str) -> String {
    percent(text.bytes())
}

/// Bytes as a query has them.
fn percent(bytes: impl IntoIterator<Item = u8>) -> String {
    let bytes = bytes.into_iter().map(|byte| format!("%{byte:02X}"));
    bytes.collect::<Vec<_>>().concat()
}

/// Sends a request with the key. What comes back is as the file says.
async fn ask(router: &Router, method: &str, target: &str) -> Answer {
    let request = Request::builder().method(method).uri(target);
    let request = request.header("x-admin-key", SECRET);
    let answer = send(router, request.body(Body::empty()).unwrap()).await;
    OpenApi::read().check(method, target, &answer);
    answer
}

async fn get(router: &Router, target: &str) -> Value {
    let answer = ask(router, "GET", target).await;
    assert_eq!(answer.status, 200, "{target}: {}", answer.text());
    answer.json()
}

async fn status(router: &Router, target: &str) -> u16 {
    ask(router, "GET", target).await.status
}

/// Charges a key so many times, and says how often it was allowed.
async fn charge(limiter: &Limiter, key: &Key, times: usize) -> usize {
    let mut allowed = 0;
    for _ in 0..times {
        allowed += usize::from(limiter.check(key).await.unwrap().is_allowed());
    }
    allowed
}
