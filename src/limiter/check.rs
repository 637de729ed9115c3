//! A charge that is under way.

use std::pin::Pin;
use std::task::{Context, Poll};

#[cfg(feature = "metrics")]
use super::meters;
use super::{FailureMode, Limiter, events};
use crate::limit::few::Few;
use crate::limit::{Decision, Verdict};
use crate::store::{Charge, Later, Outcome, Part, Reply, StoreError, poll_later};

/// Parts of which some were charged before under other limits, and are held to these without another charge.
pub(crate) struct Held {
    /// All of them, in the order of their policies.
    pub(crate) parts: Few<Part>,
    /// For each of them what it is held to, if it was charged.
    pub(crate) verdicts: Vec<Option<Verdict>>,
    /// Those that were not.
    pub(crate) rest: Option<Few<Part>>,
    /// Whether some were charged without the store.
    pub(crate) is_local: bool,
}

impl Held {
    /// Whether one of those that refuse counts its refusals.
    pub(super) fn has_refusal_that_blocks(&self) -> bool {
        has_refusal_that_blocks(&self.parts, &self.verdicts)
    }
}

fn has_refusal_that_blocks(parts: &Few<Part>, verdicts: &[Option<Verdict>]) -> bool {
    let mut parts = parts.iter().zip(verdicts);
    parts.any(|(part, verdict)| {
        part.block().is_some() && verdict.as_ref().is_some_and(Verdict::is_denied)
    })
}

/// A charge that began.
#[expect(
    clippy::large_enum_variant,
    reason = "what is decided in memory is not to need an allocation"
)]
pub(crate) enum Begun {
    /// It needed no wait: the decision, and what was charged or had been before.
    Decided(Result<Decision, StoreError>, Few<Part>),
    Waits(Check),
}

impl Begun {
    /// What begins with a reply. Nothing is copied for one that is there.
    pub(super) fn with(reply: Reply, mut asked: Asked, limiter: &Limiter) -> Self {
        let decision = match reply {
            Reply::Ready(ref answer) => asked.decide(answer, limiter),
            Reply::Spent(verdicts) if asked.held.is_empty() => asked.decided(verdicts, limiter),
            Reply::Spent(verdicts) => asked.decide(&Ok(Outcome::of(&verdicts)), limiter),
            Reply::Later(answer) => {
                return Self::Waits(Check {
                    limiter: limiter.clone(),
                    answer,
                    asked,
                });
            }
            Reply::Done => asked.decide(&Err(StoreError::Closed), limiter),
        };
        Self::Decided(decision, asked.parts)
    }

    /// What was decided before, all of it.
    pub(super) fn held(held: Held, cost: u32, limiter: &Limiter) -> Self {
        let mut asked = Asked::held(held, cost);
        let verdicts = std::mem::take(&mut asked.held);
        let decision = Few::collect(verdicts.into_iter().flatten())
            .map(|verdicts| asked.marked(Decision::new(verdicts)))
            .ok_or(StoreError::Closed);
        asked.tell(&decision, limiter);
        Self::Decided(decision, asked.parts)
    }
}

/// A charge that is under way. Dropping it abandons the answer; what was charged stays.
#[derive(Debug)]
pub(crate) struct Check {
    limiter: Limiter,
    answer: Later,
    asked: Asked,
}

impl Check {
    /// What was charged, or had been before.
    pub(crate) fn into_parts(self) -> Few<Part> {
        self.asked.parts
    }
}

impl Future for Check {
    type Output = Result<Decision, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let answer = poll_later(&mut this.answer, cx);
        answer.map(|answer| this.asked.decide(&answer, &this.limiter))
    }
}

/// What a decision follows from, beside the answer.
#[derive(Debug)]
pub(super) struct Asked {
    parts: Few<Part>,
    cost: u32,
    /// For each part what was decided about it before, if anything was; empty when nothing was of any.
    held: Vec<Option<Verdict>>,
    is_held_locally: bool,
    is_forced: bool,
}

impl Asked {
    pub(super) fn new(parts: Few<Part>, cost: u32) -> Self {
        Self {
            parts,
            cost,
            held: Vec::new(),
            is_held_locally: false,
            is_forced: false,
        }
    }

    /// What was used already.
    pub(super) fn forced(parts: Few<Part>, cost: u32) -> Self {
        Self {
            is_forced: true,
            ..Self::new(parts, cost)
        }
    }

    /// Parts of which the answer is only about the rest.
    pub(super) fn held(held: Held, cost: u32) -> Self {
        Self {
            held: held.verdicts,
            is_held_locally: held.is_local,
            ..Self::new(held.parts, cost)
        }
    }

