//! Looks and charges: what goes to the backend, and what leases answer.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::{BETWEEN_GIVING_BACK, BETWEEN_MORE, GIVEN_BACK_AT_ONCE, Writer, waiters_of, watched};
use crate::clock;
use crate::limit::Timestamp;
use crate::limit::algorithm::Span;
use crate::limit::algorithm::State;
use crate::limit::algorithm::fixed_window::{MOST_DENIED, Usage};
use crate::store::engine::backend::{Ahead, Backend, Batch, Charged};
use crate::store::engine::inbox::Held;
use crate::store::engine::queue::{Queue, Waiter};
use crate::store::{Charge, GiveBack, Outcome, Part, StoreError};

impl<B: Backend> Writer<B> {
    pub(super) async fn look(&mut self, mut queue: Queue, charges: &mut Queue) {
        queue.drop_cancelled();
        if queue.is_empty() {
            return;
        }
        let returned = self.take_returned(&queue.asks);
        let waiting = [&mut *queue.waiters, &mut *charges.waiters];
        self.give_back(&returned, waiting).await;
        let held = Held {
            waiters: [&mut queue.waiters, &mut charges.waiters],
            jobs: waiters_of(&mut self.jobs),
            ..Held::default()
        };
        let call = self.backend.peek(&queue.asks, self.clock.get());
        let answers = watched(&self.inbox, held, call).await;
        let answers = answers.map(|outcomes| {
            let looks = queue.asks.iter().zip(outcomes);
            looks
                .map(|(look, outcome)| Ok(self.without_unspent(look, outcome)))
                .collect()
        });
        self.answer(&mut queue.waiters, answers);
    }

    /// What a key has used, without the units that are leased to this process and not spent.
    fn without_unspent(&self, look: &Charge, mut outcome: Outcome) -> Outcome {
        let at = outcome.at;
        for (part, found) in look.parts.iter().zip(outcome.found.iter_mut()) {
            let without = |usage: &mut Usage, span: Span| {
                let unspent = self.leases.unspent(part, span, usage.epoch);
                usage.used = usage.used.saturating_sub(u64::from(unspent));
            };
            if let State::Pair(pair) = &mut found.state {
                without(&mut pair.previous, part.span_before(at));
            }
            if let Some(usage) = found.state.window_mut() {
                without(usage, part.span(at));
                let policy = part.policy().with_limit(found.in_force);
                let fits = found.state.fits(&policy, look.cost, at);
                found.fits = fits && found.blocked_until.is_none();
            }
        }
        if self.refusals.has_attempts() || self.refused.has_attempts() {
            self.with_uncounted(look, &mut outcome);
        }
        outcome
    }

    /// Adds what was refused from memory and is not counted yet.
    fn with_uncounted(&self, charge: &Charge, outcome: &mut Outcome) {
        let at = outcome.at;
        for (part, found) in charge.parts.iter().zip(outcome.found.iter_mut()) {
            let units = self.refusals.uncounted(part, at, &found.state)
                + self.refused.uncounted(part, at, &found.state);
            if units > 0
                && let Some(usage) = found.state.window_mut()
            {
                usage.denied = usage.denied.saturating_add(units).min(MOST_DENIED);
            }
        }
    }

    /// Charges, while `looks` wait.
    pub(super) async fn charge(
        &mut self,
        mut queue: Queue,
        mut refills: Vec<Part>,
        looks: &mut [Waiter<Outcome>],
    ) -> Queue {
        queue.drop_cancelled();
        let now = self.now();
        self.answer_from_memory(&mut queue, &mut refills, now);
        let (rests, mut ahead) = self.beside(&queue, &refills, now);
        let waiting = [&mut *queue.waiters, &mut *looks];
        self.give_back(&rests, waiting).await;
        if queue.is_empty() && ahead.is_empty() {
            return queue;
        }
        let waiting = [&mut *queue.waiters, &mut *looks];
        self.begin_to_see_changes(waiting).await;
        if !self.refused.sees_changes() {
            // Nobody would tell that what is leased is not to be spent any more.
            self.leases.forget_asks();
            ahead.clear();
        }
        queue.drop_cancelled();
        if queue.is_empty() && ahead.is_empty() {
            return queue;
        }
        let batch = Batch {
            charges: &queue.asks,
            ahead: &ahead,
        };
        let waiting = [&mut *queue.waiters, &mut *looks];
        let mut charged = self.ask(batch, waiting).await;
        if let Ok(charged) = &mut charged {
            self.charge_again(&mut queue, looks, charged).await;
            for (charge, answer) in queue.asks.iter().zip(&mut charged.answers) {
                if let Ok(outcome) = answer {
                    self.leases.take_in(charge, outcome);
                }
            }
        }
        if charged.as_ref().is_ok_and(|charged| charged.has_evicted) {
            self.leases.empty_all();
        }
        let ends_leases = charged.as_ref().is_ok_and(|charged| charged.is_nearly_full);
        self.forget_lost();
        self.tell_breaker(charged.is_ok(), &queue.waiters);
        // Before anybody is answered: the next charge finds the lease.
        let rests = self.install(&ahead, charged.as_ref().ok());
        if let Ok(charged) = &mut charged {
            self.learn(&queue.asks, charged);
        }
        if ends_leases {
            // Before their rows have to go.
            let rests = self.leases.take_all();
            let waiting = [&mut *queue.waiters, &mut *looks];
            self.give_back(&rests, waiting).await;
        }
        let answers = charged.map(|charged| charged.answers);
        #[cfg(feature = "metrics")]
        if let Ok(answers) = &answers {
            self.measure(&queue.waiters, answers);
        }
        self.answer(&mut queue.waiters, answers);
        self.return_by_pages(rests);
        let rows = queue.asks.iter().map(|charge| charge.parts.len()).sum();
        self.sweeper.charged(rows);
        self.sweeper.wrote(clock::monotonic());
        queue
    }

