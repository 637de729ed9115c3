//! The answer to a refused request, of contestants that have none of their own: as much as this crate says, so that all do
//! the same work.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::contestant::{NAME, WINDOW_SECONDS};

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

pub(crate) fn answer(limit: u32) -> Response {
    let wait = seconds_left();
    let requests = if limit == 1 { "request" } else { "requests" };
    let body = format!(
        r#"{{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":"The policy {NAME} allows {limit} {requests} per {WINDOW_SECONDS} seconds.","limit":{limit},"window_seconds":{WINDOW_SECONDS},"retry_after":{wait},"violated-policies":["{NAME}"]}}"#
    );
    let policy = format!(r#""{NAME}";q={limit};w={WINDOW_SECONDS}"#);
    let state = format!(r#""{NAME}";r=0;t={wait}"#);
    let mut response = (StatusCode::TOO_MANY_REQUESTS, body).into_response();
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, PROBLEM_JSON);
    fields.insert(CACHE_CONTROL, NO_STORE);
    fields.insert(RETRY_AFTER, wait.into());
    for (name, value) in [("ratelimit-policy", policy), ("ratelimit", state)] {
        if let Ok(value) = value.try_into() {
            fields.insert(name, value);
        }
    }
    response
}

/// Until the window of this crate ends.
fn seconds_left() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs());
    WINDOW_SECONDS - now % WINDOW_SECONDS
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use anyhow::Result;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use axum::routing::get;
    use axum::{Router, http::HeaderMap};
    use tollgate::{MemoryStore, RateLimitLayer, key};
    use tower::ServiceExt;

    use super::*;

    /// Fields and body, without the numbers that go with the time.
    async fn parts(response: Response) -> Result<(StatusCode, BTreeMap<String, usize>, usize)> {
        let (head, body) = response.into_parts();
        let lengths = |fields: &HeaderMap| {
            let entry = |(name, value): (&axum::http::HeaderName, &HeaderValue)| {
                (name.to_string(), value.len())
            };
            fields.iter().map(entry).collect()
        };
        let body = to_bytes(body, 4_096).await?;
        Ok((head.status, lengths(&head.headers), body.len()))
    }

    #[tokio::test]
    async fn it_is_as_long_as_that_of_this_crate() -> Result<()> {
        let layer = RateLimitLayer::fixed(1, WINDOW_SECONDS)
            .name(NAME)
            .key(key::constant("all"))
            .store(&MemoryStore::new());
        let app = Router::new().route("/", get(async || "hello")).layer(layer);
        let mut last = None;
        for _ in 0..2 {
            let request = Request::get("/").body(Body::empty())?;
            last = Some(app.clone().oneshot(request).await?);
        }
        let ours = parts(last.unwrap_or_default()).await?;
        let mut theirs = parts(answer(1)).await?;
        // axum adds the length where a response passes its router.
        if let Some(length) = ours.1.get("content-length") {
            theirs.1.insert("content-length".to_owned(), *length);
        }
        assert_eq!(ours, theirs);
        Ok(())
    }
}
