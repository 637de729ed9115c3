//! Charges and looks in line, and who waits for an answer.

use std::mem;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::clock;
use crate::store::{Charge, Outcome, StoreError};

/// A queue keeps room for so many charges.
const USUAL_BATCH: usize = 512;

/// Charges or looks in order of arrival, and who waits for each.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) asks: Vec<Charge>,
    pub(super) waiters: Vec<Waiter<Outcome>>,
}

impl Queue {
    /// The queue without what was in it, to be filled again.
    pub(super) fn emptied(mut self) -> Self {
        // What a rush needed once need not be kept for ever.
        self.asks.clear();
        self.asks.shrink_to(USUAL_BATCH);
        self.waiters.clear();
        self.waiters.shrink_to(USUAL_BATCH);
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.asks.is_empty()
    }

    /// Answers what can be answered without the backend, and keeps the rest.
    pub(super) fn answer_some(&mut self, mut answer: impl FnMut(&Charge) -> Option<Outcome>) {
        let mut waiters = mem::take(&mut self.waiters).into_iter();
        self.asks.retain(|ask| {
            let Some(mut waiter) = waiters.next() else {
                return false;
            };
            match answer(ask) {
                Some(outcome) => {
                    waiter.answer(Ok(outcome));
                    false
                }
                None => {
                    self.waiters.push(waiter);
                    true
                }
            }
        });
    }

    /// Puts the charges of another queue in front.
    pub(super) fn put_first(&mut self, mut first: Queue) {
        if first.is_empty() {
            return;
        }
        first.asks.append(&mut self.asks);
        first.waiters.append(&mut self.waiters);
        *self = first;
    }

    /// Leaves out what nobody waits for any more, and what was not used already.
    pub(super) fn drop_cancelled(&mut self) {
        if !self.waiters.iter().any(Waiter::is_cancelled) {
            return;
        }
        let pairs = self.asks.iter().zip(&self.waiters);
        let is_cancelled = pairs.map(|(ask, waiter)| waiter.is_cancelled() && !ask.is_forced);
        let is_cancelled: Vec<bool> = is_cancelled.collect();
        let mut flags = is_cancelled.iter();
        self.asks.retain(|_| flags.next() == Some(&false));
        let mut flags = is_cancelled.iter();
        self.waiters.retain(|_| flags.next() == Some(&false));
    }
}

/// Who waits for an answer, and since when.
pub(super) struct Waiter<T> {
    reply: Option<oneshot::Sender<Result<T, StoreError>>>,
    pub(super) since: Instant,
}

impl<T> Waiter<T> {
    pub(super) fn new() -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        let waiter = Self {
            reply: Some(reply),
            since: clock::monotonic(),
        };
        (waiter, answer)
    }

    /// Answers, unless the deadline did. Nobody may be there to hear it.
    pub(super) fn answer(&mut self, answer: Result<T, StoreError>) {
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(answer);
        }
    }

    /// The waiter, to be answered elsewhere: what was asked for is done all the same.
    pub(super) fn taken(&mut self) -> Self {
        Self {
            reply: self.reply.take(),
            since: self.since,
        }
    }

    /// Whether nobody waits for the answer any more.
    pub(super) fn is_cancelled(&self) -> bool {
        self.reply.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Whether nobody has answered it yet.
    pub(super) fn is_unanswered(&self) -> bool {
        self.reply.is_some()
    }

    pub(super) fn is_late(&self, now: Instant, deadline: Duration) -> bool {
        self.reply.is_some() && now.duration_since(self.since) >= deadline
    }
}
