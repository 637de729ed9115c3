//! What a batch asks of the script: each rule, each counter and each limit once, and equal charges of one counter together.

use std::collections::HashMap;
use std::sync::Arc;

use super::names::Names;
use super::packed::Packed;
use crate::limit::algorithm::block::Blocking;
use crate::limit::timestamp::millis;
use crate::limit::{Algorithm, Policy};
use crate::store::engine::Ahead;
use crate::store::{Charge, Part, Rule};

/// How a counter is kept: the numbers are those of the scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Window = 0,
    Month = 1,
    Pair = 2,
    Log = 3,
    Bucket = 4,
    Block = 5,
}

impl Kind {
    pub(super) fn of(part: &Part) -> Self {
        if part.is_block() {
            return Self::Block;
        }
        match part.policy().algorithm() {
            Algorithm::SlidingCounter => Self::Pair,
            Algorithm::SlidingWindow => Self::Log,
            Algorithm::TokenBucket => Self::Bucket,
            Algorithm::CalendarMonth => Self::Month,
            _ => Self::Window,
        }
    }

    pub(super) fn number(self) -> i64 {
        self as i64
    }
}

/// The milliseconds of a policy's windows, or of what its rate is about.
pub(super) fn period(policy: &Policy) -> i64 {
    millis(policy.period()).max(1)
}

/// A batch, as it is asked.
pub(super) struct Plan<'a> {
    is_look: bool,
    rules: Places<RuleNumbers<'a>>,
    by_rule: HashMap<*const Rule, usize>,
    /// The counters: the text of the counter, and that of the key.
    entries: Places<(&'a str, &'a str)>,
    /// A part of each counter.
    pub(super) parts: Vec<&'a Part>,
    entry_rules: Vec<(usize, usize)>,
    /// The limits that may be set at run time: what they are filed under, and the key.
    pub(super) limits: Places<(&'a str, &'a str)>,
    records: Vec<Record>,
    /// The last record of each counter.
    last_of: HashMap<usize, usize>,
    /// For each charge its record.
    pub(super) places: Vec<usize>,
    ahead: Vec<(usize, usize, u32)>,
}

/// Equal charges of one counter, or one of several.
struct Record {
    cost: u32,
    is_forced: bool,
    times: u32,
    parts: Vec<Place>,
}

/// Where a part is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    entry: usize,
    rule: usize,
    /// The part whose key it blocks, from 1 on.
    blocks: usize,
}

/// Things that are asked for once each.
pub(super) struct Places<K> {
    places: HashMap<K, usize>,
    pub(super) all: Vec<K>,
}

impl<K: Clone + Eq + std::hash::Hash> Places<K> {
    fn new() -> Self {
        Self {
            places: HashMap::new(),
            all: Vec::new(),
        }
    }

    pub(super) fn of(&self, key: &K) -> Option<usize> {
        self.places.get(key).copied()
    }

    fn place(&mut self, key: K) -> (usize, bool) {
        if let Some(place) = self.places.get(&key) {
            return (*place, false);
        }
        let place = self.all.len();
        self.places.insert(key.clone(), place);
        self.all.push(key);
        (place, true)
    }
}

/// What a script knows of a policy.
#[derive(Clone, PartialEq, Eq, Hash)]
struct RuleNumbers<'a> {
    counter: &'a str,
    kind: i64,
    limit: u32,
    rate: u32,
    period: i64,
    blocking: Option<Blocking>,
    window: i64,
}

impl<'a> Plan<'a> {
    pub(super) fn of_looks(looks: &'a [Charge]) -> Self {
        let mut plan = Self::new(true, looks.len());
        for look in looks {
            plan.add(look);
        }
        plan
    }

    pub(super) fn of_batch(charges: &'a [Charge], ahead: &'a [Ahead]) -> Self {
        let mut plan = Self::new(false, charges.len());
        for charge in charges {
            plan.add(charge);
        }
        for ahead in ahead {
            let place = plan.place(&ahead.part);
            plan.ahead.push((place.entry, place.rule, ahead.units));
        }
        plan
    }

    fn new(is_look: bool, charges: usize) -> Self {
        Self {
            is_look,
            rules: Places::new(),
            by_rule: HashMap::new(),
            entries: Places::new(),
            parts: Vec::new(),
            entry_rules: Vec::new(),
            limits: Places::new(),
            records: Vec::with_capacity(charges),
            last_of: HashMap::new(),
            places: Vec::with_capacity(charges),
            ahead: Vec::new(),
        }
    }

    /// How many records there are.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// The counter of a part.
    pub(super) fn entry_of(&self, part: &Part) -> Option<usize> {
        self.entries.of(&(&*part.rule.counter, part.key.as_str()))
    }

