//! Batches of charges and looks.

use std::collections::{HashMap, HashSet};

use super::backend::RecordBackend;
use super::page::{Of, Page};
use super::{MOST_TRIES, MOST_WRITES, RecordChange, Records, conflict};
use crate::clock::Clock;
use crate::limit::algorithm::Found;
use crate::store::engine::{Batch, Charged, Grant, worth_granting};
use crate::store::memory::Place;
use crate::store::{Charge, Outcome, Part, StoreError};

/// Charges a batch. What others have changed meanwhile is decided once more.
pub(super) async fn charge<R: Records>(
    backend: &mut RecordBackend<R>,
    batch: Batch<'_>,
    clock: &Clock,
) -> Result<Charged, StoreError> {
    let mut groups = groups(batch);
    let mut answers: Vec<_> = batch.charges.iter().map(|_| Err(conflict())).collect();
    let mut grants: Vec<_> = batch.ahead.iter().map(|_| None).collect();
    let mut is_first = true;
    while !groups.is_empty() {
        // Of those that are too many to change together the first go first.
        let rests: Vec<_> = groups.iter_mut().map(|group| group.split(batch)).collect();
        let parts = groups.iter().flat_map(|group| group.parts(batch));
        let asked: Vec<_> = parts.map(|part| (part, Of::Charge)).collect();
        let mut page = match backend.read(&asked, clock).await {
            Ok(page) => page,
            Err(error) if is_first => return Err(error),
            Err(error) => {
                // Others of the batch have been charged.
                let left = groups.into_iter().chain(rests.into_iter().flatten());
                left.for_each(|group| group.fail(&error, &mut answers));
                break;
            }
        };
        is_first = false;
        let decided: Vec<_> = groups
            .iter()
            .map(|group| group.decide(batch, &mut page))
            .collect();
        let changes: Vec<_> = decided
            .iter()
            .filter_map(|decided| decided.change.clone())
            .collect();
        let mut made = backend.make(&changes).await.into_iter();
        let mut left = Vec::new();
        for ((group, decided), rest) in groups.into_iter().zip(decided).zip(rests) {
            let made = match decided.change {
                Some(_) => made.next().unwrap_or_else(|| Err(conflict())),
                None => Ok(true),
            };
            match made {
                Ok(false) => left.extend(group.once_more(rest)),
                Ok(true) => {
                    group.answer(decided, &mut answers, &mut grants);
                    left.extend(rest);
                }
                Err(error) => {
                    group.fail(&error, &mut answers);
                    left.extend(rest);
                }
            }
        }
        groups = left;
    }
    Ok(Charged {
        grants,
        ..Charged::of(answers, [])
    })
}

/// Looks, without changing anything.
pub(super) async fn look<R: Records>(
    backend: &mut RecordBackend<R>,
    looks: &[Charge],
    clock: &Clock,
) -> Result<Vec<Outcome>, StoreError> {
    let parts = looks.iter().flat_map(|look| look.parts.iter());
    let asked: Vec<_> = parts.map(|part| (part, Of::Charge)).collect();
    let page = backend.read(&asked, clock).await?;
    let looks = looks.iter().map(|look| page.rows.look(look, page.at));
    Ok(looks.collect())
}

/// Charges that have counters in common, and what is asked for ahead of these: they change together.
#[derive(Default)]
struct Group {
    charges: Vec<usize>,
    ahead: Vec<usize>,
    /// How often others have changed the same records first.
    lost: usize,
}

/// What a group has come to, if its change is made.
struct Decided {
    answers: Vec<Result<Outcome, StoreError>>,
    grants: Vec<Grant>,
    change: Option<RecordChange>,
}

impl Group {
    /// Takes off the charges that would make a change too long, and what is asked for ahead of all of them.
    fn split(&mut self, batch: Batch<'_>) -> Option<Self> {
        let mut parts = HashSet::new();
        let fit = self.charges.iter().take_while(|&&place| {
            let own = batch.charges[place].parts.iter();
            let is_empty = parts.is_empty();
            parts.extend(own);
            is_empty || parts.len() <= MOST_WRITES
        });
        let fit = fit.count();
        if fit == self.charges.len() {
            // Units of counters beside theirs would be more records.
            let has_charges = fit > 0;
            self.ahead
                .retain(|&place| !has_charges || parts.contains(&batch.ahead[place].part));
            return None;
        }
        Some(Self {
            charges: self.charges.split_off(fit),
            ahead: std::mem::take(&mut self.ahead),
            lost: 0,
        })
    }

