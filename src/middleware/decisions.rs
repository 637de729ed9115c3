//! What all rate limits of a request decided.

use std::sync::Arc;

use crate::limit::few::Few;
use crate::limit::{Decision, Verdict};
use crate::limiter::{Charged, FailureMode, Limiter};
use crate::store::Part;

/// What the rate limits around a request decided, outermost first: an extension of the request, and of the response.
///
/// Nested layers append theirs, so a handler sees them all, and a layer outside sees a refusal of one further inside. A
/// request that no layer looked at (`.enabled(false)`) has none: read it as an `Option`.
///
/// # Examples
///
/// ```
/// use tollgate::Decisions;
///
/// fn left(request: &http::Request<()>) -> Option<u32> {
///     let decisions = request.extensions().get::<Decisions>()?;
///     decisions.iter().map(|decision| decision.remaining()).min()
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    entries: Arc<[Entry]>,
}

#[derive(Clone, Debug)]
struct Entry {
    decision: Decision,
    /// The counters that were charged, a part for each verdict. A refusal ends the request: nobody asks for its.
    charged: Option<Charged>,
    /// Where they are; kept so that a store's id is not given to another store meanwhile.
    limiter: Limiter,
}

impl Entry {
    /// The counters that were charged.
    fn parts(&self) -> Option<&Few<Part>> {
        self.charged.as_ref().map(|charged| &charged.parts)
    }
}

impl Decisions {
    /// The decisions, outermost first.
    #[must_use]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Decision> + ExactSizeIterator {
        self.entries.iter().map(|entry| &entry.decision)
    }

    /// Whether nothing was decided.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The decision that refused the request: nothing further inside was asked after it.
    #[must_use]
    pub fn denied(&self) -> Option<&Decision> {
        self.iter().find(|decision| decision.is_denied())
    }

    /// What was decided when this very counter was charged already, or looked at as this layer does at a `cost` of 0, and what
    /// that says of it. A charge that was not counted is none, and one in this process's memory is one only for a limiter that
    /// would have made it there too: others are not to answer without the store what it was not asked.
    pub(super) fn of_counter(
        &self,
        limiter: &Limiter,
        part: &Part,
        cost: u32,
    ) -> Option<(&Decision, &Verdict)> {
        let is_local = limiter.failure_mode() == FailureMode::Local;
        let mut entries = self.entries.iter().rev();
        entries.find_map(|entry| {
            let decision = &entry.decision;
            let is_charge = !decision.is_degraded() || (is_local && !decision.is_uncounted());
            if !is_charge || entry.limiter.store_id() != limiter.store_id() {
                return None;
            }
            let charged = &entry.charged.as_ref()?.parts;
            let place = charged.iter().position(|charged| charged == part)?;
            let verdict = decision.verdicts().nth(place)?;
            (verdict.cost() > 0 || cost == 0).then_some((decision, verdict))
        })
    }

    /// This list with one more decision behind it.
    pub(super) fn with(
        self,
        decision: Decision,
        charged: Option<Charged>,
        limiter: Limiter,
    ) -> Self {
        let entry = Entry {
            decision,
            charged,
            limiter,
        };
        Self {
            entries: if self.is_empty() {
                Arc::new([entry])
            } else {
                self.entries.iter().cloned().chain([entry]).collect()
            },
        }
    }

    /// The list of a response, when the layer that made `self` is about to send it on. What a layer further inside put
    /// there goes on from `self`, unless something in between has made a request of its own.
    pub(super) fn merged_with(self, inner: Option<Decisions>) -> Self {
        match inner {
            None => self,
            Some(inner) => {
                let known = |entry: &Entry| {
                    inner.entries.iter().any(|other| {
                        other.decision == entry.decision
                            && other.parts() == entry.parts()
                            && other.limiter.store_id() == entry.limiter.store_id()
                    })
                };
                if self.entries.iter().all(known) {
                    return inner;
                }
                let entries = self.entries.iter().chain(&*inner.entries);
                Self {
                    entries: entries.cloned().collect(),
                }
            }
        }
    }
}
