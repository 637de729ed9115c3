//! Charges of one batch, merged so that each counter is written once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{Charge, Outcome};
use crate::limit::fixed_window::{self, Usage};

/// The charges of a batch as groups of runs.
///
/// A run is all charges of one counter that ask for the same; a group is all runs that differ in their key alone. Groups
/// are in an order in which every counter sees its charges as they came.
pub(super) struct Merged<'a> {
    pub(super) groups: Vec<Group<'a>>,
    /// For each charge its group, its run in there, and its place in the run.
    places: Vec<(u32, u32, u32)>,
}

/// Runs that differ in their key alone.
pub(super) struct Group<'a> {
    /// One of its charges, for what they all share.
    pub(super) like: &'a Charge,
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
    window_start: i64,
    limit: u32,
    cost: u32,
    /// 0 for the first run of a counter in this batch, 1 for the second: a later one must not overtake.
    round: u32,
}

impl<'a> Merged<'a> {
    pub(super) fn of(charges: &'a [Charge]) -> Self {
        let mut groups: Vec<Group<'a>> = Vec::new();
        let mut rounds: Vec<u32> = Vec::new();
        let mut by_likeness: HashMap<Likeness<'a>, u32> = HashMap::new();
        // The last run of each counter.
        let mut last: HashMap<(&'a str, i64, &'a str), (u32, u32)> =
            HashMap::with_capacity(charges.len());
        let mut places = Vec::with_capacity(charges.len());
        for charge in charges {
            let window_start = charge.span().start.unix_millis();
            let counter = (&*charge.counter.name, window_start, charge.key.as_str());
            let entry = last.entry(counter);
            let round = if let Entry::Occupied(entry) = &entry {
                let (group, run) = *entry.get();
                let like = groups[group as usize].like;
                if (like.limit, like.cost) == (charge.limit, charge.cost) {
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
                counter: &charge.counter.name,
                window_start,
                limit: charge.limit,
                cost: charge.cost,
                round,
            };
            let group = *by_likeness.entry(likeness).or_insert_with(|| {
                groups.push(Group {
                    like: charge,
                    runs: Vec::new(),
                });
                rounds.push(round);
                index(groups.len() - 1)
            });
            let runs = &mut groups[group as usize].runs;
            runs.push(Run {
                key: charge.key.as_str(),
                length: 1,
            });
            let run = index(runs.len() - 1);
            entry.insert_entry((group, run));
            places.push((group, run, 0));
        }
        let mut merged = Self { groups, places };
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
                cost: group.like.cost,
                length: group.runs[run as usize].length,
                granted: applied.granted,
            };
            let (is_admitted, usage) = run.answer(place);
            Outcome { is_admitted, usage }
        };
        self.places.iter().map(outcome).collect()
    }
}

/// An index into a batch, which is never longer than the queue.
fn index(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}
