//! A charge that is under way.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::{FailureMode, Limiter};
use crate::limit::{Decision, Key, Timestamp};
use crate::store::{Outcome, Reply, StoreError};

/// A charge that is under way, or was answered at once. Dropping it abandons the answer; what was charged stays.
#[derive(Debug)]
pub(crate) struct Check {
    limiter: Limiter,
    reply: Reply,
    key: Key,
    cost: u32,
    at: Timestamp,
}

impl Check {
    pub(super) fn new(limiter: Limiter, reply: Reply, key: Key, cost: u32, at: Timestamp) -> Self {
        Self {
            limiter,
            reply,
            key,
            cost,
            at,
        }
    }

    /// The decision, when it needs no wait.
    pub(crate) fn take_ready(&mut self) -> Option<Result<Decision, StoreError>> {
        let answer = self.reply.take_ready()?;
        Some(self.decide(answer))
    }

    fn decide(&self, answer: Result<Outcome, StoreError>) -> Result<Decision, StoreError> {
        let policy = self.limiter.policy();
        let key = self.key.clone();
        match answer {
            Ok(outcome) => {
                let Outcome { is_admitted, usage } = outcome;
                Ok(Decision::fixed_window(
                    policy,
                    key,
                    self.cost,
                    self.at,
                    is_admitted,
                    usage,
                ))
            }
            Err(error) => match self.limiter.failure_mode() {
                FailureMode::Closed => Err(error),
                FailureMode::Open => Ok(Decision::degraded(policy, key, self.cost, self.at)),
            },
        }
    }
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
