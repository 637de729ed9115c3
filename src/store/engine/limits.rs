//! A question about limits that were set at run time.

use std::sync::{Mutex, PoisonError};

use crate::store::{Limits, LimitsAsk};

/// A question about limits that is being answered.
#[derive(Debug)]
pub(super) struct LimitsJob {
    pub(super) ask: LimitsAsk,
    found: Mutex<Limits>,
}

impl LimitsJob {
    pub(super) fn new(ask: LimitsAsk) -> Self {
        Self {
            ask,
            found: Mutex::default(),
        }
    }

    pub(super) fn set(&self, limits: Limits) {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// What was found.
    pub(super) fn take(&self) -> Limits {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut found)
    }
}
