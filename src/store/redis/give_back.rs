//! Units that go back to where they were taken from: what the script is asked, and what is left for the next call.

use super::answer::Numbers;
use super::backend::{Redis, numbers};
use super::failure::is_certain;
use super::names::{Names, instant};
use super::packed::Packed;
use super::plan::{Kind, period};
use super::scripts::Script;
use super::servers::Ask;
use super::spread::grouped;
use super::untold;
use crate::clock::Clock;
use crate::limit::Timestamp;
use crate::limit::algorithm::Taken;
use crate::store::{GiveBack, Part, StoreError};

/// Events that a call goes through: a millisecond or two.
const PAGE: i64 = 500;

/// Gives units back, and returns what is left for the next call.
pub(super) async fn give_back(
    redis: &mut Redis,
    units: &[GiveBack],
    clock: &Clock,
) -> Result<Vec<GiveBack>, StoreError> {
    let groups = grouped(units, |back| redis.slot(&back.part));
    let tells = !redis.servers.is_cluster();
    let asks = groups
        .iter()
        .map(|group| ask(&group.things, &redis.names, tells));
    let asks: Vec<_> = asks.collect();
    let answers = redis.run_each(Script::GiveBack, clock.manual(), asks).await;
    let (mut left, mut freed, mut error) = (Vec::new(), Vec::new(), None);
    let (mut has_any, mut not_now) = (false, None);
    for (group, answer) in groups.iter().zip(answers) {
        match numbers(answer).and_then(|mut numbers| Returned::read(&group.things, &mut numbers)) {
            Ok(mut returned) => {
                has_any = true;
                left.append(&mut returned.left);
                freed.append(&mut returned.freed);
            }
            // What is certain not to have gone back goes with the next call, unless none has.
            Err(failure) if is_certain(&failure) => {
                left.extend(group.things.iter().map(|back| (*back).clone()));
                not_now = Some(failure);
            }
            Err(failure) => error = Some(failure),
        }
    }
    redis.untold.put(freed);
    untold::tell(redis).await;
    match error.or(not_now.filter(|_| !has_any)) {
        Some(error) => Err(error),
        None => Ok(left),
    }
}

fn ask(units: &[&GiveBack], names: &Names, tells: bool) -> Ask {
    let mut packed = Packed::default();
    packed.list(3).number(tells.into()).number(PAGE);
    packed.list(units.len());
    for (back, place) in units.iter().zip(1..) {
        pack(&mut packed, back, place);
    }
    let names: Vec<_> = units.iter().map(|back| names.of(&back.part)).collect();
    let declared = units
        .iter()
        .zip(&names)
        .map(|(back, name)| match back.from {
            Taken::Window { start, .. } => format!("{name}:{}", instant(start)),
            _ => name.clone(),
        });
    Ask {
        declared: declared.collect(),
        names,
        asked: packed,
    }
}

fn pack(packed: &mut Packed, back: &GiveBack, place: i64) {
    let (part, policy) = (&back.part, back.part.policy());
    let kind = match back.from {
        Taken::Window { .. } => Kind::Window,
        Taken::Event { .. } | Taken::EventsAfter { .. } => Kind::Log,
        Taken::Bucket { .. } => Kind::Bucket,
        Taken::Refusals { .. } => Kind::Block,
    };
    packed.list(8).number(place).number(kind.number());
    packed.text(counter_of(part)).text(part.key.as_str());
    packed.number(back.units.into());
    match back.from {
        Taken::Window { start, epoch } => {
            packed.number(instant(start)).number(epoch.cast_signed());
            if Kind::of(part) == Kind::Pair {
                packed.number(instant(start) + period(policy));
            } else {
                packed.nothing();
            }
        }
        Taken::Event { at } => {
            packed.number(instant(at)).number(0).nothing();
        }
        Taken::EventsAfter { at } => {
            packed.number(instant(at)).number(1).nothing();
        }
        Taken::Bucket { at } => {
            // Which limit is in force for the key is not known here: it may have drained as fast as under its own, or that of then.
            let fastest = policy.rate().max(policy.own_rate());
            packed.number(instant(at)).number(fastest.into());
            packed.number(period(policy));
        }
        Taken::Refusals { since } => {
            packed.number(instant(since)).nothing().nothing();
        }
    }
}

/// What a script has left to be given back, and what others are to be told of.
struct Returned {
    left: Vec<GiveBack>,
    /// The counter and the key.
    freed: Vec<(String, String)>,
}

impl Returned {
    fn read(units: &[&GiveBack], numbers: &mut Numbers) -> Result<Self, StoreError> {
        let mut left = Vec::new();
        for back in units {
            let (units, after) = (numbers.next()?, numbers.instant()?);
            match units {
                0 => {}
                // It had no room in the page.
                ..0 => left.push((*back).clone()),
                _ => left.push(rest(back, units, after)),
            }
        }
        let mut freed = Vec::new();
        while numbers.left() > 0 {
            let back = units.get(numbers.place()?);
            let part = back.map(|back| &back.part);
            freed.extend(
                part.map(|part| (counter_of(part).to_owned(), part.key.as_str().to_owned())),
            );
        }
        Ok(Self { left, freed })
    }
}

/// The counter that others know. A block's is that whose keys it blocks.
fn counter_of(part: &Part) -> &str {
    let counter = &*part.rule.counter;
    counter.strip_suffix(";block").unwrap_or(counter)
}

fn rest(back: &GiveBack, units: i64, after: Timestamp) -> GiveBack {
    GiveBack {
        units: u32::try_from(units).unwrap_or(u32::MAX),
        from: Taken::EventsAfter { at: after },
        ..back.clone()
    }
}
