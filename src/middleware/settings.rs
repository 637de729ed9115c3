//! What a layer is set to, shared by all services that it makes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};

use super::events::{self, Told};
use super::recording::Recording;
use super::requests::Requests;
use super::{Decisions, Rejection};
use crate::key::{KeyError, KeyExtractor as _, KeySource, peer_ip};
use crate::limit::few::Few;
use crate::limit::{Decision, Key, Policies, Policy, PolicyError, ToldWaits};
use crate::limiter::{Held, Limiter};
use crate::response::fields::Fields;
use crate::response::{Problem, fields, grpc};
use crate::store::{CallLog, Part, StoreError};

/// Makes an answer of its own, or leaves it to us.
pub(super) type OnRejection =
    Arc<dyn Fn(&Rejection, &Parts) -> Option<Response<Bytes>> + Send + Sync>;

/// Whether an answer of such a status does not count.
pub(super) type RefundIf = Arc<dyn Fn(StatusCode) -> bool + Send + Sync>;

/// What becomes of a request.
pub(super) enum Course {
    /// The inner service gets it, with these decisions, and it may have to be recorded.
    Allowed(Decisions, Option<Box<Recording>>),
    /// The inner service gets it, and nothing was decided: a shadow whose store gave no answer.
    Passed,
    /// This is the answer.
    Rejected(Response<Bytes>),
}

/// What is left of a charge when layers outside have charged some of its counters already.
pub(super) enum Left {
    /// These are to be charged.
    Parts(Few<Part>),
    /// Some were charged under other limits, and are held to this layer's.
    Held(Box<Held>),
    /// All were charged under the same policies.
    Nothing,
}

/// A source of keys.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) key: KeySource,
    /// Whether it was told that a client did not send what it needs.
    told_missing: Told,
    /// Whether it was told that the server's set-up lacks what it needs.
    told_setup: Told,
}

impl Source {
    fn new(key: KeySource) -> Self {
        Self {
            key,
            told_missing: Told::default(),
            told_setup: Told::default(),
        }
    }

    /// The key of a request, for a policy of this name.
    fn extract(&self, head: &Parts, policy: &Policy) -> Result<Key, KeyError> {
        let key = self.key.extract(head);
        if let Err(error) = &key {
            if error.is_server() {
                events::setup_incomplete(&self.told_setup, policy, "key", error);
            } else {
                events::key_missing(&self.told_missing, policy, || {
                    self.key.describe().into_owned()
                });
            }
        }
        key
    }
}

/// What a layer is set to. It begins cache lines of its own, beside which clones are counted.
#[derive(Clone)]
#[repr(align(128))]
pub(super) struct Settings {
    pub(super) limiter: Limiter,
    pub(super) key: Source,
    /// Those of the last policies, which have sources of their own.
    own_keys: Vec<Source>,
    /// `None` when nothing depends on the request but its key.
    pub(super) requests: Option<Box<Requests>>,
    pub(super) is_enabled: bool,
    pub(super) problem: Problem,
    pub(super) on_rejection: Option<OnRejection>,
    pub(super) refund_if: Option<RefundIf>,
    pub(super) call_log: Option<CallLog>,
    /// Whether it was told that a layer outside has charged what this one would refund.
    told_refund: Told,
    /// Whether it was told that a layer outside has a policy of the same name.
    told_name: Told,
    pub(super) fields: Fields,
    pub(super) has_fields_on_redirects: bool,
    /// Without the jitter, which is drawn for each refusal.
    pub(super) told_waits: ToldWaits,
    /// The most that is added to a wait.
    pub(super) jitter: Duration,
    policy_field: Option<HeaderValue>,
}

impl Settings {
    pub(super) fn new(policies: Policies) -> Result<Self, PolicyError> {
        let limiter = Limiter::try_new(policies)?;
        Ok(Self {
            policy_field: fields::policy_field(limiter.policies()),
            limiter,
            key: Source::new(peer_ip()),
            own_keys: Vec::new(),
            requests: None,
            is_enabled: true,
            problem: Problem::default(),
            on_rejection: None,
            refund_if: None,
            call_log: None,
            told_refund: Told::default(),
            told_name: Told::default(),
            fields: Fields::default(),
            has_fields_on_redirects: true,
            told_waits: ToldWaits::default(),
            jitter: Duration::ZERO,
        })
    }

