//! A charge that is under way.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::{FailureMode, Limiter};
use crate::limit::few::Few;
use crate::limit::{Decision, Verdict};
use crate::store::{Outcome, Part, Reply, StoreError};

/// A charge that is under way, or was answered at once. Dropping it abandons the answer; what was charged stays.
#[derive(Debug)]
pub(crate) struct Check {
    limiter: Limiter,
    reply: Reply,
    parts: Few<Part>,
    cost: u32,
}

impl Check {
    pub(super) fn new(limiter: Limiter, reply: Reply, parts: Few<Part>, cost: u32) -> Self {
        Self {
            limiter,
            reply,
            parts,
            cost,
        }
    }

    /// The decision, when it needs no wait.
    pub(crate) fn take_ready(&mut self) -> Option<Result<Decision, StoreError>> {
        let answer = self.reply.take_ready()?;
        Some(self.decide(answer))
    }

    /// What was charged.
    pub(crate) fn into_parts(self) -> Few<Part> {
        self.parts
    }

    fn decide(&self, answer: Result<Outcome, StoreError>) -> Result<Decision, StoreError> {
        match (answer, self.limiter.failure_mode()) {
            (Ok(outcome), _) => Ok(decision(&self.parts, self.cost, &outcome)),
            (Err(error), FailureMode::Closed) => Err(error),
            (Err(_), FailureMode::Open) => {
                let parts = self
                    .parts
                    .map(|part| (part.policy().clone(), part.key.clone()));
                Ok(Decision::degraded(parts, self.cost, self.limiter.now()))
            }
        }
    }
}

/// What follows from a store's answer.
pub(super) fn decision(parts: &Few<Part>, cost: u32, outcome: &Outcome) -> Decision {
    let mut found = outcome.found.iter();
    Decision::new(parts.map(|part| {
        let (policy, key) = (part.policy().clone(), part.key.clone());
        let found = *found.next().unwrap_or(outcome.found.first());
        Verdict::new(policy, key, cost, outcome.at, found)
    }))
}

impl Future for Check {
    type Output = Result<Decision, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.reply).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(answer) => Poll::Ready(self.decide(answer)),
        }
    }
}
