//! What the engine asks of a store that does I/O.

#[cfg(any(feature = "postgres", feature = "records", feature = "sqlite"))]
use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;

use super::{Calls, UsageAsk, UsagePage};
use crate::clock::Clock;
use crate::limit::algorithm::{Span, State};
use crate::limit::{InForce, Timestamp};
use crate::store::file_sizes::FileSizes;
use crate::store::{
    Charge, GiveBack, Limits, LimitsAsk, Outcome, Part, Reset, SetLimit, StoreError,
};

/// The part of a store that reads and writes: the engine calls it from one thread, one call at a time, and never drops
/// a call half-way, but a call may panic: the next one clears up what it left. The contract is that of
/// [`Store`](crate::store::Store); every call is about a batch or a page.
pub(in crate::store) trait Backend: Send + 'static {
    /// How long its files are, which it keeps up to date as far as it has any.
    fn file_sizes(&self) -> Arc<FileSizes> {
        Arc::default()
    }

    /// Whether the counters of different keys are apart, so that nothing is decided about several of them together.
    fn decides_by_key(&self) -> bool {
        false
    }

    /// Opens what is not open yet. The other calls do the same first. A server is heard by it in any case.
    async fn open(&mut self) -> Result<(), StoreError>;

    /// Applies the charges in order, and answers each in its place. An error is about them all: none may have been
    /// answered "admitted" then, though some may be stored. What is asked for ahead comes after them, as far as there is
    /// more than enough; a backend may grant nothing.
    ///
    /// The clock is read once for all of them, as late as can be: when they are decided, and not when they were asked.
    async fn charge(&mut self, batch: Batch<'_>, clock: &Clock) -> Result<Charged, StoreError>;

    /// Takes back units that were charged and not used, as far as they are still where they were taken from, and not when
    /// the counters were lost since: they would be those of others.
    ///
    /// It holds others up for no longer than a page, and returns what it is to be called with again; until then more is told as
    /// used than is, never less.
    async fn give_back(
        &mut self,
        units: &[GiveBack],
        clock: &Clock,
    ) -> Result<Vec<GiveBack>, StoreError>;

    /// Reads the counters without changing anything, each in its place.
    async fn peek(&mut self, looks: &[Charge], clock: &Clock) -> Result<Vec<Outcome>, StoreError>;

    /// Resets a page of counters, and counts the used units that were in force.
    async fn reset(&mut self, reset: &Reset, after: Option<Cursor>) -> Result<Page, StoreError>;

    /// Deletes the expired rows of a page, and counts them. It covers so many rows at most. A server that has a clock of its own
    /// takes the earlier of the two: it may not have been heard yet.
    async fn sweep(
        &mut self,
        now: Timestamp,
        after: Option<Cursor>,
        rows: u32,
    ) -> Result<Page, StoreError>;

    /// Records a page of allowed requests: all or, on an error, none. A page that comes again, since it was in doubt, changes
    /// nothing. A store that records nothing is never asked to.
    async fn record(&mut self, _: &Calls) -> Result<(), StoreError> {
        Err(StoreError::Closed)
    }

    /// Adds up a page of what was used by recorded requests.
    async fn usage(&mut self, _: &UsageAsk, _: Option<Cursor>) -> Result<UsagePage, StoreError> {
        Err(StoreError::Closed)
    }

    /// Sets a limit, or removes it, and says whether there was one. A charge is held to what was set before it, in the same
    /// transaction.
    async fn set_limit(&mut self, set: &SetLimit) -> Result<bool, StoreError>;

    /// The limits that are set.
    async fn limits(&mut self, ask: &LimitsAsk) -> Result<Limits, StoreError>;

    /// Counts what was refused without asking, where it is still counted.
    async fn count_refused(&mut self, attempts: &[Attempts]) -> Result<(), StoreError>;

    /// What became free since `after`, which is what this has told last: units that came back, keys that were reset, limits that
    /// were set. The first time nothing is.
    async fn changes(&mut self, after: Option<i64>) -> Result<Changes, StoreError>;

    /// Whether the counters were lost since this was last asked, all of them: their file was deleted, say.
    fn take_lost(&mut self) -> bool;

    /// Does what must be done now and then between batches, and holds them up for as long.
    async fn maintain(&mut self) -> Result<(), StoreError>;

    /// Closes what is open, so that all is stored.
    async fn close(&mut self) -> Result<(), StoreError>;
}

/// What is charged in one call.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::store) struct Batch<'a> {
    pub(in crate::store) charges: &'a [Charge],
    pub(in crate::store) ahead: &'a [Ahead],
}

/// Units that are asked for ahead of the charges that will spend them.
#[derive(Clone, Debug)]
pub(in crate::store) struct Ahead {
    pub(in crate::store) part: Part,
    pub(in crate::store) units: u32,
}

/// What became of a batch.
#[derive(Debug)]
pub(in crate::store) struct Charged {
    /// An answer for each charge, in its place.
    pub(in crate::store) answers: Vec<Result<Outcome, StoreError>>,
    /// What was granted of each thing that was asked for ahead, in its place: `None` where that is not known. Empty when nothing was.
    pub(in crate::store) grants: Vec<Option<Grant>>,
    /// Whether counters were lost that units may have been granted of.
    pub(in crate::store) has_evicted: bool,
    /// Whether counters will have to go soon: nothing is granted ahead then, and what was is to go back.
    pub(in crate::store) is_nearly_full: bool,
}

