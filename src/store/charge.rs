//! What a store is asked, and what it answers.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::limit::algorithm::block::Block;
use crate::limit::algorithm::{Found, Span, State, Taken};
use crate::limit::few::Few;
use crate::limit::{InForce, Key, Policy, Timestamp, Verdict};

/// A policy, and what its counters are filed under in a store.
///
/// It begins cache lines of its own: the count of its clones, which lies before it, changes with each request of each thread.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Rule {
    pub(crate) counter: String,
    /// What limits that are set at run time are filed under. It is the name and no more, so that a limit outlasts a change of the
    /// window.
    pub(crate) limits: String,
    pub(crate) policy: Policy,
    /// The counter of the refusals that block a key of this one, if they do.
    pub(crate) block: Option<Arc<Rule>>,
    /// Whether it is such a counter itself.
    is_block: bool,
    /// Of the counter's name, which is longer than most keys and looked up with each of them.
    hash: u64,
}

impl Rule {
    pub(crate) fn new(counter: String, limits: String, policy: Policy) -> Self {
        let block = policy.blocking().map(|_| {
            let counter = format!("{counter};block");
            Arc::new(Self {
                is_block: true,
                ..Self::unblocked(counter, limits.clone(), policy.clone())
            })
        });
        Self {
            block,
            ..Self::unblocked(counter, limits, policy)
        }
    }

    fn unblocked(counter: String, limits: String, policy: Policy) -> Self {
        let mut hasher = DefaultHasher::new();
        counter.hash(&mut hasher);
        Self {
            counter,
            limits,
            policy,
            block: None,
            is_block: false,
            hash: hasher.finish(),
        }
    }
}

/// Rules are the same when their counters are: the limit is not part of it.
impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.counter == other.counter
    }
}

impl Eq for Rule {}

impl Hash for Rule {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.hash.hash(hasher);
    }
}

/// A rule, and whose counter under it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    pub(crate) rule: Arc<Rule>,
    pub(crate) key: Key,
}

impl Part {
    pub(crate) fn policy(&self) -> &Policy {
        &self.rule.policy
    }

    /// Whether it is counted by the same rule, under the same policy.
    #[cfg(feature = "_engine")]
    pub(crate) fn is_under(&self, rule: &Arc<Rule>) -> bool {
        let is_same = || {
            let own = &self.rule;
            own == rule && own.policy == rule.policy && own.is_block == rule.is_block
        };
        Arc::ptr_eq(&self.rule, rule) || is_same()
    }

    /// The counter of the refusals that block this one's key, if they do.
    pub(crate) fn block(&self) -> Option<Self> {
        let rule = Arc::clone(self.rule.block.as_ref()?);
        let key = self.key.clone();
        Some(Self { rule, key })
    }

    /// Whether it counts the refusals that block a key.
    pub(crate) fn is_block(&self) -> bool {
        self.rule.is_block
    }

    /// This part under the limit that is in force for its key.
    pub(crate) fn limited(&self, in_force: InForce) -> Self {
        let rule = &self.rule;
        let rule = Rule {
            counter: rule.counter.clone(),
            limits: rule.limits.clone(),
            policy: rule.policy.with_limit(Some(in_force)),
            block: rule.block.clone(),
            is_block: rule.is_block,
            hash: rule.hash,
        };
        Self {
            rule: Arc::new(rule),
            key: self.key.clone(),
        }
    }

    /// The state of a key that was never seen.
    pub(crate) fn unused(&self, now: Timestamp) -> State {
        if self.rule.is_block {
            State::Block(Block::none(now))
        } else {
            State::unused(self.policy(), now)
        }
    }

    /// The window that holds an instant.
    pub(crate) fn span(&self, at: Timestamp) -> Span {
        self.policy().span(at)
    }

    /// The window before the one that holds an instant.
    pub(crate) fn span_before(&self, at: Timestamp) -> Span {
        let start = self.span(at).start.unix_millis();
        self.span(Timestamp::from_unix_millis(start.saturating_sub(1)))
    }
}

/// A request for units of one counter or several: all of them or none.
#[derive(Clone, Debug)]
pub(crate) struct Charge {
    /// No two parts are of the same counter. Those that block stand behind the others.
    pub(crate) parts: Few<Part>,
    /// At least 1 in a charge. Of a look it is what is asked about, and may be 0.
    pub(crate) cost: u32,
    /// The units were used already: they are taken whether they fit or not.
    pub(crate) is_forced: bool,
}

