//! What is decided in this process's memory while the store gives no answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::clock::Clock;
use crate::store::memory::Memory;
use crate::store::{Charge, GiveBack, Outcome, Reset};

/// Counters of this process alone, for the time of an outage: all limiters on the store share them.
#[derive(Default)]
pub(crate) struct Local {
    /// Made when it is first needed.
    memory: OnceLock<Memory>,
    clock: Arc<OnceLock<Clock>>,
    /// What was decided without the store, since that was asked last.
    decided: AtomicU64,
}

impl Local {
    pub(super) fn new(clock: Arc<OnceLock<Clock>>) -> Self {
        Self {
            clock,
            ..Self::default()
        }
    }

    /// Charges, unless there is no room for what is new.
    pub(crate) fn charge(&self, charge: &Charge) -> Option<Outcome> {
        let outcome = self.memory().charge(charge).ok()?;
        self.decided.fetch_add(1, Ordering::Relaxed);
        Some(outcome)
    }

    pub(crate) fn look(&self, look: &Charge) -> Outcome {
        self.decided.fetch_add(1, Ordering::Relaxed);
        self.memory().peek(look)
    }

    /// Takes back what was charged here and not used.
    pub(crate) fn give_back(&self, units: &[GiveBack]) {
        self.memory().give_back(units);
    }

    /// Notes that a charge passed without being counted.
    pub(crate) fn note_uncounted(&self) {
        self.decided.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn take_decided(&self) -> u64 {
        self.decided.swap(0, Ordering::Relaxed)
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
