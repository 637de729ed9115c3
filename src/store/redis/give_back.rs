//! Units that go back to where they were taken from: what the script is asked, and what is left for the next call.

use super::answer::Numbers;
use super::names::{Names, instant};
use super::packed::Packed;
use super::plan::{Kind, period};
use crate::limit::Timestamp;
use crate::limit::algorithm::Taken;
use crate::store::{GiveBack, StoreError};

/// Events that a call goes through: a millisecond or two.
const PAGE: i64 = 500;

/// What is given back in one call.
pub(super) struct Returning<'a> {
    units: &'a [GiveBack],
    pub(super) keys: Vec<String>,
}

impl<'a> Returning<'a> {
    pub(super) fn of(units: &'a [GiveBack], names: &Names) -> Self {
        let keys = units.iter().map(|back| names.of(&back.part)).collect();
        Self { units, keys }
    }

    pub(super) fn packed(&self) -> Packed {
        let mut packed = Packed::default();
        packed.list(3).number(1).number(PAGE).list(self.units.len());
        for (back, place) in self.units.iter().zip(1..) {
            pack(&mut packed, back, place);
        }
        packed
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
    // Of a block others know by the counter whose keys it blocks.
    let counter = part.rule.counter.trim_end_matches(";block");
    packed.list(8).number(place).number(kind.number());
    packed.text(counter).text(part.key.as_str());
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

/// What is left to be given back.
pub(super) struct Returned {
    pub(super) left: Vec<GiveBack>,
}

impl Returned {
    pub(super) fn read(units: &[GiveBack], numbers: &mut Numbers) -> Result<Self, StoreError> {
        let mut left = Vec::new();
        for back in units {
            let (units, after) = (numbers.next()?, numbers.instant()?);
            match units {
                0 => {}
                // It had no room in the page.
                ..0 => left.push(back.clone()),
                _ => left.push(rest(back, units, after)),
            }
        }
        Ok(Self { left })
    }
}

fn rest(back: &GiveBack, units: i64, after: Timestamp) -> GiveBack {
    GiveBack {
        units: u32::try_from(units).unwrap_or(u32::MAX),
        from: Taken::EventsAfter { at: after },
        ..back.clone()
    }
}
