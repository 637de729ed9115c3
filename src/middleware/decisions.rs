//! What all rate limits of a request decided.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use crate::limit::few::Few;
use crate::limit::{Decision, Policy, Verdict};
use crate::limiter::{FailureMode, Limiter};
use crate::store::{Part, StoreId};

/// What the rate limits around a request decided, outermost first: an extension of the request, and of the response.
///
/// Nested layers append theirs, so a handler sees them all, and a layer outside sees a refusal of one further inside. A
/// request that no layer looked at (`.enabled(false)`) has none: read it as an `Option`. Those of layers in
/// [shadow](crate::RateLimitLayer::shadow) mode are apart, since they refuse nobody: see [`shadows`](Self::shadows).
///
/// Clones are of the same request. What a handler charges with [`charge_more`](Self::charge_more) before the response's head
/// is sent is in the decisions of the response, and in its fields.
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
    in_force: Option<Few<Arc<Entry>>>,
    shadows: Vec<Arc<Entry>>,
}

#[derive(Debug)]
struct Entry {
    decision: Decision,
    /// The counters that were charged, a part for each verdict. A refusal ends the request: nobody asks for its.
    parts: Option<Few<Part>>,
    /// Where they are; kept so that a store's id is not given to another store meanwhile.
    limiter: Limiter,
    /// Units that were charged afterwards, for each verdict; empty when none were.
    more: Mutex<Vec<u32>>,
}