    /// What is to be decided once more, unless that was so too often.
    fn once_more(mut self, rest: Option<Self>) -> Option<Self> {
        if let Some(rest) = rest {
            self.charges.extend(rest.charges);
            self.ahead = rest.ahead;
        }
        self.lost += 1;
        (self.lost < MOST_TRIES).then_some(self)
    }

    fn parts<'a>(&self, batch: Batch<'a>) -> impl Iterator<Item = &'a Part> {
        let charges = self.charges.iter().map(move |&place| &batch.charges[place]);
        let ahead = self
            .ahead
            .iter()
            .map(move |&place| &batch.ahead[place].part);
        let ahead: Vec<_> = ahead.collect();
        let charges: Vec<_> = charges.collect();
        charges
            .into_iter()
            .flat_map(|charge| charge.parts.iter())
            .chain(ahead)
    }

    fn decide(&self, batch: Batch<'_>, page: &mut Page) -> Decided {
        let at = page.at;
        let charges = || self.charges.iter().map(|&place| &batch.charges[place]);
        let mut decide = |charge| page.rows.charge(charge, at, usize::MAX);
        let answers: Vec<_> = charges().map(&mut decide).collect();
        let admitted = answers.iter().map(|answer| {
            let found = answer.as_ref().map(|outcome| outcome.found.iter());
            found.is_ok_and(|mut found| found.all(|found: &Found| found.fits))
        });
        let worth_it = worth_granting(charges().zip(admitted));
        let ahead = self.ahead.iter().map(|&place| &batch.ahead[place]);
        let grants = ahead.map(|ahead| {
            let is_worth_it = worth_it.get(&ahead.part) != Some(&false);
            page.rows.grant(ahead, is_worth_it, at)
        });
        let grants = grants.collect();
        let mut writes: Vec<_> = self
            .parts(batch)
            .flat_map(|part| [Some(Place::of(part, at)), Place::before(part, at)])
            .filter_map(|place| page.write(&place?))
            .collect();
        writes.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        writes.dedup_by(|one, other| one.key == other.key);
        Decided {
            answers,
            grants,
            change: (!writes.is_empty()).then_some(RecordChange { writes }),
        }
    }

    fn answer(
        self,
        decided: Decided,
        answers: &mut [Result<Outcome, StoreError>],
        grants: &mut [Option<Grant>],
    ) {
        for (place, answer) in self.charges.into_iter().zip(decided.answers) {
            answers[place] = answer;
        }
        for (place, grant) in self.ahead.into_iter().zip(decided.grants) {
            grants[place] = Some(grant);
        }
    }

    fn fail(self, error: &StoreError, answers: &mut [Result<Outcome, StoreError>]) {
        for place in self.charges {
            answers[place] = Err(error.clone());
        }
    }
}

/// The batch as groups, in the order of their first charges.
fn groups(batch: Batch<'_>) -> Vec<Group> {
    let mut sets = Sets::default();
    for charge in batch.charges {
        let mut parts = charge.parts.iter();
        let first = parts.next().map(|part| sets.of(part));
        for part in parts {
            let other = sets.of(part);
            sets.join(first.unwrap_or(other), other);
        }
    }
    let mut groups: Vec<Group> = Vec::new();
    let mut places = HashMap::new();
    let mut group_of = |set: usize, groups: &mut Vec<Group>| {
        *places.entry(set).or_insert_with(|| {
            groups.push(Group::default());
            groups.len() - 1
        })
    };
    for (place, charge) in batch.charges.iter().enumerate() {
        let set = sets.root_of(charge.parts.first());
        let group = group_of(set, &mut groups);
        groups[group].charges.push(place);
    }
    for (place, ahead) in batch.ahead.iter().enumerate() {
        let set = sets.root_of(&ahead.part);
        let group = group_of(set, &mut groups);
        groups[group].ahead.push(place);
    }
    groups
}

/// Which counters are charged together.
#[derive(Default)]
struct Sets<'a> {
    numbers: HashMap<&'a Part, usize>,
    /// Of each set another one that it is in, or itself.
    within: Vec<usize>,
}

impl<'a> Sets<'a> {
    fn of(&mut self, part: &'a Part) -> usize {
        let next = self.within.len();
        let number = *self.numbers.entry(part).or_insert(next);
        if number == next {
            self.within.push(next);
        }
        number
    }

    fn root(&mut self, mut set: usize) -> usize {
        while self.within[set] != set {
            self.within[set] = self.within[self.within[set]];
            set = self.within[set];
        }
        set
    }

    fn root_of(&mut self, part: &'a Part) -> usize {
        let set = self.of(part);
        self.root(set)
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.within[other] = one;
    }
}