    /// Answers what needs no backend: leases may have come since these were put into the queue, and refusals.
    fn answer_from_memory(&self, queue: &mut Queue, refills: &mut Vec<Part>, now: Timestamp) {
        queue.answer_some(|charge| {
            let ask = |part: &Part| refills.push(part.clone());
            let Some(spent) = self.leases.spend(charge, now, ask) else {
                let refused = self.refusals.refuse(charge, now)?;
                #[cfg(feature = "metrics")]
                self.inbox.health.meters().charged("refusal", 1);
                return Some(refused);
            };
            self.refusals.spent(charge);
            #[cfg(feature = "metrics")]
            self.inbox.health.meters().charged("lease", 1);
            Some(spent)
        });
    }

    /// What goes back before a batch is charged, and what is asked for beside it.
    fn beside(
        &mut self,
        queue: &Queue,
        refills: &[Part],
        now: Timestamp,
    ) -> (Vec<GiveBack>, Vec<Ahead>) {
        let leases = Arc::clone(&self.leases);
        let mut rests = leases.rests_before(&queue.asks, now);
        let ended = refills.iter();
        rests.extend(ended.filter_map(|part| leases.take_ended(part, now)));
        let ahead = queue.asks.iter();
        let ahead = ahead.flat_map(|charge| leases.ahead_of(charge, now));
        let refills = refills.iter();
        let refills = refills.filter_map(|part| leases.refill_of(part, now));
        let ahead = ahead.chain(refills).collect();
        self.return_by_pages(leases.take_evicted());
        rests.extend(self.take_returned(&queue.asks));
        (rests, ahead)
    }

    /// What is still to go back to counters that are about to be charged or looked at, so that those find it.
    fn take_returned(&mut self, asks: &[Charge]) -> Vec<GiveBack> {
        if self.returned.is_empty() {
            return Vec::new();
        }
        let parts: HashSet<&Part> = asks.iter().flat_map(|ask| ask.parts.iter()).collect();
        let own = self
            .returned
            .extract_if(.., |back| parts.contains(&back.part));
        own.collect()
    }

    /// Charges once more what counters have refused of which this process holds units: those go back first. Others must have used
    /// the room beside them since the backend was asked last, so it is rare, and that one more attempt is counted is no matter.
    async fn charge_again(
        &mut self,
        queue: &mut Queue,
        looks: &mut [Waiter<Outcome>],
        charged: &mut Charged,
    ) {
        let (places, rests) = self.leases.rests_behind(&queue.asks, &charged.answers);
        if places.is_empty() {
            return;
        }
        let waiting = [&mut *queue.waiters, &mut *looks];
        self.give_back(&rests, waiting).await;
        // Who was told by now that there is no answer must not be charged for one.
        let waits = |place: &usize| !queue.waiters[*place].is_cancelled();
        let places: Vec<_> = places.into_iter().filter(waits).collect();
        let asks = places.iter().map(|place| queue.asks[*place].clone());
        let batch = Batch {
            charges: &asks.collect::<Vec<_>>(),
            ahead: &[],
        };
        let waiting = [&mut *queue.waiters, &mut *looks];
        // Should it fail, they stay refused.
        if let Ok(again) = self.ask(batch, waiting).await {
            charged.has_evicted |= again.has_evicted;
            charged.is_nearly_full |= again.is_nearly_full;
            for (place, answer) in places.into_iter().zip(again.answers) {
                charged.answers[place] = answer;
            }
        }
    }

    /// Has the backend charge a batch, while those of the batch and others wait.
    async fn ask(
        &mut self,
        batch: Batch<'_>,
        waiters: [&mut [Waiter<Outcome>]; 2],
    ) -> Result<Charged, StoreError> {
        let held = Held {
            waiters,
            jobs: waiters_of(&mut self.jobs),
            ..Held::default()
        };
        let clock = self.clock.get();
        watched(&self.inbox, held, self.backend.charge(batch, clock)).await
    }

    /// Takes in what was answered, for charges that are not asked any more.
    fn learn(&mut self, asked: &[Charge], charged: &mut Charged) {
        let moment = self.refused.moment.take();
        let moment = moment.filter(|_| self.refused.sees_changes());
        let has_uncounted = self.refusals.has_attempts() || self.refused.has_attempts();
        for (charge, answer) in asked.iter().zip(&mut charged.answers) {
            let Ok(outcome) = answer else {
                continue;
            };
            self.local.learn_limits(charge, outcome);
            if has_uncounted {
                self.with_uncounted(charge, outcome);
            }
            if let Some(moment) = &moment {
                self.refusals.note(charge, outcome, moment);
            }
        }
    }