    /// Replaces the source of keys of the policies that have none of their own.
    pub(super) fn set_key(&mut self, key: KeySource) {
        self.key = Source::new(key);
    }

    /// Adds a policy with a source of keys of its own.
    pub(super) fn add(&mut self, policy: Policy, key: KeySource) -> Result<(), PolicyError> {
        self.set_limiter(self.limiter.and(policy)?);
        self.own_keys.push(Source::new(key));
        self.check_keys()
    }

    /// Whether the store can decide about keys of their own that policies have.
    pub(super) fn check_keys(&self) -> Result<(), PolicyError> {
        if !self.own_keys.is_empty() && self.limiter.decides_by_key() {
            return Err(PolicyError::KeysApart);
        }
        Ok(())
    }

    /// Replaces the limiter by one made of it.
    pub(super) fn set_limiter(&mut self, limiter: Limiter) {
        self.limiter = limiter;
        self.policy_field = fields::policy_field(self.limiter.policies());
    }

    /// How many policies have no source of keys of their own: the first ones.
    pub(super) fn sharing(&self) -> usize {
        self.limiter.policies().len() - self.own_keys.len()
    }

    /// Each policy that applies, with its key of a request.
    pub(super) fn parts(&self, head: &Parts) -> Result<Few<Part>, KeyError> {
        let key = self.key.extract(head, self.limiter.policy())?;
        let parts = if self.own_keys.is_empty() {
            self.limiter.parts_of(key)
        } else {
            let sharing = self.sharing();
            let mut keys = vec![key; sharing];
            let own = self.limiter.policies().skip(sharing);
            for (source, policy) in self.own_keys.iter().zip(own) {
                keys.push(source.extract(head, policy)?);
            }
            self.limiter.parts(&keys)
        };
        match &self.requests {
            Some(requests) => self.chosen(requests, head, parts),
            None => Ok(parts),
        }
    }

    /// Says once what is limited, and by what.
    pub(super) fn announce(&self) {
        self.limiter.announce(|place| Some(self.keyed_by(place)));
    }

    /// What the policy of this place is keyed by, in words.
    pub(super) fn keyed_by(&self, place: usize) -> String {
        let own = place.checked_sub(self.sharing());
        let own = own.and_then(|own| self.own_keys.get(own));
        own.unwrap_or(&self.key).key.describe().into_owned()
    }

    /// The sources of keys, that of the policies without one of their own first.
    fn keys(&self) -> Vec<&KeySource> {
        let sources = std::iter::once(&self.key).chain(&self.own_keys);
        sources.map(|source| &source.key).collect()
    }

    /// What is left to charge, when layers outside have charged some of the counters already: those are held to this
    /// layer's limits without another charge. A look is held to nothing.
    pub(super) fn left_to_charge(
        &self,
        before: Option<&Decisions>,
        parts: Few<Part>,
        cost: u32,
    ) -> Left {
        let Some(before) = before else {
            return Left::Parts(parts);
        };
        let mut rest = Vec::new();
        let mut decided = Vec::new();
        let mut is_local = false;
        for part in parts.iter() {
            let (decision, charged) = before.of_counter(&self.limiter, part, cost).unzip();
            if charged.is_some() && self.refund_if.is_some() {
                events::refund_ignored(&self.told_refund, part.policy());
            }
            if charged.is_none_or(|charged| !charged.policy().is_same(part.policy()))
                && before.has_policy_named(part.policy().as_name())
            {
                events::name_twice(&self.told_name, part.policy());
            }
            if let Some(charged) = charged
                && charged.cost() < cost
                && let Some(requests) = &self.requests
            {
                events::cost_ignored(&requests.told_cost, part.policy(), cost, charged.cost());
            }
            match charged {
                Some(charged) if charged.policy().is_same(part.policy()) => {}
                Some(charged) if cost > 0 => {
                    is_local |= decision.is_some_and(Decision::is_degraded);
                    decided.push((part.clone(), Some(charged.held_to(part.policy()))));
                }
                _ => {
                    rest.push(part.clone());
                    decided.push((part.clone(), None));
                }
            }
        }
        let (parts, verdicts): (Vec<_>, Vec<_>) = decided.into_iter().unzip();
        let rest = Few::collect(rest);
        match (Few::collect(parts), rest) {
            (None, _) => Left::Nothing,
            (Some(_), Some(rest)) if verdicts.iter().all(Option::is_none) => Left::Parts(rest),
            (Some(parts), rest) => Left::Held(Box::new(Held {
                parts,
                verdicts,
                rest,
                is_local,
            })),
        }
    }