    /// What was admitted at once, and follows from nothing that was decided before.
    fn decided(&self, verdicts: Few<Verdict>, limiter: &Limiter) -> Result<Decision, StoreError> {
        let mut decision = Decision::new(verdicts);
        decision.set_charged_by(limiter.charges_as(), &[]);
        let decision = Ok(decision);
        self.tell(&decision, limiter);
        decision
    }

    fn decide(
        &mut self,
        answer: &Result<Outcome, StoreError>,
        limiter: &Limiter,
    ) -> Result<Decision, StoreError> {
        let held = std::mem::take(&mut self.held);
        let decision = match answer {
            Ok(outcome) => {
                let was_held = was_held(&held);
                let mut decision = decision(&self.parts, held, self.cost, outcome);
                decision.set_charged_by(limiter.charges_as(), &was_held);
                Ok(self.marked(decision))
            }
            Err(error) => self.without_store(held, error.clone(), limiter),
        };
        self.tell(&decision, limiter);
        decision
    }

    /// Tells whoever listens what was decided. Why nothing was, the store tells.
    #[cfg_attr(
        not(feature = "metrics"),
        expect(
            clippy::unused_self,
            reason = "only metrics tell of which policies nothing was decided"
        )
    )]
    fn tell(&self, decision: &Result<Decision, StoreError>, limiter: &Limiter) {
        if let Ok(decision) = decision {
            events::decided(decision, limiter.is_shadow());
            #[cfg(feature = "admin")]
            limiter.tally(decision);
        }
        #[cfg(feature = "metrics")]
        match decision {
            Ok(decision) => meters::decided(decision, limiter.is_shadow()),
            Err(_) => meters::unanswered(self.parts.iter().map(Part::policy), limiter.is_shadow()),
        }
    }

    /// The decision, marked when what it is held to was charged without the store.
    fn marked(&self, decision: Decision) -> Decision {
        if self.is_held_locally {
            decision.made_locally()
        } else {
            decision
        }
    }

    fn without_store(
        &self,
        held: Vec<Option<Verdict>>,
        error: StoreError,
        limiter: &Limiter,
    ) -> Result<Decision, StoreError> {
        let failure_mode = limiter.failure_mode();
        if failure_mode == FailureMode::Local {
            return self.locally(held, limiter).ok_or(error);
        }
        // What was refused before stays refused.
        if let Some(refused) = Few::collect(held.into_iter().flatten().filter(Verdict::is_denied)) {
            return Ok(self.marked(Decision::new(refused)));
        }
        if failure_mode == FailureMode::Closed {
            return Err(error);
        }
        let parts = self
            .parts
            .map(|part| (part.policy().clone(), part.key.clone()));
        let store = limiter.store_handle();
        store.note_uncounted();
        Ok(Decision::uncounted(parts, self.cost, store.now()))
    }

    /// Asks this process's memory what the store was asked: `None` when it has no room.
    fn locally(&self, held: Vec<Option<Verdict>>, limiter: &Limiter) -> Option<Decision> {
        let is_refused = held.iter().flatten().any(Verdict::is_denied);
        let parts = if held.is_empty() || is_refused {
            self.parts.clone()
        } else {
            let parts = self.parts.iter().zip(&held);
            let rest = parts.filter(|(_, held)| held.is_none());
            Few::collect(rest.map(|(part, _)| part.clone()))?
        };
        let cost = self.cost;
        let store = limiter.store_handle();
        let is_looked = is_refused && !has_refusal_that_blocks(&self.parts, &held);
        let outcome = if is_looked || cost == 0 {
            store.look_locally(&Charge::new(parts, cost))
        } else if self.is_forced {
            store.charge_locally(&Charge::forced(parts, cost))
        } else {
            store.charge_locally(&Charge::new(parts, cost))
        };
        let was_held = was_held(&held);
        let mut decision = decision(&self.parts, held, cost, &outcome?);
        decision.set_charged_by(limiter.charges_locally_as(), &was_held);
        Some(decision.made_locally())
    }
}

/// For each part whether something was decided about it before.
fn was_held(held: &[Option<Verdict>]) -> Vec<bool> {
    held.iter().map(Option::is_some).collect()
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
    let mut next = || found.next().unwrap_or(outcome.found.first());
    let verdict =
        |part: &Part, found| Verdict::new(part.policy(), part.key.clone(), cost, outcome.at, found);
    if held.is_empty() {
        return Decision::new(parts.map(|part| verdict(part, next())));
    }
    let is_about_all = outcome.of_policies().count() == parts.len();
    let mut held = held.into_iter();
    Decision::new(parts.map(|part| {
        match held.next().flatten() {
            // The store knows how long to wait; what was refused stays so, should there be room again.
            Some(held) if is_about_all => {
                let looked = verdict(part, next());
                if held.is_denied() && looked.is_denied() {
                    looked
                } else {
                    held
                }
            }
            Some(held) => held,
            None => verdict(part, next()),
        }
    }))
}
