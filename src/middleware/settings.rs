//! What a layer is set to, shared by all services that it makes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderValue};
use http::request::Parts;
use http::{Method, Response};

use super::{Decisions, Rejection};
use crate::key::{KeySource, peer_ip};
use crate::limit::{Decision, Policy};
use crate::limiter::Limiter;
use crate::response::{Problem, ResetFormat, fields, write_x_rate_limit};
use crate::store::StoreError;

/// Makes an answer of its own, or leaves it to us.
pub(super) type OnRejection =
    Arc<dyn Fn(&Rejection, &Parts) -> Option<Response<Bytes>> + Send + Sync>;

/// What becomes of a request.
pub(super) enum Verdict {
    /// The inner service gets it, with these decisions.
    Allowed(Decisions),
    /// This is the answer.
    Rejected(Response<Bytes>),
}

/// What a layer is set to.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) limiter: Limiter,
    pub(super) key: KeySource,
    pub(super) is_enabled: bool,
    pub(super) problem: Problem,
    pub(super) on_rejection: Option<OnRejection>,
    pub(super) x_rate_limit: Option<ResetFormat>,
    policy_item: HeaderValue,
    has_told_setup: Arc<AtomicBool>,
}

impl Settings {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            policy_item: fields::policy_item(&policy),
            limiter: Limiter::new(policy),
            key: peer_ip(),
            is_enabled: true,
            problem: Problem::default(),
            on_rejection: None,
            x_rate_limit: None,
            has_told_setup: Arc::default(),
        }
    }

    /// Replaces the source of keys; what it lacks has not been told yet.
    pub(super) fn set_key(&mut self, key: KeySource) {
        self.key = key;
        self.has_told_setup = Arc::default();
    }

    /// Replaces the limiter by one made of it.
    pub(super) fn set_limiter(&mut self, change: impl FnOnce(Limiter) -> Limiter) {
        self.limiter = change(self.limiter.clone());
        self.policy_item = fields::policy_item(self.limiter.policy());
    }

    /// Turns the store's answer into what the request gets: the decisions that it takes along, or our own answer.
    pub(super) fn decide(
        &self,
        answer: Result<Decision, StoreError>,
        parts: &mut Parts,
    ) -> Verdict {
        let before = parts.extensions.get::<Decisions>().cloned();
        match answer {
            Ok(decision) if decision.is_allowed() => {
                let before = before.unwrap_or_default();
                let decisions = before.with(decision, self.limiter.clone());
                parts.extensions.insert(decisions.clone());
                Verdict::Allowed(decisions)
            }
            Ok(decision) => {
                Verdict::Rejected(self.reject(&Rejection::Denied(decision), parts, before))
            }
            Err(error) => Verdict::Rejected(self.reject(&Rejection::from(error), parts, before)),
        }
    }

    /// Writes what an allowed request's response gets. `decisions` ends with this layer's own.
    pub(super) fn finish<B>(&self, response: &mut Response<B>, decisions: Decisions) {
        if let Some(decision) = decisions.iter().next_back()
            && !decision.is_degraded()
        {
            self.write_fields(response, decision);
        }
        let inner = response.extensions_mut().remove::<Decisions>();
        response
            .extensions_mut()
            .insert(decisions.merged_with(inner));
    }

    /// The answer to a request that the inner service does not get.
    pub(super) fn reject(
        &self,
        rejection: &Rejection,
        parts: &Parts,
        before: Option<Decisions>,
    ) -> Response<Bytes> {
        if let Rejection::Setup(error) = rejection
            && !self.has_told_setup.swap(true, Ordering::Relaxed)
        {
            let policy = self.limiter.policy().as_name();
            tracing::error!(
                "the rate limit {policy} has no key for a request, which got a 500: {error}"
            );
        }
        let custom = self.on_rejection.as_ref();
        let custom = custom.and_then(|on_rejection| on_rejection(rejection, parts));
        let mut response = custom.unwrap_or_else(|| rejection.to_bare_response(&self.problem));
        if let Some(decision) = rejection.decision() {
            self.write_fields(&mut response, decision);
            // By `answer` it may be of another limiter, but that changes nothing here: the request ends.
            let decisions = before.unwrap_or_default();
            let decisions = decisions.with(decision.clone(), self.limiter.clone());
            response.extensions_mut().insert(decisions);
        }
        rejection.complete(&mut response);
        if parts.method == Method::HEAD {
            drop_body(&mut response);
        }
        response
    }

    fn write_fields<B>(&self, response: &mut Response<B>, decision: &Decision) {
        let headers = response.headers_mut();
        let policy_item = if decision.policy() == self.limiter.policy() {
            self.policy_item.clone()
        } else {
            fields::policy_item(decision.policy())
        };
        fields::append_fields(headers, decision, policy_item);
        if let Some(reset_format) = self.x_rate_limit {
            write_x_rate_limit(headers, decision, reset_format);
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("policy", self.limiter.policy())
            .field("key", &self.key)
            .field("is_enabled", &self.is_enabled)
            .field("problem", &self.problem)
            .field("x_rate_limit", &self.x_rate_limit)
            .finish_non_exhaustive()
    }
}

/// What HEAD gets (RFC 9110, 9.3.2): the fields of GET, and the length that its body would have had.
fn drop_body(response: &mut Response<Bytes>) {
    let length = response.body().len();
    response
        .headers_mut()
        .entry(CONTENT_LENGTH)
        .or_insert_with(|| HeaderValue::from(length));
    *response.body_mut() = Bytes::new();
}
