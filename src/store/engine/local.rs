//! What is decided in this process's memory while the store gives no answer.

use std::sync::{Arc, OnceLock};

use crate::store::health::DecidedWithout;
use crate::store::memory::Memory;
use crate::store::store_clock::StoreClock;
use crate::store::{Charge, GiveBack, Outcome, Reset, SetLimit};

/// Counters of this process alone, for the time of an outage: all limiters on the store share them.
pub(crate) struct Local {
    /// Made when it is first needed.
    memory: OnceLock<Memory>,
    clock: Arc<StoreClock>,
    decided_without: DecidedWithout,
}

impl Local {
    /// An empty memory, whose decisions are counted with others that are made without the store.
    pub(super) fn new(clock: Arc<StoreClock>, decided_without: DecidedWithout) -> Self {
        Self {
            memory: OnceLock::new(),
            clock,
            decided_without,
        }
    }

    /// Charges, unless there is no room for what is new.
    pub(crate) fn charge(&self, charge: &Charge) -> Option<Outcome> {
        let outcome = self.memory().charge(charge).ok()?;
        self.decided_without.note();
        Some(outcome)
    }

    pub(crate) fn look(&self, look: &Charge) -> Outcome {
        self.decided_without.note();
        self.memory().peek(look)
    }

    /// Takes back what was charged here and not used.
    pub(crate) fn give_back(&self, units: &[GiveBack]) {
        self.memory().give_back(units);
    }

    /// Sets a limit as it was set in the store.
    pub(super) fn set_limit(&self, set: &SetLimit) {
        self.memory().set_limit(set);
    }

    /// Takes in which limits the store has found in force, so that they hold also without it.
    pub(super) fn learn_limits(&self, charge: &Charge, outcome: &Outcome) {
        let is_limited = outcome.of_policies().any(|found| found.in_force.is_some());
        if !is_limited && self.memory.get().is_none() {
            return;
        }
        let found = charge.parts.iter().zip(outcome.found.iter());
        for (part, found) in found.filter(|(part, _)| !part.is_block()) {
            self.memory().learn_limit(part, found.in_force, outcome.at);
        }
    }

    pub(super) fn reset(&self, reset: &Reset) {
        if let Some(memory) = self.memory.get() {
            memory.reset(reset);
        }
    }

    /// Forgets what has expired.
    pub(super) fn sweep(&self) {
        if let Some(memory) = self.memory.get() {
            memory.sweep();
        }
    }

    fn memory(&self) -> &Memory {
        let new = || Memory::new(Arc::clone(&self.clock));
        self.memory.get_or_init(new)
    }
}
