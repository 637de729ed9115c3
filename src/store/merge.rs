//! Charges of one batch that are each against a single window, merged so that each counter is written once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::engine::{Ahead, Charged, Grant};
use super::{Charge, Outcome, Part};
use crate::limit::algorithm::fixed_window::{self, Usage};
use crate::limit::algorithm::{Found, Span, State};
use crate::limit::few::Few;
use crate::limit::{InForce, Timestamp};

/// The charges of a batch as groups of runs.
///
/// A run is all charges of one counter that ask for the same; a group is all runs that differ in their key alone. Groups
/// are in an order in which every counter sees its charges as they came.
pub(super) struct Merged<'a> {
    pub(super) groups: Vec<Group<'a>>,
    at: Timestamp,
    /// For each charge its group, its run in there, and its place in the run.
    places: Vec<(u32, u32, u32)>,
    /// For each thing that is asked for ahead its group, and its run in there.
    ahead: Vec<(u32, u32)>,
    #[cfg(feature = "postgres")]
    has_later_runs: bool,
}

/// Runs that differ in their key alone.
pub(super) struct Group<'a> {
    /// The part of one of its charges, for what they all share.
    pub(super) like: &'a Part,
    pub(super) span: Span,
    pub(super) cost: u32,
    pub(super) runs: Vec<Run<'a>>,
}

/// Charges of one counter that ask for the same.
pub(super) struct Run<'a> {
    pub(super) key: &'a str,
    pub(super) length: u32,
    /// Units that are asked for beside the charges.
    pub(super) ahead: u32,
}

/// What became of a run.
#[derive(Clone, Copy)]
pub(super) struct Applied {
    pub(super) after: Usage,
    pub(super) granted: u32,
    /// Units that were granted of those asked for ahead. `after` counts them as used.
    pub(super) extra: u32,
    /// The limit that was set at run time, if one was.
    pub(super) in_force: Option<InForce>,
}

/// What the charges of a group share.
#[derive(PartialEq, Eq, Hash)]
struct Likeness<'a> {
    counter: &'a str,
    limit: u32,
    cost: u32,
    /// 0 for the first run of a counter in this batch, 1 for the second: a later one must not overtake.
    round: u32,
}

/// The runs of a batch while it is gone through.
struct Runs<'a> {
    at: Timestamp,
    groups: Vec<Group<'a>>,
    rounds: Vec<u32>,
    by_likeness: HashMap<Likeness<'a>, u32>,
    /// The last run of each counter.
    last: HashMap<(&'a str, &'a str), (u32, u32)>,
}

impl<'a> Runs<'a> {
    /// The group and the run that a charge belongs to: the last of its counter, or a new one behind it.
    fn of(&mut self, part: &'a Part, cost: u32) -> (u32, u32) {
        let (counter, limit) = (&*part.rule.counter, part.policy().limit());
        let entry = self.last.entry((counter, part.key.as_str()));
        let round = if let Entry::Occupied(entry) = &entry {
            let (group, run) = *entry.get();
            let last = &self.groups[group as usize];
            if (last.like.policy().limit(), last.cost) == (limit, cost) {
                return (group, run);
            }
            self.rounds[group as usize] + 1
        } else {
            0
        };
        let likeness = Likeness {
            counter,
            limit,
            cost,
            round,
        };
        let group = *self.by_likeness.entry(likeness).or_insert_with(|| {
            self.groups.push(Group {
                like: part,
                span: part.span(self.at),
                cost,
                runs: Vec::new(),
            });
            self.rounds.push(round);
            index(self.groups.len() - 1)
        });
        let runs = &mut self.groups[group as usize].runs;
        runs.push(Run {
            key: part.key.as_str(),
            length: 0,
            ahead: 0,
        });
        let place = (group, index(runs.len() - 1));
        entry.insert_entry(place);
        place
    }

    fn at(&mut self, (group, run): (u32, u32)) -> &mut Run<'a> {
        &mut self.groups[group as usize].runs[run as usize]
    }
}