    /// Turns the store's answer into what the request gets: the decisions that it takes along, or our own answer.
    pub(super) fn decide(
        &self,
        answer: Result<Decision, StoreError>,
        charged: Few<Part>,
        parts: &mut Parts,
    ) -> Course {
        let before = parts.extensions.get::<Decisions>().cloned();
        match answer {
            Ok(decision) if decision.is_allowed() || self.limiter.is_shadow() => {
                let before = before.unwrap_or_default();
                let charged = decision.is_allowed().then_some(charged);
                let decisions = before.with(decision, charged, self.limiter.clone());
                parts.extensions.insert(decisions.clone());
                let log = self.call_log.as_ref();
                // What a shadow lets pass is recorded by nobody, or by a limit in force.
                let log = log.filter(|_| !self.limiter.is_shadow());
                let recording = log.map(|log| Recording::new(log, &decisions, parts).into());
                Course::Allowed(decisions, recording)
            }
            Ok(decision) => {
                Course::Rejected(self.reject(Rejection::Denied(decision), parts, before))
            }
            Err(_) if self.limiter.is_shadow() => Course::Passed,
            Err(error) => Course::Rejected(self.reject(Rejection::from(error), parts, before)),
        }
    }

    /// The answer to a request that the inner service does not get.
    pub(super) fn reject(
        &self,
        mut rejection: Rejection,
        parts: &Parts,
        before: Option<Decisions>,
    ) -> Response<Bytes> {
        // Settled before anything is said of the wait, so that all that is said agrees.
        if let Rejection::Denied(decision) = &mut rejection {
            decision.tell_waits(self.drawn_waits());
        }
        let custom = self.on_rejection.as_ref();
        let custom = custom.and_then(|on_rejection| on_rejection(&rejection, parts));
        let mut response = custom.unwrap_or_else(|| {
            if grpc::is_grpc(parts) {
                rejection.to_bare_grpc_response(&self.problem)
            } else {
                rejection.to_bare_response(&self.problem)
            }
        });
        if let Some(decision) = rejection.decision() {
            // One that was made of the default answer has them already, as a layer with default settings writes them.
            fields::remove(response.headers_mut());
            self.write_fields(&mut response, decision);
            // By `answer` it may be of another limiter, but that changes nothing here: the request ends.
            let decisions = before.unwrap_or_default();
            let decisions = decisions.with(decision.clone(), None, self.limiter.clone());
            response.extensions_mut().insert(decisions);
        }
        rejection.complete(&mut response);
        if parts.method == Method::HEAD {
            drop_body(&mut response);
        }
        response
    }

    /// How one refusal tells its waits.
    fn drawn_waits(&self) -> ToldWaits {
        let most = u64::try_from(self.jitter.as_nanos()).unwrap_or(u64::MAX);
        let jitter = match most {
            0 => Duration::ZERO,
            most => Duration::from_nanos(fastrand::u64(0..=most)),
        };
        ToldWaits {
            jitter,
            ..self.told_waits
        }
    }

    pub(super) fn write_fields<B>(&self, response: &mut Response<B>, decision: &Decision) {
        if response.status().is_redirection() && !self.has_fields_on_redirects {
            return;
        }
        let headers = response.headers_mut();
        let is_whole = fields::policies(decision).eq(self.limiter.policies());
        let policy_field = self.policy_field.clone().filter(|_| is_whole);
        self.fields.write(headers, decision, policy_field);
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("policies", &self.limiter.policies().collect::<Vec<_>>())
            .field("keys", &self.keys())
            .field("is_shadow", &self.limiter.is_shadow())
            .field("is_enabled", &self.is_enabled)
            .field("problem", &self.problem)
            .field("fields", &self.fields)
            .finish_non_exhaustive()
    }
}

/// What HEAD gets (RFC 9110, 9.3.2): the fields of GET, and the length that its body would have had, where one may be told
/// (8.6).
fn drop_body(response: &mut Response<Bytes>) {
    let length = response.body().len();
    let has_length = !matches!(
        response.status(),
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
    );
    if has_length && !response.status().is_informational() {
        response
            .headers_mut()
            .entry(CONTENT_LENGTH)
            .or_insert_with(|| HeaderValue::from(length));
    }
    *response.body_mut() = Bytes::new();
}
