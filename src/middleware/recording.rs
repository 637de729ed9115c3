//! An allowed request that is to be recorded, once it is known what it was answered.

#![cfg_attr(
    not(feature = "_engine"),
    expect(unused_variables, reason = "without SQLite there is nowhere to record")
)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use http::request::Parts;
use http::{Method, StatusCode};

use super::Decisions;
use crate::store::{Call, CallLog};

/// Methods that are longer are cut: a client can make them up.
const MOST_METHOD_BYTES: usize = 16;

/// An allowed request that is to be recorded. When nothing is answered, since it is given up, say, it is recorded when this is
/// dropped.
pub(super) struct Recording {
    log: CallLog,
    decisions: Decisions,
    method: Method,
    route: Box<str>,
    is_recorded: bool,
}

impl Recording {
    /// Of a request of which these are the decisions, the layer's own last.
    pub(super) fn new(log: &CallLog, decisions: &Decisions, head: &Parts) -> Self {
        Self {
            log: log.clone(),
            decisions: decisions.clone(),
            method: head.method.clone(),
            route: route(head).into(),
            is_recorded: false,
        }
    }

    /// Records the request with what it was answered, if it was.
    pub(super) fn record(mut self, status: Option<StatusCode>, is_refunded: bool) {
        self.write(status, is_refunded);
    }

    fn write(&mut self, status: Option<StatusCode>, is_refunded: bool) {
        self.is_recorded = true;
        let Some((verdict, units)) = self.decisions.charged(is_refunded) else {
            return;
        };
        let method = self.method.as_str();
        self.log.record(&Call {
            policy: verdict.policy().as_name(),
            key: verdict.key().as_str(),
            // A method is ASCII.
            method: method.get(..MOST_METHOD_BYTES).unwrap_or(method),
            route: &self.route,
            status: status.map(|status| status.as_u16()),
            units,
            at: verdict.decided_at(),
        });
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.is_recorded {
            // It may be dropped by a panic. One more, in a subscriber that is told of a drop, say, would end the process.
            let _ = catch_unwind(AssertUnwindSafe(|| self.write(None, false)));
        }
    }
}

/// The pattern of the route that axum has matched, or nothing: never the path, which may hold personal data and which clients
/// make up.
#[cfg(feature = "axum")]
fn route(head: &Parts) -> &str {
    let matched = head.extensions.get::<axum::extract::MatchedPath>();
    matched.map_or("", axum::extract::MatchedPath::as_str)
}

/// Without a router that is known there is no route.
#[cfg(not(feature = "axum"))]
fn route(_: &Parts) -> &'static str {
    ""
}
