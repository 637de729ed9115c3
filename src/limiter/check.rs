//! A charge that is under way.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::{FailureMode, Limiter};
use crate::limit::few::Few;
use crate::limit::{Decision, Verdict};
use crate::store::{Outcome, Part, Reply, StoreError};

/// Parts of which some were charged before under other limits, and are held to these without another charge.
pub(crate) struct Held {
    /// All of them, in the order of their policies.
    pub(crate) parts: Few<Part>,
    /// For each of them what it is held to, if it was charged.
    pub(crate) verdicts: Vec<Option<Verdict>>,
    /// Those that were not.
    pub(crate) rest: Option<Few<Part>>,
}

/// A charge that is under way, or was answered at once. Dropping it abandons the answer; what was charged stays.
#[derive(Debug)]
pub(crate) struct Check {
    limiter: Limiter,
    /// `None` when all was decided before.
    reply: Option<Reply>,
    parts: Few<Part>,
    cost: u32,
    /// For each part what was decided about it before, if anything was; empty when nothing was of any.
    held: Vec<Option<Verdict>>,
}

impl Check {
    pub(super) fn new(limiter: Limiter, reply: Reply, parts: Few<Part>, cost: u32) -> Self {
        Self {
            limiter,
            reply: Some(reply),
            parts,
            cost,
            held: Vec::new(),
        }
    }

    /// A check of parts of which the reply is only about the rest.
    pub(super) fn held(limiter: Limiter, reply: Option<Reply>, held: Held, cost: u32) -> Self {
        Self {
            limiter,
            reply,
            parts: held.parts,
            cost,
            held: held.verdicts,
        }
    }

    /// The decision, when it needs no wait.
    pub(crate) fn take_ready(&mut self) -> Option<Result<Decision, StoreError>> {
        match &mut self.reply {
            Some(reply) => {
                let answer = reply.take_ready()?;
                Some(self.decide(answer))
            }
            None => Few::collect(std::mem::take(&mut self.held).into_iter().flatten())
                .map(|held| Ok(Decision::new(held))),
        }
    }

    /// What was charged, or had been before.
    pub(crate) fn into_parts(self) -> Few<Part> {
        self.parts
    }

    fn decide(&mut self, answer: Result<Outcome, StoreError>) -> Result<Decision, StoreError> {
        let held = std::mem::take(&mut self.held);
        match answer {
            Ok(outcome) => Ok(decision(&self.parts, held, self.cost, &outcome)),
            // What was refused before stays refused.
            Err(error) => match Few::collect(held.into_iter().flatten().filter(Verdict::is_denied))
            {
                Some(refused) => Ok(Decision::new(refused)),
                None => self.without_store(error),
            },
        }
    }

    fn without_store(&self, error: StoreError) -> Result<Decision, StoreError> {
        match self.limiter.failure_mode() {
            FailureMode::Closed => Err(error),
            FailureMode::Open => {
                let parts = self
                    .parts
                    .map(|part| (part.policy().clone(), part.key.clone()));
                Ok(Decision::degraded(parts, self.cost, self.limiter.now()))
            }
        }
    }
}

/// What follows from a store's answer, and from what was decided before about parts that it is not about.
pub(super) fn decision(
    parts: &Few<Part>,
    held: Vec<Option<Verdict>>,
    cost: u32,
    outcome: &Outcome,
) -> Decision {
    // Either all were looked at, or those that were not held before have been charged.
    let mut found = outcome.of_policies();
    let is_about_all = outcome.of_policies().count() == parts.len();
    let mut held = held.into_iter();
    Decision::new(parts.map(|part| {
        let verdict = |found| {
            let (policy, key) = (part.policy().clone(), part.key.clone());
            Verdict::new(policy, key, cost, outcome.at, found)
        };
        let mut next = || *found.next().unwrap_or(outcome.found.first());
        match held.next().flatten() {
            // The store knows how long to wait; what was refused stays so, should there be room again.
            Some(held) if is_about_all => {
                let looked = verdict(next());
                if held.is_denied() && looked.is_denied() {
                    looked
                } else {
                    held
                }
            }
            Some(held) => held,
            None => verdict(next()),
        }
    }))
}

impl Future for Check {
    type Output = Result<Decision, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(reply) = &mut self.reply else {
            // It was ready at once.
            return Poll::Ready(Err(StoreError::Closed));
        };
        match Pin::new(reply).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(answer) => Poll::Ready(self.decide(answer)),
        }
    }
}
