//! Limits that were set at run time, in memory.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::Ordering;

use super::memory_store::Memory;
use crate::limit::{InForce, Key, Limit, StoredLimit, Timestamp};
#[cfg(feature = "_engine")]
use crate::store::NewLimit;
use crate::store::Part;
use crate::store::limits::{Limits, LimitsAsk, SetLimit, Which};

/// Limits of another store that are known here: some 10 MB.
#[cfg(feature = "_engine")]
const MOST_LEARNED: usize = 1 << 16;

/// The limits of each policy by the texts of keys.
#[derive(Debug, Default)]
pub(in crate::store) struct SetLimits(pub(super) HashMap<String, BTreeMap<String, StoredLimit>>);

impl SetLimits {
    /// Sets a limit, or removes it, and says whether there was one.
    pub(super) fn set(&mut self, set: &SetLimit) -> bool {
        let before = match set.limit {
            Some(new) => {
                let limit = Limit::of_stored(new.units);
                let stored = StoredLimit::new(set.key.clone(), limit, new.ends_at);
                let of_policy = self.0.entry(set.filed_under.clone()).or_default();
                of_policy.insert(set.key_text().to_owned(), stored)
            }
            None => {
                let of_policy = self.0.get_mut(&set.filed_under);
                of_policy.and_then(|of_policy| of_policy.remove(set.key_text()))
            }
        };
        before.is_some_and(|before| !before.has_ended(set.now))
    }

    /// The limit that holds for a part, in place of its policy's own.
    pub(super) fn in_force(&self, part: &Part, now: Timestamp) -> Option<InForce> {
        let of_policy = self.0.get(&part.rule.limits)?;
        let [key, all] = [part.key.as_str(), SetLimit::OF_ALL].map(|key| of_policy.get(key));
        InForce::of(key, all, part.policy().limit(), now)
    }

    pub(super) fn list(&self, ask: &LimitsAsk) -> Limits {
        let Some(of_policy) = self.0.get(&ask.filed_under) else {
            return Limits::new();
        };
        let is_in_force = |stored: &&StoredLimit| !stored.has_ended(ask.now);
        match &ask.which {
            Which::Of(key) => {
                let text = key.as_ref().map_or(SetLimit::OF_ALL, Key::as_str);
                let stored = of_policy.get(text).filter(is_in_force);
                stored.into_iter().cloned().collect()
            }
            Which::Keys { after, most } => {
                let after = after.as_ref().map_or(SetLimit::OF_ALL, Key::as_str);
                let range = (Bound::Excluded(after), Bound::Unbounded);
                let stored = of_policy.range::<str, _>(range).map(|(_, stored)| stored);
                let most = usize::try_from(*most).unwrap_or(usize::MAX);
                stored.filter(is_in_force).take(most).cloned().collect()
            }
        }
    }

    /// Forgets those that have ended.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.0.retain(|_, of_policy| {
            of_policy.retain(|_, stored| !stored.has_ended(now));
            !of_policy.is_empty()
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    #[cfg(feature = "_engine")]
    pub(super) fn len(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }
}

/// Limits of a memory.
impl Memory {
    /// Sets a limit, or removes it, and says whether there was one.
    pub(crate) fn set_limit(&self, set: &SetLimit) -> bool {
        let mut rows = self.rows();
        let was_set = rows.limits.set(set);
        self.has_limits
            .store(!rows.limits.is_empty(), Ordering::Relaxed);
        was_set
    }

    pub(crate) fn limits(&self, ask: &LimitsAsk) -> Limits {
        self.rows().limits.list(ask)
    }

    /// Takes in what another store has said of the limit that is in force for a part.
    #[cfg(feature = "_engine")]
    pub(crate) fn learn_limit(&self, part: &Part, in_force: Option<InForce>, now: Timestamp) {
        if in_force.is_none() && !self.has_limits.load(Ordering::Relaxed) {
            return;
        }
        let mut rows = self.rows();
        let known = rows.limits.in_force(part, now);
        let told = |in_force: Option<InForce>| {
            in_force.map(|in_force| (in_force.units, in_force.until.map(|until| until.at)))
        };
        let has_no_room = in_force.is_some() && rows.limits.len() >= MOST_LEARNED;
        if told(known) == told(in_force) || has_no_room {
            return;
        }
        let is_own = in_force.is_some_and(|in_force| in_force.is_own);
        let set = |key: Option<&Key>, in_force: Option<InForce>| SetLimit {
            filed_under: part.rule.limits.clone(),
            key: key.cloned(),
            limit: in_force.map(|in_force| NewLimit {
                units: in_force.units,
                ends_at: in_force.until.map(|until| until.at),
            }),
            now,
        };
        rows.limits
            .set(&set(Some(&part.key), in_force.filter(|_| is_own)));
        if !is_own {
            // It has none of its own, so what holds for it holds for all others of the kind.
            rows.limits.set(&set(None, in_force));
        }
        self.has_limits
            .store(!rows.limits.is_empty(), Ordering::Relaxed);
    }
}
