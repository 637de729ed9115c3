//! Batches of charges and looks: in one call, or in a cluster in one for each slot.

use super::answer::Numbers;
use super::backend::Redis;
use super::failure::fault;
use super::known;
use super::names::Names;
use super::plan::Plan;
use super::replay::Replay;
use super::scripts::Script;
use super::servers::Ask;
use super::spread::{Group, declared, grouped, slot_of_part};
use crate::clock::Clock;
use crate::store::engine::{Ahead, Batch, Charged, Grant};
use crate::store::{Charge, Outcome, StoreError};

/// A script holds up all else that the server does: some 4 ms for so many charges of as many keys.
const CHARGED_AT_ONCE: usize = 512;
/// No slot: that of a charge whose counters are in several.
const APART: u16 = u16::MAX;

/// Charges a batch.
pub(super) async fn charge(
    redis: &mut Redis,
    batch: Batch<'_>,
    clock: &Clock,
) -> Result<Charged, StoreError> {
    if !redis.servers.is_cluster() {
        return charge_in_turn(redis, batch, clock).await;
    }
    let asks = batch.charges.iter().map(Asked::Charge);
    let asks = asks.chain(batch.ahead.iter().map(Asked::Ahead));
    let groups = grouped(asks, |asked| asked.slot(&redis.names));
    let groups: Vec<_> = groups.into_iter().map(OfSlot::of).collect();
    let (groups, apart): (Vec<_>, Vec<_>) =
        groups.into_iter().partition(|group| group.slot != APART);
    let plans = groups.iter().map(|group| {
        let plan = Plan::of_batch(&group.charges, &group.ahead);
        (group.slot, plan)
    });
    let plans: Vec<_> = plans.collect();
    let plans: Vec<_> = plans.iter().map(|(slot, plan)| (*slot, plan)).collect();
    let answers = run(redis, &plans, clock).await;
    let mut charged = Gathered::of(&batch);
    for group in &apart {
        charged.take_in(group, Err(StoreError::KeysApart));
    }
    for ((group, (_, plan)), answer) in groups.iter().zip(&plans).zip(answers) {
        let of_slot = answer.and_then(|numbers| {
            let replay = replay(plan, group.ahead.len(), numbers)?;
            replay.charge(&group.charges, &group.ahead)
        });
        charged.take_in(group, of_slot);
    }
    charged.whole()
}

/// Charges a batch in one server: a long one in several calls, one after another, so that others come in between.
async fn charge_in_turn(
    redis: &mut Redis,
    batch: Batch<'_>,
    clock: &Clock,
) -> Result<Charged, StoreError> {
    let first = batch.charges.len().min(CHARGED_AT_ONCE);
    let (first, later) = batch.charges.split_at(first);
    let mut charged = charge_at_once(redis, first, ahead_behind(later, batch), clock).await?;
    let mut left = later;
    while !left.is_empty() {
        let next = left.len().min(CHARGED_AT_ONCE);
        let (next, later) = left.split_at(next);
        match charge_at_once(redis, next, ahead_behind(later, batch), clock).await {
            Ok(more) => {
                charged.answers.extend(more.answers);
                charged.grants = more.grants;
            }
            Err(error) => {
                // Those before were charged.
                let answers = left.iter().map(|_| Err(error.clone()));
                charged.answers.extend(answers);
                break;
            }
        }
        left = later;
    }
    Ok(charged)
}

/// What is asked for ahead comes behind the last charge.
fn ahead_behind<'a>(later: &[Charge], batch: Batch<'a>) -> &'a [Ahead] {
    if later.is_empty() { batch.ahead } else { &[] }
}

async fn charge_at_once(
    redis: &mut Redis,
    charges: &[Charge],
    ahead: &[Ahead],
    clock: &Clock,
) -> Result<Charged, StoreError> {
    let plan = Plan::of_batch(charges, ahead);
    let mut answers = run(redis, &[(0, &plan)], clock).await;
    let numbers = answers.pop().unwrap_or_else(no_answer)?;
    replay(&plan, ahead.len(), numbers)?.charge(charges, ahead)
}

/// Looks, without changing anything.
pub(super) async fn look(
    redis: &mut Redis,
    looks: &[Charge],
    clock: &Clock,
) -> Result<Vec<Outcome>, StoreError> {
    let is_cluster = redis.servers.is_cluster();
    let names = &redis.names;
    let groups = grouped(looks.iter().cloned(), |look| {
        if is_cluster {
            slot_of_all(names, look)
        } else {
            0
        }
    });
    if groups.iter().any(|group| group.slot == APART) {
        return Err(StoreError::KeysApart);
    }
    let plans: Vec<_> = groups
        .iter()
        .map(|group| (group.slot, Plan::of_looks(&group.things)))
        .collect();
    let plans: Vec<_> = plans.iter().map(|(slot, plan)| (*slot, plan)).collect();
    let answers = run(redis, &plans, clock).await;
    let mut outcomes: Vec<Option<Outcome>> = vec![None; looks.len()];
    for ((group, (_, plan)), answer) in groups.iter().zip(&plans).zip(answers) {
        let found = replay(plan, 0, answer?)?.look(&group.things)?;
        for (place, outcome) in group.places.iter().zip(found) {
            outcomes[*place] = Some(outcome);
        }
    }
    let whole: Option<Vec<_>> = outcomes.into_iter().collect();
    whole.ok_or_else(|| fault("a look was not answered"))
}