    /// Tells how long those have waited who are answered now.
    #[cfg(feature = "metrics")]
    fn measure(&self, waiters: &[Waiter<Outcome>], answers: &[Result<Outcome, StoreError>]) {
        if waiters.is_empty() {
            return;
        }
        let now = clock::monotonic();
        let answered = waiters.iter().zip(answers);
        let answered = answered.filter(|(waiter, answer)| waiter.is_unanswered() && answer.is_ok());
        let waits = answered.map(|(waiter, _)| now.duration_since(waiter.since));
        self.inbox.health.meters().answered(waiters.len(), waits);
    }

    /// Tells how a call with charges went. One that came too late for all of them has been noted as late.
    fn tell_breaker(&self, is_ok: bool, waiters: &[Waiter<Outcome>]) {
        let inbox = &self.inbox;
        let is_in_time = waiters.is_empty() || waiters.iter().any(Waiter::is_unanswered);
        if !is_ok {
            inbox.breaker.failed(clock::monotonic());
        } else if is_in_time && inbox.breaker.answered() {
            inbox.health.answered(true);
        }
    }

    fn install(&self, ahead: &[Ahead], charged: Option<&Charged>) -> Vec<GiveBack> {
        let grants = charged.map_or(&[][..], |charged| &charged.grants);
        let asked = ahead.iter().enumerate();
        let rests = asked.filter_map(|(place, ahead)| {
            self.leases
                .install(ahead, grants.get(place).and_then(Option::as_ref))
        });
        rests.collect()
    }

    /// Gives units back. Those of which it is certain that they were not stay leased; of others it is safe to lose them until
    /// their window ends.
    pub(super) async fn give_back(
        &mut self,
        units: &[GiveBack],
        waiters: [&mut [Waiter<Outcome>]; 2],
    ) {
        if units.is_empty() {
            return;
        }
        let held = Held {
            waiters,
            jobs: waiters_of(&mut self.jobs),
            ..Held::default()
        };
        let call = self.backend.give_back(units, self.clock.get());
        let error = match watched(&self.inbox, held, call).await {
            Ok(left) => {
                for back in units {
                    self.refusals.free(&back.part);
                }
                // Of a window nothing is left but what did not go back at all.
                return self.keep(&left);
            }
            Err(error) => error,
        };
        tracing::debug!(%error, "units of a rate limit that were not used could not be given back");
        // When it is certain that they were not, they can be spent, or given back later: also those of which the lease is gone.
        if let StoreError::Database {
            is_transient: true, ..
        } = error
        {
            self.keep(units);
        }
    }

    /// Gives units of leases back that are not spent any more, a page at a time between charges.
    pub(super) fn return_by_pages(&mut self, rests: Vec<GiveBack>) {
        if !rests.is_empty() {
            self.returned.extend(rests);
            self.give_back_at = clock::monotonic();
        }
    }

    /// When idle leases are looked for, if there are any. Under a set clock nothing is ever idle by itself.
    pub(super) fn give_back_due_at(&self) -> Option<Instant> {
        if !self.returned.is_empty() {
            return Some(self.give_back_at);
        }
        let is_set = self.clock.get().manual().is_some();
        (self.leases.is_outstanding() && !is_set).then_some(self.give_back_at)
    }

    pub(super) async fn give_back_idle(&mut self) {
        let idle = if self.returned.is_empty() {
            self.leases.take_idle(self.now(), GIVEN_BACK_AT_ONCE)
        } else {
            let left = self.returned.len().saturating_sub(GIVEN_BACK_AT_ONCE);
            self.returned.split_off(left)
        };
        let has_more = idle.len() == GIVEN_BACK_AT_ONCE || !self.returned.is_empty();
        let pause = if has_more {
            BETWEEN_MORE
        } else {
            BETWEEN_GIVING_BACK
        };
        self.give_back_at = clock::monotonic() + pause;
        self.give_back(&idle, [&mut [], &mut []]).await;
    }

    fn answer(
        &self,
        waiters: &mut [Waiter<Outcome>],
        answers: Result<Vec<Result<Outcome, StoreError>>, StoreError>,
    ) {
        match answers {
            Ok(answers) => {
                let refusals = answers.iter().filter_map(|answer| answer.as_ref().err());
                match refusals.clone().next() {
                    Some(error) => self.inbox.health.failed(error, refusals.count() as u64),
                    // What can be looked at may be locked against charges all the same.
                    None if self.inbox.breaker.is_open() => {}
                    None => self.inbox.health.answered(false),
                }
                for (waiter, answer) in waiters.iter_mut().zip(answers) {
                    waiter.answer(answer);
                }
            }
            Err(error) => {
                self.inbox.health.failed(&error, waiters.len() as u64);
                for waiter in waiters {
                    waiter.answer(Err(error.clone()));
                }
            }
        }
    }
}
