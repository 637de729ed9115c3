//! What a store is asked, and what it answers.

use std::sync::Arc;
use std::time::Duration;

use crate::limit::fixed_window::{Span, Usage};
use crate::limit::{Key, Timestamp};

/// What counters are filed under, and how long their windows are.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Counter {
    pub(crate) name: String,
    pub(crate) window: Duration,
}

/// A request for units of a quota.
#[derive(Clone, Debug)]
pub(crate) struct Charge {
    pub(crate) counter: Arc<Counter>,
    pub(crate) key: Key,
    pub(crate) limit: u32,
    /// At least 1 in a charge. A look does not use it.
    pub(crate) cost: u32,
    pub(crate) at: Timestamp,
}

impl Charge {
    /// The window that is charged.
    pub(crate) fn span(&self) -> Span {
        Span::of(self.at, self.counter.window)
    }

    /// From when on nobody needs the charged row.
    pub(crate) fn expires_at(&self) -> Timestamp {
        self.span().expires_at(self.counter.window)
    }
}

/// What became of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) is_admitted: bool,
    /// The counter right after this charge, before any later one.
    pub(crate) usage: Usage,
}

/// Which counters to reset.
#[derive(Clone, Debug)]
pub(crate) struct Reset {
    pub(crate) counter: Arc<Counter>,
    pub(crate) key: Key,
    /// Every key that starts with the parts of `key` too.
    pub(crate) with_keys_under: bool,
    pub(crate) at: Timestamp,
}

impl Reset {
    /// The window whose used units are still in force.
    pub(crate) fn span(&self) -> Span {
        Span::of(self.at, self.counter.window)
    }
}
