//! Who is let in, and what every answer has.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn, map_response};
use axum::response::{IntoResponse, Response};
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};

use super::problem::Problem;
use super::{AdminKey, events};
use crate::clock;

const ADMIN_KEY: HeaderName = HeaderName::from_static("x-admin-key");
/// For who sent nothing it has no error code (RFC 6750, 3.1).
const CHALLENGE: &str = r#"Bearer realm="tollgate admin""#;
const CHALLENGE_AGAIN: &str = r#"Bearer realm="tollgate admin", error="invalid_token""#;
/// Somebody who tries keys must not fill the log.
const BETWEEN_EVENTS: Duration = Duration::from_mins(1);

/// Lets through who sends the key. What is not routed is not asked about, so that the router can be merged into others.
pub(super) fn behind_key(router: Router, key: AdminKey) -> Router {
    let gate = Arc::new(Gate {
        key,
        denied: Mutex::default(),
    });
    router.route_layer(from_fn(move |request: Request, next: Next| {
        let gate = Arc::clone(&gate);
        async move {
            match gate.admit(request.headers()) {
                Ok(()) => next.run(request).await,
                Err(problem) => problem.into_response(),
            }
        }
    }))
}

/// Gives every answer what it must have, also those of an authentication that is not ours.
pub(super) fn finish(router: Router) -> Router {
    router.route_layer(map_response(async |mut response: Response| {
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        // Keys are what clients have sent, markup as well.
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }))
}

struct Gate {
    key: AdminKey,
    denied: Mutex<Denied>,
}

/// Those who were not let in since that was last told.
#[derive(Default)]
struct Denied {
    attempts: u64,
    told_at: Option<Instant>,
}

impl Gate {
    fn admit(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let (challenge, detail) = match sent(headers) {
            Sent::Nothing => (
                CHALLENGE,
                "Send the admin key in X-Admin-Key, or as the bearer token in Authorization.",
            ),
            Sent::Several => (
                CHALLENGE_AGAIN,
                "Several admin keys were sent: send one, in X-Admin-Key or as the bearer token in Authorization.",
            ),
            Sent::One(key) if self.key.admits(key) => {
                // Those of a flood that is over would be told by nobody.
                self.note_denied(0);
                return Ok(());
            }
            Sent::One(_) => (CHALLENGE_AGAIN, "The admin key is wrong."),
        };
        self.note_denied(1);
        // Also for a wrong key: 403 is for who is known and may not (RFC 9110, 15.5.2 and 15.5.4).
        Err(Problem::unauthorized(challenge, detail))
    }

    /// Counts attempts, and tells those that were not told when it is time to.
    fn note_denied(&self, attempts: u64) {
        let now = clock::monotonic();
        let mut denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
        denied.attempts += attempts;
        let is_quiet = |told_at: Instant| now.duration_since(told_at) < BETWEEN_EVENTS;
        if denied.attempts == 0 || denied.told_at.is_some_and(is_quiet) {
            return;
        }
        denied.told_at = Some(now);
        let attempts = std::mem::take(&mut denied.attempts);
        drop(denied);
        events::denied(attempts);
    }
}

/// What a request sends as its key.
enum Sent<'a> {
    Nothing,
    One(&'a [u8]),
    Several,
}

/// A proxy may have put an `Authorization` of its own there: it is read only where there is no `X-Admin-Key`.
fn sent(headers: &HeaderMap) -> Sent<'_> {
    let mut keys = headers.get_all(ADMIN_KEY).iter();
    match (keys.next(), keys.next()) {
        (Some(key), None) => return Sent::One(key.as_bytes()),
        (Some(_), Some(_)) => return Sent::Several,
        (None, _) => {}
    }
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) => match bearer(line.as_bytes()) {
            Some(token) => Sent::One(token),
            None => Sent::Nothing,
        },
        (Some(_), Some(_)) => Sent::Several,
        (None, _) => Sent::Nothing,
    }
}

/// The token of `Bearer token`; the scheme has no case (RFC 9110, 11.1).
fn bearer(line: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = line.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_that_nobody_was_told_of_are_told_when_somebody_is_let_in() {
        let told_at = clock::monotonic().checked_sub(BETWEEN_EVENTS).unwrap();
        let gate = Gate {
            key: AdminKey::new("0123456789abcdef").unwrap(),
            denied: Mutex::new(Denied {
                attempts: 41,
                told_at: Some(told_at),
            }),
        };
        let untold = || gate.denied.lock().unwrap().attempts;
        let mut headers = HeaderMap::new();
        headers.insert(ADMIN_KEY, HeaderValue::from_static("0123456789abcdef"));
        assert!(gate.admit(&headers).is_ok());
        assert_eq!(untold(), 0);
        // Not more than once a minute.
        assert!(gate.admit(&HeaderMap::new()).is_err());
        assert!(gate.admit(&headers).is_ok());
        assert_eq!(untold(), 1);
    }
}