impl Charge {
    /// A charge that may be refused, or a look.
    pub(crate) fn new(parts: Few<Part>, cost: u32) -> Self {
        Self {
            parts: with_blocks(parts),
            cost,
            is_forced: false,
        }
    }

    /// A charge of what was used already.
    pub(crate) fn forced(parts: Few<Part>, cost: u32) -> Self {
        Self {
            is_forced: true,
            ..Self::new(parts, cost)
        }
    }

    /// This charge under the limits that are in force for its keys, when there are any in place of the policies' own.
    pub(crate) fn limited(&self, in_force: impl Fn(&Part) -> Option<InForce>) -> Option<Self> {
        let in_force = self.parts.map(in_force);
        if in_force.iter().all(Option::is_none) {
            return None;
        }
        let mut in_force = in_force.iter();
        let parts = self.parts.map(|part| match in_force.next() {
            Some(Some(in_force)) => part.limited(*in_force),
            _ => part.clone(),
        });
        Some(Self { parts, ..*self })
    }

    /// The parts of policies, without those that block.
    pub(crate) fn into_policies(self) -> Few<Part> {
        if self.parts.iter().all(|part| part.rule.block.is_none()) {
            return self.parts;
        }
        let policies = self.parts.iter().filter(|part| !part.is_block()).cloned();
        Few::collect(policies).unwrap_or(self.parts)
    }

    /// The part, when it is the only one and a single counter decides, so that no state needs to be read first.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn one_window(&self) -> Option<&Part> {
        let part = self.parts.only()?;
        part.policy().algorithm().is_one_window().then_some(part)
    }

    /// Decides from what each part has used, and says what each has used after it.
    pub(crate) fn decide(&self, at: Timestamp, states: &Few<State>) -> Few<Found> {
        let parts = self.with_states(states);
        crate::limit::algorithm::charge(&parts, self.cost, at, self.is_forced)
    }

    /// What a charge would find, without making it.
    pub(crate) fn look(&self, at: Timestamp, states: &Few<State>) -> Few<Found> {
        crate::limit::algorithm::look(&self.with_states(states), self.cost, at)
    }

    fn with_states<'a>(&'a self, states: &Few<State>) -> Few<(&'a Policy, State)> {
        let mut states = states.iter();
        self.parts.map(|part| {
            let unused = || part.unused(Timestamp::from_unix_millis(0));
            (part.policy(), states.next().copied().unwrap_or_else(unused))
        })
    }
}

/// The parts, and behind them those that block their keys.
fn with_blocks(parts: Few<Part>) -> Few<Part> {
    if parts.iter().all(|part| part.rule.block.is_none()) {
        return parts;
    }
    let blocks: Vec<_> = parts.iter().filter_map(Part::block).collect();
    parts.with(blocks)
}

/// What became of a charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The instant that it was decided at.
    pub(crate) at: Timestamp,
    /// What each part found, right after this charge and before any later one.
    pub(crate) found: Few<Found>,
}

impl Outcome {
    /// What policies have found that say this.
    pub(crate) fn of(verdicts: &Few<Verdict>) -> Self {
        Self {
            at: verdicts.first().decided_at(),
            found: verdicts.map(|verdict| *verdict.found()),
        }
    }

    /// What the policies found. Their blocks are told with them.
    pub(crate) fn of_policies(&self) -> impl Iterator<Item = &Found> {
        self.found.iter().filter(|found| !found.state.is_block())
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn is_admitted(&self) -> bool {
        self.found.iter().all(|found| found.fits)
    }
}

/// Units that were charged and not used: they go back to where they were taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GiveBack {
    pub(crate) part: Part,
    pub(crate) units: u32,
    pub(crate) from: Taken,
    /// When it was decided.
    pub(crate) taken_at: Timestamp,
}

/// Which counters to reset.
#[derive(Clone, Debug)]
pub(crate) struct Reset {
    pub(crate) part: Part,
    /// Every key that starts with the parts of the key too.
    pub(crate) with_keys_under: bool,
    pub(crate) at: Timestamp,
}
