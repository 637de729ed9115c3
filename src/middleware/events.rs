//! What a layer tells by `tracing`, beside its limiter's decisions: each once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::Level;

use crate::key::KeyError;
use crate::limit::{Mistake, Policy};
use crate::store::TARGET;

/// Whether something was told. Clones are told once together.
#[derive(Clone, Debug, Default)]
pub(super) struct Told(Arc<AtomicBool>);

impl Told {
    /// Whether it has to be told now. It is read first, so that many at once do not write to one place.
    fn is_first(&self) -> bool {
        !self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::Relaxed)
    }
}

/// A client did not send what its key is made of. The error is not told: what a source says to a client may hold a key.
pub(super) fn key_missing(told: &Told, policy: &Policy, source: impl FnOnce() -> String) {
    if told.is_first() {
        let (policy, source) = (policy.as_name(), source());
        tracing::event!(
            name: "tollgate.key_missing",
            target: TARGET,
            Level::WARN,
            policy,
            source,
            "a request lacks what the rate limit {policy} is keyed on, which is {source}; this is said once"
        );
    }
}

/// The server's set-up lacks what a request's `wanted` is made of: a key, or a policy.
pub(super) fn setup_incomplete(told: &Told, policy: &Policy, wanted: &str, error: &KeyError) {
    if told.is_first() {
        let policy = policy.as_name();
        tracing::event!(
            name: "tollgate.setup_incomplete",
            target: TARGET,
            Level::ERROR,
            policy,
            "the rate limit {policy} has no {wanted} for a request; this is said once: {error}"
        );
    }
}

/// A layer would give back what one outside has charged, whose it is to give back.
pub(super) fn refund_ignored(told: &Told, policy: &Policy) {
    if told.is_first() {
        let policy = policy.as_name();
        tracing::event!(
            name: "tollgate.refund_ignored",
            target: TARGET,
            Level::WARN,
            policy,
            "a layer outside has charged the rate limit {policy}, so this one gives nothing back: set .refund_if(…) on the \
             outermost layer; this is said once"
        );
    }
}

/// Two limits around a request have one name, and are not one.
pub(super) fn name_twice(told: &Told, policy: &Policy) {
    if told.is_first() {
        let policy = policy.as_name();
        tracing::event!(
            name: "tollgate.name_twice",
            target: TARGET,
            Level::WARN,
            policy,
            "two limits around one request are named {policy}, and clients find the name twice in RateLimit: give each a \
             name of its own with .name(\"…\"); this is said once {}",
            Mistake("nested-name")
        );
    }
}

/// A layer would charge more for a request than one outside has charged to the same counter.
pub(super) fn cost_ignored(told: &Told, policy: &Policy, cost: u32, charged: u32) {
    if told.is_first() {
        let policy = policy.as_name();
        tracing::event!(
            name: "tollgate.cost_ignored",
            target: TARGET,
            Level::WARN,
            policy,
            cost,
            charged,
            "a layer outside has charged {charged} to the rate limit {policy} where this one would charge {cost}: a \
             request is charged once, so set .cost(…) on the outermost layer"
        );
    }
}
