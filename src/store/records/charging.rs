//! Batches of charges and looks.

use std::collections::{HashMap, HashSet};

use super::backend::RecordBackend;
use super::page::{Of, Page, records_of};
use super::{MOST_TRIES, MOST_WRITES, RecordChange, Records, conflict};
use crate::clock::Clock;
use crate::limit::algorithm::Found;
use crate::store::engine::{Batch, Charged, Grant, worth_granting};
use crate::store::{Charge, Outcome, Part, StoreError};

/// Charges a batch. What others have changed meanwhile is decided once more.
pub(super) async fn charge<R: Records>(
    backend: &mut RecordBackend<R>,
    batch: Batch<'_>,
    clock: &Clock,
) -> Result<Charged, StoreError> {
    let mut groups = groups(batch);
    let mut answers = Answers::none_of(batch);
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
                left.for_each(|group| answers.fail(group, &error));
                break;
            }
        };
        is_first = false;
        let is_lost = backend.is_lost;
        let decided = groups
            .iter()
            .map(|group| group.decide(batch, &mut page, is_lost));
        let decided: Vec<_> = decided.collect();
        let changes = decided.iter().filter_map(|decided| decided.change.clone());
        let mut made = backend.make(&changes.collect::<Vec<_>>()).await.into_iter();
        let mut left = Vec::new();
        for ((group, decided), rest) in groups.into_iter().zip(decided).zip(rests) {
            let made = match decided.change {
                Some(_) => made.next().unwrap_or_else(|| Err(conflict())),
                None => Ok(true),
            };
            if let Ok(false) = made {
                left.extend(group.once_more(rest));
                continue;
            }
            match made {
                Ok(_) => answers.take(group, decided),
                Err(error) => answers.fail(group, &error),
            }
            left.extend(rest);
        }
        groups = left;
    }
    answers.charged(backend.is_lost)
}

/// Looks, without changing anything. They are answered together, so what can't be read of one is an error to all.
pub(super) async fn look<R: Records>(
    backend: &mut RecordBackend<R>,
    looks: &[Charge],
    clock: &Clock,
) -> Result<Vec<Outcome>, StoreError> {
    let parts = looks.iter().flat_map(|look| look.parts.iter());
    let asked: Vec<_> = parts.map(|part| (part, Of::Charge)).collect();
    let page = backend.read(&asked, clock).await?;
    for (part, of) in asked {
        page.check(part, of)?;
    }
    let looks = looks.iter().map(|look| page.rows.look(look, page.at));
    Ok(looks.collect())
}

/// What a batch has come to so far.
struct Answers {
    charges: Vec<Result<Outcome, StoreError>>,
    grants: Vec<Option<Grant>>,
    /// What the database has said last of a change that failed, and how many charges have failed so.
    failure: Option<StoreError>,
    failed: usize,
}

impl Answers {
    fn none_of(batch: Batch<'_>) -> Self {
        Self {
            charges: batch.charges.iter().map(|_| Err(conflict())).collect(),
            grants: batch.ahead.iter().map(|_| None).collect(),
            failure: None,
            failed: 0,
        }
    }

    fn take(&mut self, group: Group, decided: Decided) {
        for (place, answer) in group.charges.into_iter().zip(decided.answers) {
            self.charges[place] = answer;
        }
        for (place, grant) in group.ahead.into_iter().zip(decided.grants) {
            self.grants[place] = grant;
        }
    }

    fn fail(&mut self, group: Group, error: &StoreError) {
        self.failed += group.charges.len();
        self.failure = Some(error.clone());
        for place in group.charges {
            self.charges[place] = Err(error.clone());
        }
    }

    /// All answers. When the database has failed over each, it is the batch that has failed, and it is asked less. What was granted of
    /// counters that are lost is not to be spent.
    fn charged(mut self, is_lost: bool) -> Result<Charged, StoreError> {
        let has_failed =
            self.failed == self.charges.len() && self.grants.iter().all(Option::is_none);
        if let Some(failure) = self.failure.filter(|_| has_failed) {
            return Err(failure);
        }
        if is_lost {
            self.grants.fill(None);
        }
        Ok(Charged {
            grants: self.grants,
            ..Charged::of(self.charges, [])
        })
    }
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
    grants: Vec<Option<Grant>>,
    change: Option<RecordChange>,
}

impl Group {
    /// Takes off the charges that would make a change too long, and what is asked for ahead of all of them.
    fn split(&mut self, batch: Batch<'_>) -> Option<Self> {
        let mut parts = HashSet::new();
        let mut records = 0;
        let fit = self.charges.iter().take_while(|&&place| {
            let is_empty = parts.is_empty();
            for part in batch.charges[place].parts.iter() {
                if parts.insert(part) {
                    records += records_of(part);
                }
            }
            is_empty || records <= MOST_WRITES
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

    /// Decides by what was read. Of counters that are lost nothing is charged ahead: nobody would tell that it is not to be spent any
    /// more.
    fn decide(&self, batch: Batch<'_>, page: &mut Page, is_lost: bool) -> Decided {
        let at = page.at;
        let charges = || self.charges.iter().map(|&place| &batch.charges[place]);
        let answers: Vec<_> = charges().map(|charge| charge_one(charge, page)).collect();
        let admitted = answers.iter().map(|answer| {
            let found = answer.as_ref().map(|outcome| outcome.found.iter());
            found.is_ok_and(|mut found| found.all(|found: &Found| found.fits))
        });
        let worth_it = worth_granting(charges().zip(admitted));
        let ahead = self.ahead.iter().map(|&place| &batch.ahead[place]);
        let grants = ahead.map(|ahead| {
            let is_worth_it = worth_it.get(&ahead.part) != Some(&false);
            let is_granted = !is_lost && page.check(&ahead.part, Of::Charge).is_ok();
            is_granted.then(|| page.rows.grant(ahead, is_worth_it, at))
        });
        let grants = grants.collect();
        let parts = self.parts(batch);
        let mut writes: Vec<_> = parts.flat_map(|part| page.writes_of(part)).collect();
        writes.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        writes.dedup_by(|one, other| one.key == other.key);
        Decided {
            answers,
            grants,
            change: (!writes.is_empty()).then_some(RecordChange { writes }),
        }
    }
}

/// Charges what was read. What can't be read is an error to those alone who need it.
fn charge_one(charge: &Charge, page: &mut Page) -> Result<Outcome, StoreError> {
    for part in charge.parts.iter() {
        page.check(part, Of::Charge)?;
    }
    page.rows.charge(charge, page.at, usize::MAX)
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