impl<'a> Merged<'a> {
    /// The charges as of an instant, and what is asked for ahead. Of each charge only the first part is looked at.
    pub(super) fn of(
        charges: impl ExactSizeIterator<Item = &'a Charge>,
        ahead: &'a [Ahead],
        at: Timestamp,
    ) -> Self {
        let mut runs = Runs {
            at,
            groups: Vec::new(),
            rounds: Vec::new(),
            by_likeness: HashMap::new(),
            last: HashMap::with_capacity(charges.len()),
        };
        let mut places = Vec::with_capacity(charges.len());
        for charge in charges {
            let (group, run) = runs.of(charge.parts.first(), charge.cost);
            let length = &mut runs.at((group, run)).length;
            places.push((group, run, *length));
            *length += 1;
        }
        let mut ahead_places = Vec::with_capacity(ahead.len());
        for ahead in ahead {
            let place = runs.of(&ahead.part, 1);
            let run = runs.at(place);
            run.ahead = run.ahead.saturating_add(ahead.units);
            ahead_places.push(place);
        }
        let rounds = runs.rounds;
        let mut merged = Self {
            groups: runs.groups,
            at,
            places,
            ahead: ahead_places,
            #[cfg(feature = "postgres")]
            has_later_runs: rounds.iter().any(|round| *round > 0),
        };
        merged.sort_by_round(&rounds);
        merged
    }

    /// Puts first runs before second ones: a group may have been begun by a counter's second run before another
    /// counter's first one began the next.
    fn sort_by_round(&mut self, rounds: &[u32]) {
        if rounds.is_sorted() {
            return;
        }
        let mut order: Vec<u32> = (0..index(rounds.len())).collect();
        order.sort_by_key(|&group| rounds[group as usize]);
        let mut moved_to = vec![0; order.len()];
        for (to, &from) in order.iter().enumerate() {
            moved_to[from as usize] = index(to);
        }
        let mut groups: Vec<_> = self.groups.drain(..).zip(&moved_to).collect();
        groups.sort_by_key(|(_, to)| **to);
        self.groups = groups.into_iter().map(|(group, _)| group).collect();
        for (group, ..) in &mut self.places {
            *group = moved_to[*group as usize];
        }
        for (group, _) in &mut self.ahead {
            *group = moved_to[*group as usize];
        }
    }

    /// Whether a counter has more than one run: one statement can't apply those.
    #[cfg(feature = "postgres")]
    pub(super) fn has_later_runs(&self) -> bool {
        self.has_later_runs
    }

    /// Sets the instant, when it was not known before.
    #[cfg(feature = "postgres")]
    pub(super) fn set_at(&mut self, at: Timestamp) {
        self.at = at;
        for group in &mut self.groups {
            group.span = group.like.span(at);
        }
    }

    /// The instant that it is decided at.
    #[cfg(feature = "sqlite")]
    pub(super) fn at(&self) -> Timestamp {
        self.at
    }

    /// How many rows the batch writes.
    #[cfg(feature = "sqlite")]
    pub(super) fn len(&self) -> usize {
        self.groups.iter().map(|group| group.runs.len()).sum()
    }

    /// What became of each charge and of what was asked for ahead, from what became of each run, in the order of groups
    /// and runs.
    pub(super) fn charged(&self, applied: &[Applied]) -> Charged {
        let mut first_of_group = Vec::with_capacity(self.groups.len());
        let mut next = 0;
        for group in &self.groups {
            first_of_group.push(next);
            next += group.runs.len();
        }
        let applied_of =
            |group: u32, run: u32| applied[first_of_group[group as usize] + run as usize];
        let outcome = |&(group, run, place): &(u32, u32, u32)| {
            let applied = applied_of(group, run);
            let group = &self.groups[group as usize];
            let mut after = applied.after;
            // What was granted ahead is used by others, later.
            after.used = after.used.saturating_sub(u64::from(applied.extra));
            let run = fixed_window::Run {
                after,
                cost: group.cost,
                length: group.runs[run as usize].length,
                granted: applied.granted,
            };
            let (fits, usage) = run.answer(place);
            let state = State::Window(usage);
            Ok(Outcome {
                at: self.at,
                found: Few::one(Found {
                    in_force: applied.in_force,
                    ..Found::new(fits, state)
                }),
            })
        };
        let grant = |&(group, run): &(u32, u32)| Grant {
            at: self.at,
            span: self.groups[group as usize].span,
            units: applied_of(group, run).extra,
            state: State::Window(applied_of(group, run).after),
            in_force: applied_of(group, run).in_force,
        };
        Charged::of(
            self.places.iter().map(outcome).collect(),
            self.ahead.iter().map(grant),
        )
    }
}

/// An index into a batch, which is never longer than the queue.
fn index(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}