impl Decisions {
    /// The decisions, outermost first, without those of shadows.
    #[must_use]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Decision> + ExactSizeIterator {
        Few::iter_some(self.in_force.as_ref()).map(|entry| &entry.decision)
    }

    /// The decisions of layers in [shadow](crate::RateLimitLayer::shadow) mode, outermost first. One that is denied would
    /// have refused the request.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Decisions;
    ///
    /// fn would_be_refused(decisions: &Decisions) -> bool {
    ///     decisions.shadows().any(|decision| decision.is_denied())
    /// }
    /// ```
    #[must_use]
    pub fn shadows(&self) -> impl DoubleEndedIterator<Item = &Decision> + ExactSizeIterator {
        self.shadows.iter().map(|entry| &entry.decision)
    }

    /// Whether nothing was decided but by shadows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.in_force.is_none()
    }

    /// The decision that refused the request: nothing further inside was asked after it. It is never one of a shadow.
    #[must_use]
    pub fn denied(&self) -> Option<&Decision> {
        self.iter().find(|decision| decision.is_denied())
    }

    /// Charges units that the request has used beside those that it was let in with, to every policy that it was charged to.
    ///
    /// They were used already, so they are taken whether they fit or not: the usage may pass the limit, and nothing is left
    /// until enough of it has gone. They are on their way when this returns, and nobody waits for them, so a body that is still
    /// being sent can charge as well. What the store can't take is lost.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::Extension;
    /// use tollgate::Decisions;
    ///
    /// async fn import(Extension(decisions): Extension<Decisions>, rows: String) {
    ///     let rows = u32::try_from(rows.lines().count()).unwrap_or(u32::MAX);
    ///     // One unit was charged for the request.
    ///     decisions.charge_more(rows.saturating_sub(1));
    /// }
    /// ```
    pub fn charge_more(&self, units: u32) {
        self.charge_more_where(units, |_| true);
    }

    /// Charges units as [`charge_more`](Self::charge_more) does, to the policies of this name. Says whether there is one; letter
    /// case does not count.
    #[expect(
        clippy::must_use_candidate,
        reason = "a handler may be served with and without the policy"
    )]
    pub fn charge_more_to(&self, policy: &str, units: u32) -> bool {
        self.charge_more_where(units, |of| of.as_name().eq_ignore_ascii_case(policy))
    }

    /// Charges each counter once, whatever number of nested layers it belongs to.
    fn charge_more_where(&self, units: u32, is_meant: impl Fn(&Policy) -> bool) -> bool {
        let mut charged: Vec<(StoreId, &Part)> = Vec::new();
        for entry in self.entries() {
            let Some(parts) = &entry.parts else {
                continue;
            };
            let store = entry.limiter.store_id();
            let mut new = Vec::new();
            for (place, part) in parts.iter().enumerate() {
                if !is_meant(part.policy()) {
                    continue;
                }
                entry.note_more(place, units);
                if !charged.contains(&(store, part)) {
                    charged.push((store, part));
                    new.push(part.clone());
                }
            }
            if let Some(new) = Few::collect(new) {
                entry.limiter.record_unheard(new, units);
            }
        }
        !charged.is_empty()
    }

    /// Whether a policy in force has this name; letter case does not count.
    pub(super) fn has_policy_named(&self, name: &str) -> bool {
        let mut verdicts = self.iter().flat_map(Decision::verdicts);
        verdicts.any(|verdict| verdict.policy().as_name().eq_ignore_ascii_case(name))
    }

    fn entries(&self) -> impl DoubleEndedIterator<Item = &Arc<Entry>> {
        Few::iter_some(self.in_force.as_ref()).chain(&self.shadows)
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
        self.entries().rev().find_map(|entry| {
            let decision = &entry.decision;
            let is_charge = !decision.is_degraded() || (is_local && !decision.is_uncounted());
            if !is_charge || entry.limiter.store_id() != limiter.store_id() {
                return None;
            }
            let place = entry
                .parts
                .as_ref()?
                .iter()
                .position(|charged| charged == part)?;
            let verdict = decision.verdicts().nth(place)?;
            (verdict.cost() > 0 || cost == 0).then_some((decision, verdict))
        })
    }

    /// This list with one more decision behind it, or behind those of its kind.
    pub(super) fn with(
        mut self,
        decision: Decision,
        parts: Option<Few<Part>>,
        limiter: Limiter,
    ) -> Self {
        let is_shadow = limiter.is_shadow();
        let entry = Arc::new(Entry {
            decision,
            parts,
            limiter,
            more: Mutex::default(),
        });
        if is_shadow {
            self.shadows.push(entry);
        } else {
            self.in_force = Some(match self.in_force {
                None => Few::one(entry),
                Some(before) => before.with(vec![entry]),
            });
        }
        self
    }

    /// The decision of the layer that made this list.
    pub(super) fn of_layer(&self, is_shadow: bool) -> Option<&Decision> {
        self.own(is_shadow).map(|entry| &entry.decision)
    }

    /// The decision of the layer that made this list, when it is another one by now, with what was charged since. `is_refunded`
    /// gives the request's own units back.
    pub(super) fn settle(&self, is_shadow: bool, is_refunded: bool) -> Option<Decision> {
        let entry = self.own(is_shadow)?;
        let more = entry.more.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_refunded && more.is_empty() {
            return None;
        }
        let mut decision = entry.decision.clone();
        if is_refunded {
            entry.limiter.refund_unheard(&decision);
            decision = decision.map(Verdict::without_charge);
        }
        if !more.is_empty() {
            let mut more = more.iter();
            decision = decision.map(|verdict| match more.next() {
                Some(units) => verdict.with_more(*units),
                None => verdict,
            });
        }
        Some(decision)
    }

    /// What the decision in force of the layer that made this list has charged: of its policies the first that it was charged to,
    /// and the units that it has taken until now. What was only looked at, or charged by a layer outside, has taken none.
    pub(super) fn charged(&self, is_refunded: bool) -> Option<(&Verdict, u32)> {
        let entry = self.own(false)?;
        let is_charged = |verdict: &Verdict| verdict.charged_by().is_some();
        let mut verdicts = entry.decision.verdicts();
        let place = verdicts.position(&is_charged).unwrap_or(0);
        let verdict = entry.decision.verdicts().nth(place)?;
        let own = if is_charged(verdict) && !is_refunded {
            verdict.cost()
        } else {
            0
        };
        let part = entry
            .parts
            .as_ref()
            .and_then(|parts| parts.iter().nth(place));
        let outside = self
            .entries()
            .take_while(|outer| !Arc::ptr_eq(outer, entry));
        let mut outside =
            outside.filter(|outer| outer.limiter.store_id() == entry.limiter.store_id());
        let is_of_outside = outside.any(|outer| {
            let parts = outer.parts.iter().flat_map(Few::iter);
            part.is_some_and(|part| parts.into_iter().any(|outer| outer == part))
        });
        let more = entry.more.lock().unwrap_or_else(PoisonError::into_inner);
        // What is charged more is charged once, by the outermost layer that has the counter.
        let more = more.get(place).filter(|_| !is_of_outside);
        let more = more.copied().unwrap_or(0);
        Some((verdict, own.saturating_add(more)))
    }

    fn own(&self, is_shadow: bool) -> Option<&Arc<Entry>> {
        if is_shadow {
            self.shadows.last()
        } else {
            Few::iter_some(self.in_force.as_ref()).next_back()
        }
    }

    /// What the fields of a response tell of the decision of the layer that made this list. What it has only looked at gives way
    /// to what a layer further inside has told of the same policy and key since. `None` when nothing is left.
    pub(super) fn to_tell<'a>(
        &self,
        decision: &'a Decision,
        inner: Option<&Decisions>,
    ) -> Option<Cow<'a, Decision>> {
        let is_look = |verdict: &Verdict| verdict.cost() == 0;
        let own = self.own(false).filter(|_| decision.verdicts().any(is_look));
        let (Some(own), Some(inner)) = (own, inner) else {
            return Some(Cow::Borrowed(decision));
        };
        let is_outside = |entry: &Arc<Entry>| self.entries().any(|other| Arc::ptr_eq(entry, other));
        let told_inside = Few::iter_some(inner.in_force.as_ref())
            .filter(|entry| !is_outside(entry) && !entry.decision.is_uncounted());
        let told_inside: Vec<_> = told_inside.collect();
        let is_told_inside = |verdict: &Verdict| {
            let mut told_inside = told_inside.iter();
            told_inside.any(|entry| entry.tells_the_same(own, verdict))
        };
        let told = decision.of_some(|verdict| !is_look(verdict) || !is_told_inside(verdict));
        told.map(Cow::Owned)
    }

    /// The list of a response, when the layer that made `self` is about to send it on, and has settled its own decision. What a
    /// layer further inside put there goes on from `self`, unless something in between has made a request of its own.
    pub(super) fn finished(
        self,
        inner: Option<Decisions>,
        settled: Option<Decision>,
        is_shadow: bool,
    ) -> Self {
        let own = settled.and_then(|settled| Some((self.own(is_shadow).cloned()?, settled)));
        let mut all = self.merged_with(inner);
        if let Some((own, settled)) = own {
            let settled = Arc::new(own.settled(settled));
            let in_force = all.in_force.iter_mut().flat_map(Few::iter_mut);
            for entry in in_force.chain(&mut all.shadows) {
                if Arc::ptr_eq(entry, &own) {
                    *entry = Arc::clone(&settled);
                }
            }
        }
        all
    }

    fn merged_with(self, inner: Option<Decisions>) -> Self {
        let Some(inner) = inner else {
            return self;
        };
        let is_known = |entry: &Arc<Entry>| inner.entries().any(|other| Arc::ptr_eq(entry, other));
        if self.entries().all(is_known) {
            return inner;
        }
        let [outer_ones, inner_ones] =
            [&self, &inner].map(|of| Few::iter_some(of.in_force.as_ref()).cloned());
        Self {
            in_force: Few::collect(outer_ones.chain(inner_ones)),
            shadows: [self.shadows, inner.shadows].concat(),
        }
    }
}

impl Entry {
    /// Whether this decision is about a policy and key of another one too, and about the same counter.
    fn tells_the_same(&self, other: &Entry, verdict: &Verdict) -> bool {
        let counter = |limiter: &Limiter| {
            let part = limiter.part(verdict.policy().clone(), verdict.key().clone());
            (limiter.store_id(), part)
        };
        let is_of =
            |of: &Verdict| of.policy().is_same(verdict.policy()) && of.key() == verdict.key();
        self.decision.verdicts().any(is_of) && counter(&self.limiter) == counter(&other.limiter)
    }

    fn note_more(&self, place: usize, units: u32) {
        let mut more = self.more.lock().unwrap_or_else(PoisonError::into_inner);
        if more.len() <= place {
            more.resize(place + 1, 0);
        }
        more[place] = more[place].saturating_add(units);
    }

    /// This entry with the decision as it turned out.
    fn settled(&self, decision: Decision) -> Self {
        Self {
            decision,
            parts: self.parts.clone(),
            limiter: self.limiter.clone(),
            more: Mutex::default(),
        }
    }
}
