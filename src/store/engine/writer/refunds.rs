//! Units that were charged and not used: they go back before what waits, and once more when that fails.

use std::time::{Duration, Instant};

use tokio::time::sleep_until;
use tracing::Level;

use super::closing::{GIVEN_BACK_WITHIN, PAUSE};
use super::{Writer, waiters_of, watched};
use crate::clock;
use crate::limit::Timestamp;
use crate::store::engine::backend::Backend;
use crate::store::engine::inbox::{Held, QUEUE_LENGTH};
use crate::store::engine::queue::Waiter;
use crate::store::{GiveBack, Outcome, StoreError, TARGET};

/// While the database can't be written to, it is tried again after so long: twice as long each time, up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What is still to go back.
pub(super) struct Backlog {
    units: Vec<GiveBack>,
    try_at: Instant,
    pause: Duration,
    /// What was taken up to then was taken from counters that are gone.
    lost_at: Option<Timestamp>,
}

impl Backlog {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            units: Vec::new(),
            try_at: now,
            pause: SHORTEST_PAUSE,
            lost_at: None,
        }
    }

    /// When to go on, if there is anything.
    pub(super) fn due_at(&self) -> Option<Instant> {
        (!self.units.is_empty()).then_some(self.try_at)
    }

    fn put(&mut self, units: impl Iterator<Item = GiveBack>) {
        let mut units: Vec<_> = units.filter(|back| !self.is_lost(back)).collect();
        let room = QUEUE_LENGTH.saturating_sub(self.units.len());
        if units.len() > room {
            tell_lost(units.len() - room, &StoreError::Overloaded);
            units.truncate(room);
        }
        self.units.append(&mut units);
    }

    fn is_lost(&self, back: &GiveBack) -> bool {
        self.lost_at.is_some_and(|lost_at| back.taken_at <= lost_at)
    }

    fn lose(&mut self, now: Timestamp) {
        self.lost_at = Some(now);
        self.units.clear();
    }

    /// Keeps what is left. When that is all, nothing has gone back, and it is not tried again at once.
    fn succeeded(&mut self, asked: &[GiveBack], left: Vec<GiveBack>) {
        if left == asked {
            self.pause();
        } else {
            self.pause = SHORTEST_PAUSE;
        }
        self.units = left;
    }

    fn pause(&mut self) {
        self.try_at = clock::monotonic() + self.pause;
        self.pause = LONGEST_PAUSE.min(2 * self.pause);
    }

    /// Keeps what is certain not to have gone back.
    fn failed(&mut self, units: Vec<GiveBack>, error: &StoreError) {
        let is_certain = matches!(
            error,
            StoreError::Database {
                is_transient: true,
                ..
            }
        );
        if is_certain {
            self.units = units;
            self.pause();
        } else {
            tell_lost(units.len(), error);
        }
    }
}

fn tell_lost(refunds: usize, error: &StoreError) {
    tracing::event!(
        name: "tollgate.refunds_lost",
        target: TARGET,
        Level::WARN,
        refunds,
        "refunds of a rate limit are lost, and their units stay used: {error}"
    );
}

impl<B: Backend> Writer<B> {
    /// Gives back what was not used. It comes before the charges that wait: who was told of it finds it.
    pub(super) async fn take_back(
        &mut self,
        given_back: Vec<(Vec<GiveBack>, Waiter<u64>)>,
        waiting: [&mut [Waiter<Outcome>]; 2],
    ) {
        let (units, mut waiters): (Vec<_>, Vec<_>) = given_back.into_iter().unzip();
        self.backlog.put(units.into_iter().flatten());
        let is_due = |due_at: Instant| due_at <= clock::monotonic();
        let answer = match self.backlog.due_at() {
            None => Ok(()),
            Some(due_at) if !is_due(due_at) || self.inbox.breaker.is_open() => {
                Err(StoreError::BreakerOpen)
            }
            Some(_) => {
                let units = std::mem::take(&mut self.backlog.units);
                let held = Held {
                    waiters: waiting,
                    refunds: &mut waiters,
                    jobs: waiters_of(&mut self.jobs),
                };
                let call = self.backend.give_back(&units, self.clock.get());
                match watched(&self.inbox, held, call).await {
                    Ok(left) => {
                        // Here, between two grants: each of them tells what the database has.
                        let all = if left == units { &[][..] } else { &units };
                        for back in all {
                            self.leases.note_given_back(back);
                            self.refusals.free(&back.part);
                        }
                        self.backlog.succeeded(&units, left);
                        Ok(())
                    }
                    Err(error) => {
                        self.backlog.failed(units, &error);
                        Err(error)
                    }
                }
            }
        };
        self.forget_lost();
        for waiter in &mut waiters {
            waiter.answer(answer.clone().map(|()| 0));
        }
    }

    /// Gives back all that is left, when the store closes. What is left as it was is tried again for a while.
    pub(super) async fn take_back_all(&mut self) {
        let until = clock::monotonic() + GIVEN_BACK_WITHIN;
        while !self.backlog.units.is_empty() {
            let units = std::mem::take(&mut self.backlog.units);
            let held = Held {
                jobs: waiters_of(&mut self.jobs),
                ..Held::default()
            };
            let call = self.backend.give_back(&units, self.clock.get());
            match watched(&self.inbox, held, call).await {
                Ok(left) if left == units => {
                    let now = clock::monotonic();
                    if now >= until {
                        tell_lost(left.len(), &StoreError::DeadlineExceeded);
                        return;
                    }
                    self.backlog.units = left;
                    sleep_until((now + PAUSE).into()).await;
                }
                Ok(left) => self.backlog.units = left,
                Err(error) => tell_lost(units.len(), &error),
            }
        }
    }

    /// Keeps units of leases that did not go back, so that they can be spent, or go back later.
    pub(super) fn keep(&mut self, units: &[GiveBack]) {
        let leases = &self.leases;
        let lost = units.iter().filter(|back| !leases.restore(back));
        self.returned.extend(lost.cloned());
    }

    /// Whether there is something to give back, and nothing that speaks against it.
    pub(super) fn take_back_due_at(&self) -> Option<Instant> {
        let due_at = self.backlog.due_at()?;
        // While the breaker is open a charge is the probe.
        (!self.inbox.breaker.is_open()).then_some(due_at)
    }

    /// Forgets the leases of counters that are gone, and what was to go back to them.
    pub(super) fn forget_lost(&mut self) {
        if self.backend.take_lost() {
            self.leases.empty_all();
            self.refusals.clear();
            self.refused.lose();
            self.returned.clear();
            self.backlog.lose(self.now());
        }
    }
}
