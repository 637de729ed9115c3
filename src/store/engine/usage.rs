//! What was used, added up from what was recorded: a page at a time.

#![cfg_attr(
    not(feature = "sqlite"),
    allow(dead_code, reason = "only a store in SQLite has recorded usage")
)]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, PoisonError};

use super::backend::Cursor;
use crate::limit::Days;
use crate::store::StoreError;

/// What is added up by key is held in memory until all is read: some 40 MB of it.
const MOST_GROUPS: usize = 1 << 18;

/// Whose usage is asked for.
#[derive(Clone, Debug)]
pub(in crate::store) struct UsageAsk {
    pub(in crate::store) days: Days,
    pub(in crate::store) key: Option<String>,
    pub(in crate::store) policy: Option<String>,
    pub(in crate::store) route: Option<String>,
    pub(in crate::store) by: By,
}

/// What usage is told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum By {
    Nothing,
    Day,
    Route,
    Policy,
    Key,
}

/// Requests, and the units that they have used.
pub(in crate::store) type Counts = (u64, u64);

/// A bounded step.
#[derive(Debug, Default)]
pub(in crate::store) struct UsagePage {
    /// By their labels: a text, or of a day its number since 1970.
    pub(in crate::store) groups: Vec<(String, Counts)>,
    pub(in crate::store) next: Option<Cursor>,
}

/// A question about usage that is being answered.
#[derive(Debug)]
pub(super) struct UsageJob {
    pub(super) ask: UsageAsk,
    /// So many requests must have been written, or given up, before it is answered.
    pub(super) written: u64,
    sums: Mutex<BTreeMap<String, Counts>>,
}

impl UsageJob {
    pub(super) fn new(ask: UsageAsk, written: u64) -> Self {
        Self {
            ask,
            written,
            sums: Mutex::default(),
        }
    }

    /// Adds up a page, unless there are more groups than are held.
    pub(super) fn add(&self, groups: Vec<(String, Counts)>) -> Result<(), StoreError> {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        for (label, (requests, units)) in groups {
            let count = sums.len();
            match sums.entry(label) {
                Entry::Occupied(mut sum) => {
                    let sum = sum.get_mut();
                    sum.0 = sum.0.saturating_add(requests);
                    sum.1 = sum.1.saturating_add(units);
                }
                Entry::Vacant(_) if count >= MOST_GROUPS => return Err(StoreError::TooManyKeys),
                Entry::Vacant(sum) => {
                    sum.insert((requests, units));
                }
            }
        }
        Ok(())
    }

    /// What was added up, by label.
    pub(super) fn take(&self) -> BTreeMap<String, Counts> {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut sums)
    }
}