/// Runs a plan for each slot. A server that has told its time was heard.
async fn run(
    redis: &mut Redis,
    plans: &[(u16, &Plan<'_>)],
    clock: &Clock,
) -> Vec<Result<Numbers, StoreError>> {
    let at = clock.manual();
    let is_cluster = redis.servers.is_cluster();
    let lists: Vec<_> = plans.iter().map(|(_, plan)| &*plan.limits.all).collect();
    let known = if is_cluster {
        known::known(redis, &lists).await
    } else {
        Vec::new()
    };
    let now = at.unwrap_or_else(|| clock.now());
    let mut numbers: Vec<_> = plans.iter().map(|_| no_answer()).collect();
    let (mut places, mut asks) = (Vec::new(), Vec::new());
    for (place, (_, plan)) in plans.iter().enumerate() {
        let known = match known.get(place) {
            Some(Err(error)) => {
                numbers[place] = Err(error.clone());
                continue;
            }
            Some(Ok(known)) => Some(&**known),
            None => None,
        };
        let names = plan.keys(&redis.names);
        let parts = plan.parts.iter().zip(&names).filter(|_| is_cluster);
        places.push(place);
        asks.push(Ask {
            declared: parts
                .flat_map(|(part, name)| declared(part, name, now))
                .collect(),
            asked: plan.packed(known),
            names,
        });
    }
    let answers = redis.run_each(Script::Charge, at, asks).await;
    for (place, answer) in places.into_iter().zip(answers) {
        numbers[place] = answer.and_then(|answer| {
            let sent = answer.sent;
            let told = Numbers::of(answer.value)?;
            if at.is_none() {
                redis.hear(plans[place].0, sent, told.first_instant()?);
            }
            Ok(told)
        });
    }
    numbers
}

fn replay<'p, 'a>(
    plan: &'p Plan<'a>,
    ahead: usize,
    mut numbers: Numbers,
) -> Result<Replay<'p, 'a>, StoreError> {
    Replay::read(plan, ahead, &mut numbers)
}

fn no_answer<T>() -> Result<T, StoreError> {
    Err(fault("a batch was not answered"))
}

/// What is asked of a slot.
enum Asked<'a> {
    Charge(&'a Charge),
    Ahead(&'a Ahead),
}

impl Asked<'_> {
    fn slot(&self, names: &Names) -> u16 {
        match self {
            Self::Charge(charge) => slot_of_all(names, charge),
            Self::Ahead(ahead) => slot_of_part(names, &ahead.part),
        }
    }
}

/// The slot of all counters of a charge, if it is one.
fn slot_of_all(names: &Names, charge: &Charge) -> u16 {
    let first = charge.parts.first();
    let is_one = charge.parts.iter().all(|part| part.key == first.key);
    if is_one {
        slot_of_part(names, first)
    } else {
        APART
    }
}

/// The part of a batch that is in one slot.
struct OfSlot {
    slot: u16,
    charges: Vec<Charge>,
    ahead: Vec<Ahead>,
    /// The places of both in the batch, the charges first.
    places: Vec<usize>,
}

impl OfSlot {
    fn of(group: Group<Asked<'_>>) -> Self {
        let (mut charges, mut ahead) = (Vec::new(), Vec::new());
        for asked in group.things {
            // What is asked for ahead comes behind all charges.
            match asked {
                Asked::Charge(charge) => charges.push(charge.clone()),
                Asked::Ahead(of) => ahead.push(of.clone()),
            }
        }
        Self {
            slot: group.slot,
            charges,
            ahead,
            places: group.places,
        }
    }
}

/// What became of a batch, slot by slot.
struct Gathered {
    answers: Vec<Option<Result<Outcome, StoreError>>>,
    grants: Vec<Option<Grant>>,
    error: Option<StoreError>,
    has_any: bool,
}

impl Gathered {
    fn of(batch: &Batch<'_>) -> Self {
        Self {
            answers: batch.charges.iter().map(|_| None).collect(),
            grants: vec![None; batch.ahead.len()],
            error: None,
            has_any: false,
        }
    }

    fn take_in(&mut self, group: &OfSlot, charged: Result<Charged, StoreError>) {
        let (of_charges, of_ahead) = group.places.split_at(group.charges.len());
        match charged {
            Ok(charged) => {
                self.has_any = true;
                for (place, answer) in of_charges.iter().zip(charged.answers) {
                    self.answers[*place] = Some(answer);
                }
                for (place, grant) in of_ahead.iter().zip(charged.grants) {
                    self.grants[*place - self.answers.len()] = grant;
                }
            }
            Err(error) => {
                for place in of_charges {
                    self.answers[*place] = Some(Err(error.clone()));
                }
                self.error = Some(error);
            }
        }
    }

    /// An error is about all of them, unless some were answered.
    fn whole(self) -> Result<Charged, StoreError> {
        if let (Some(error), false) = (self.error, self.has_any) {
            return Err(error);
        }
        let answers = self.answers.into_iter();
        Ok(Charged {
            answers: answers
                .map(|answer| answer.unwrap_or_else(no_answer))
                .collect(),
            grants: self.grants,
            has_evicted: false,
            is_nearly_full: false,
        })
    }
}