    fn add(&mut self, charge: &'a Charge) {
        if let (Some(part), false) = (charge.parts.only(), self.is_look) {
            let place = self.place(part);
            let last = self.last_of.get(&place.entry).copied();
            if let Some(last) = last {
                let record = &mut self.records[last];
                let is_same = record.parts == [place]
                    && (record.cost, record.is_forced) == (charge.cost, charge.is_forced);
                if is_same {
                    record.times += 1;
                    self.places.push(last);
                    return;
                }
            }
            self.push(charge, vec![place]);
            return;
        }
        let mut parts: Vec<Place> = Vec::with_capacity(charge.parts.len());
        for part in charge.parts.iter() {
            let blocked = charge.parts.iter().position(|other| {
                part.is_block() && !other.is_block() && other.policy() == part.policy()
            });
            let place = self.place(part);
            parts.push(Place {
                blocks: blocked.map_or(0, |place| place + 1),
                ..place
            });
        }
        self.push(charge, parts);
    }

    fn push(&mut self, charge: &Charge, parts: Vec<Place>) {
        let number = self.records.len();
        for place in &parts {
            self.last_of.insert(place.entry, number);
        }
        self.records.push(Record {
            cost: charge.cost,
            is_forced: charge.is_forced,
            times: 1,
            parts,
        });
        self.places.push(number);
    }

    fn place(&mut self, part: &'a Part) -> Place {
        let rule = self.rule(part);
        let key = part.key.as_str();
        let (entry, is_new) = self.entries.place((&*part.rule.counter, key));
        if is_new {
            let (limit, _) = self.limits.place((&*part.rule.limits, key));
            self.parts.push(part);
            self.entry_rules.push((rule, limit));
        }
        Place {
            entry,
            rule,
            blocks: 0,
        }
    }

    fn rule(&mut self, part: &'a Part) -> usize {
        let address = Arc::as_ptr(&part.rule);
        if let Some(rule) = self.by_rule.get(&address) {
            return *rule;
        }
        let policy = part.policy();
        let (rule, _) = self.rules.place(RuleNumbers {
            counter: &part.rule.counter,
            kind: Kind::of(part).number(),
            limit: policy.limit(),
            rate: policy.own_rate(),
            period: period(policy),
            blocking: policy.blocking(),
            window: millis(policy.window()),
        });
        self.by_rule.insert(address, rule);
        rule
    }

    /// The names of the counters.
    pub(super) fn keys(&self, names: &Names) -> Vec<String> {
        let entries = self.entries.all.iter();
        entries
            .map(|(counter, key)| names.of_texts(counter, key))
            .collect()
    }

    /// What the script is asked. The limits that were set are known, or looked up by the script itself.
    pub(super) fn packed(&self, known: Option<&[[String; 2]]>) -> Packed {
        let mut packed = Packed::default();
        packed.list(6).number(i64::from(self.is_look));
        packed.list(self.rules.all.len());
        for rule in &self.rules.all {
            let (after, lasts) = rule
                .blocking
                .map_or((0, 0), |blocking| (blocking.after, millis(blocking.lasts)));
            packed.numbers(&[
                rule.kind,
                rule.limit.into(),
                rule.rate.into(),
                rule.period,
                after.into(),
                lasts,
                rule.window,
            ]);
        }
        packed.list(self.entry_rules.len());
        for (rule, limit) in &self.entry_rules {
            packed.numbers(&[place_of(*rule), place_of(*limit)]);
        }
        packed.list(self.limits.all.len());
        for (place, (filed_under, key)) in self.limits.all.iter().enumerate() {
            match known.map(|known| &known[place]) {
                None => packed.list(2).text(filed_under).text(key),
                Some([of_key, of_all]) => {
                    packed.list(4).text(filed_under).text(key);
                    packed.text(of_key).text(of_all)
                }
            };
        }
        packed.numbers(&self.charges());
        let ahead = self.ahead.iter();
        let ahead = ahead
            .flat_map(|(entry, rule, units)| [place_of(*entry), place_of(*rule), (*units).into()]);
        packed.numbers(&ahead.collect::<Vec<_>>());
        packed
    }

    fn charges(&self) -> Vec<i64> {
        let mut numbers = Vec::with_capacity(7 * self.records.len());
        for record in &self.records {
            numbers.extend([
                i64::from(record.cost),
                i64::from(record.is_forced),
                i64::from(record.times),
                index(record.parts.len()),
            ]);
            for place in &record.parts {
                numbers.extend([
                    place_of(place.entry),
                    place_of(place.rule),
                    index(place.blocks),
                ]);
            }
        }
        numbers
    }
}

/// Lists begin at 1 there.
fn place_of(place: usize) -> i64 {
    index(place) + 1
}

/// A number in a batch, which is never longer than the queue.
fn index(of: usize) -> i64 {
    i64::try_from(of).unwrap_or(i64::MAX)
}