impl Charged {
    /// All answers, and all grants.
    pub(in crate::store) fn of(
        answers: Vec<Result<Outcome, StoreError>>,
        grants: impl IntoIterator<Item = Grant>,
    ) -> Self {
        Self {
            answers,
            grants: grants.into_iter().map(Some).collect(),
            has_evicted: false,
            is_nearly_full: false,
        }
    }
}

/// Units that were charged, for charges to come.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Grant {
    pub(in crate::store) at: Timestamp,
    pub(in crate::store) span: Span,
    pub(in crate::store) units: u32,
    /// The counter after it, with the units counted as used.
    pub(in crate::store) state: State,
    /// The limit that they were granted under, when it was set at run time.
    pub(in crate::store) in_force: Option<InForce>,
}

/// Of the parts of charges whether one of them was admitted, or is about the part alone: what another policy refuses would be
/// granted for nothing.
#[cfg(any(feature = "postgres", feature = "records", feature = "sqlite"))]
pub(in crate::store) fn worth_granting<'a>(
    answered: impl Iterator<Item = (&'a Charge, bool)>,
) -> HashMap<&'a Part, bool> {
    let mut worth_it = HashMap::new();
    for (charge, is_admitted) in answered {
        let is_alone = charge.parts.only().is_some();
        for part in charge.parts.iter() {
            *worth_it.entry(part).or_default() |= is_alone || is_admitted;
        }
    }
    worth_it
}

/// Where a page ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct Cursor {
    /// Which of the store's tables it is in.
    pub(in crate::store) table: usize,
    pub(in crate::store) policy: String,
    pub(in crate::store) key: String,
    /// Of what was recorded.
    pub(in crate::store) route: String,
    pub(in crate::store) at: i64,
}

/// What one bounded step of a longer job did.
#[derive(Debug, Default)]
pub(in crate::store) struct Page {
    /// What the job counts: rows deleted, or units given back.
    pub(in crate::store) count: u64,
    /// Rows that the page left in place.
    pub(in crate::store) kept: u64,
    /// Where the next page starts, when there is one.
    pub(in crate::store) next: Option<Cursor>,
}

/// Units of a part that were refused without asking the backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Attempts {
    pub(in crate::store) part: Part,
    pub(in crate::store) window_start: Timestamp,
    pub(in crate::store) epoch: u64,
    pub(in crate::store) units: u64,
}

impl Attempts {
    /// Whether they belong to a state that was found.
    pub(super) fn are_of(&self, part: &Part, at: Timestamp, state: &State) -> bool {
        let is_epoch = state
            .window()
            .is_some_and(|usage| usage.epoch == self.epoch);
        is_epoch && self.part == *part && self.window_start == part.span(at).start
    }
}

/// What became free of a store.
#[derive(Debug, Default)]
pub(in crate::store) struct Changes {
    /// What to ask after the next time.
    pub(in crate::store) last: i64,
    /// `None` when there is more than can be told: anything may have become free.
    pub(in crate::store) freed: Option<Vec<Freed>>,
}

/// Keys of which something became free.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store) enum Freed {
    /// Of a counter, from the first key to the last.
    Keys {
        counter: String,
        first: String,
        last: String,
        /// Whether all that they have used was forgotten, rather than some units given back.
        is_reset: bool,
    },
    /// Of all counters whose limits are filed under a name: a key, or with an empty text all of them.
    Limit { filed_under: String, key: String },
}

/// What became free, to be looked up.
#[derive(Debug, Default)]
pub(super) struct FreedSet<'a> {
    /// `(counter, key)`, and `(filed under, key)`: there may be many of them.
    keys: HashSet<(&'a str, &'a str)>,
    limits: HashSet<(&'a str, &'a str)>,
    ranges: Vec<&'a Freed>,
}

impl<'a> FreedSet<'a> {
    pub(super) fn of(freed: impl IntoIterator<Item = &'a Freed>) -> Self {
        let mut set = Self::default();
        for freed in freed {
            match freed {
                Freed::Keys {
                    counter,
                    first,
                    last,
                    ..
                } if first == last => {
                    set.keys.insert((counter, first));
                }
                Freed::Keys { .. } => set.ranges.push(freed),
                Freed::Limit { filed_under, key } => {
                    set.limits.insert((filed_under, key));
                }
            }
        }
        set
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.limits.is_empty() && self.ranges.is_empty()
    }

    pub(super) fn is_about(&self, part: &Part) -> bool {
        let (key, limits) = (part.key.as_str(), &*part.rule.limits);
        self.keys.contains(&(&*part.rule.counter, key))
            || self.limits.contains(&(limits, key))
            || self.limits.contains(&(limits, SetLimit::OF_ALL))
            || self.ranges.iter().any(|range| range.has_in_range(part))
    }
}

impl Freed {
    /// Whether what was charged ahead for the keys is not to be spent any more.
    pub(super) fn ends_leases(&self) -> bool {
        match self {
            Self::Keys { is_reset, .. } => *is_reset,
            Self::Limit { .. } => true,
        }
    }

    fn has_in_range(&self, part: &Part) -> bool {
        let text = part.key.as_str();
        match self {
            Self::Keys {
                counter,
                first,
                last,
                ..
            } => part.rule.counter == *counter && (&**first..=&**last).contains(&text),
            Self::Limit { .. } => false,
        }
    }
}
