//! Charges of one batch that are each against a single window, merged so that each counter is written once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{Charge, Outcome, Part};
use crate::limit::Timestamp;
use crate::limit::algorithm::fixed_window::{self, Usage};
use crate::limit::algorithm::{Found, Span, State};
use crate::limit::few::Few;

/// The charges of a batch as groups of runs.
///
/// A run is all charges of one counter that ask for the same; a group is all runs that differ in their key alone. Groups
/// are in an order in which every counter sees its charges as they came.
pub(super) struct Merged<'a> {
    pub(super) groups: Vec<Group<'a>>,
    at: Timestamp,
    /// For each charge its group, its run in there, and its place in the run.
    places: Vec<(u32, u32, u32)>,
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
}

/// What became of a run.
#[derive(Clone, Copy)]
pub(super) struct Applied {
    pub(super) after: Usage,
    pub(super) granted: u32,
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

impl<'a> Merged<'a> {
    /// The charges as of an instant. Of each only the first part is looked at.
    pub(super) fn of(charges: impl ExactSizeIterator<Item = &'a Charge>, at: Timestamp) -> Self {
        let mut groups: Vec<Group<'a>> = Vec::new();
        let mut rounds: Vec<u32> = Vec::new();
        let mut by_likeness: HashMap<Likeness<'a>, u32> = HashMap::new();
        // The last run of each counter.
        let mut last: HashMap<(&'a str, &'a str), (u32, u32)> =
            HashMap::with_capacity(charges.len());
        let mut places = Vec::with_capacity(charges.len());
        for charge in charges {
            let (part, cost) = (charge.parts.first(), charge.cost);
            let counter = (&*part.rule.counter, part.key.as_str());
            let entry = last.entry(counter);
            let round = if let Entry::Occupied(entry) = &entry {
                let (group, run) = *entry.get();
                let like = &groups[group as usize];
                let limit = like.like.policy().limit();
                if (limit, like.cost) == (part.policy().limit(), cost) {
                    let run_length = &mut groups[group as usize].runs[run as usize].length;
                    places.push((group, run, *run_length));
                    *run_length += 1;
                    continue;
                }
                rounds[group as usize] + 1
            } else {
                0
            };
            let likeness = Likeness {
                counter: &part.rule.counter,
                limit: part.policy().limit(),
                cost,
                round,
            };
            let group = *by_likeness.entry(likeness).or_insert_with(|| {
                groups.push(Group {
                    like: part,
                    span: part.span(at),
                    cost,
                    runs: Vec::new(),
                });
                rounds.push(round);
                index(groups.len() - 1)
            });
            let runs = &mut groups[group as usize].runs;
            runs.push(Run {
                key: part.key.as_str(),
                length: 1,
            });
            let run = index(runs.len() - 1);
            entry.insert_entry((group, run));
            places.push((group, run, 0));
        }
        let mut merged = Self { groups, at, places };
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
    }

    /// How many rows the batch writes.
    pub(super) fn len(&self) -> usize {
        self.groups.iter().map(|group| group.runs.len()).sum()
    }

    /// The answer to each charge, from what became of each run, in the order of groups and runs.
    pub(super) fn outcomes(&self, applied: &[Applied]) -> Vec<Outcome> {
        let mut first_of_group = Vec::with_capacity(self.groups.len());
        let mut next = 0;
        for group in &self.groups {
            first_of_group.push(next);
            next += group.runs.len();
        }
        let outcome = |&(group, run, place): &(u32, u32, u32)| {
            let applied = applied[first_of_group[group as usize] + run as usize];
            let group = &self.groups[group as usize];
            let run = fixed_window::Run {
                after: applied.after,
                cost: group.cost,
                length: group.runs[run as usize].length,
                granted: applied.granted,
            };
            let (fits, usage) = run.answer(place);
            let state = State::Window(usage);
            Outcome {
                at: self.at,
                found: Few::one(Found { fits, state }),
            }
        };
        self.places.iter().map(outcome).collect()
    }
}

/// An index into a batch, which is never longer than the queue.
fn index(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}
