//! The records that a call is about, read into memory, decided there by the rules of every store, and what became of them.

use std::collections::{BTreeMap, HashMap};

use super::backend::RecordBackend;
use super::{RecordWrite, Records, fault, names, values};
use crate::clock::{Clock, monotonic};
use crate::limit::{Key, Timestamp};
use crate::store::memory::{Place, Rows};
use crate::store::{Part, SetLimit, StoreError};

/// A clock that shows another window each time it is asked is none.
const MOST_READS: usize = 8;

/// What was read, and what became of it.
pub(super) struct Page {
    pub(super) at: Timestamp,
    pub(super) rows: Rows,
    /// The value of each record that was there.
    before: HashMap<String, String>,
    /// Records that this version can't read. They stay as they are, and what needs them fails.
    unreadable: HashMap<String, StoreError>,
}

impl Page {
    /// What is written to a place, if something of it is another than it was.
    pub(super) fn write(&self, place: &Place) -> Option<RecordWrite> {
        let write = self.record(place)?;
        (write.before != write.after).then_some(write)
    }

    /// What is written of a charge: its place, and with it that those of the windows around it are still what they were. Who charges
    /// late, or early, reads one window that others write to, and writes to one that they read.
    pub(super) fn writes_of(&self, part: &Part) -> Vec<RecordWrite> {
        let Some(write) = self.write(&Place::of(part, self.at)) else {
            return Vec::new();
        };
        let around = [Place::before(part, self.at), Place::after(part, self.at)];
        let around = around.iter().flatten();
        let unchanged = around.filter_map(|place| self.record(place));
        unchanged.chain([write]).collect()
    }

    /// What a place was, and what it is now.
    fn record(&self, place: &Place) -> Option<RecordWrite> {
        let key = names::of_place(place);
        if self.unreadable.contains_key(&key) {
            return None;
        }
        let kept = self.rows.kept(place);
        Some(RecordWrite {
            before: self.before.get(&key).cloned(),
            after: kept.map(|(kept, expires_at)| values::of_kept(kept, expires_at)),
            expires_at: kept.map(|(_, expires_at)| expires_at),
            key,
        })
    }

    /// Whether all could be read that a part needs.
    pub(super) fn check(&self, part: &Part, of: Of) -> Result<(), StoreError> {
        if self.unreadable.is_empty() {
            return Ok(());
        }
        let asked = (part, of);
        let places = places_of(&asked, self.at).map(|place| names::of_place(&place));
        let limits = limit_names(part).into_iter().filter(|_| of.has_limit());
        let error = places
            .chain(limits)
            .find_map(|name| self.unreadable.get(&name));
        error.map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The value that a record had.
    pub(super) fn value(&self, key: &str) -> Option<&String> {
        self.before.get(key)
    }
}

/// Which records of a part are read.
#[derive(Clone, Copy)]
pub(super) enum Of {
    /// What a charge needs at the instant that it is decided.
    Charge,
    /// The window that begins at an instant, and nothing of its limit.
    Window(i64),
}

impl Of {
    fn has_limit(self) -> bool {
        matches!(self, Self::Charge)
    }
}

/// How many records a charge of a part changes, or needs to be what they are.
pub(super) fn records_of(part: &Part) -> usize {
    if Place::is_one_of_several(part) { 3 } else { 1 }
}

impl<R: Records> RecordBackend<R> {
    /// Reads what is kept of some parts, and with them what tells of changes.
    pub(super) async fn read(
        &mut self,
        asked: &[(&Part, Of)],
        clock: &Clock,
    ) -> Result<Page, StoreError> {
        let mut now = clock.now();
        for _ in 0..MOST_READS {
            let places = places(asked, now);
            let (before, told_at) = self.read_records(asked, &places).await?;
            let at = clock.manual().or(told_at).unwrap_or_else(|| clock.now());
            if has_all(asked, &places, at) {
                return Ok(page(asked, &places, before, at));
            }
            now = at;
        }
        Err(fault(
            "the clock of the database shows another window each time it is asked",
        ))
    }

    /// The values that are there, and what the clock of the database has shown.
    async fn read_records(
        &mut self,
        asked: &[(&Part, Of)],
        places: &BTreeMap<String, Place>,
    ) -> Result<(HashMap<String, String>, Option<Timestamp>), StoreError> {
        let mut keys: Vec<_> = places.keys().cloned().collect();
        for (part, of) in asked {
            if of.has_limit() {
                keys.extend(limit_names(part));
            }
        }
        keys.sort_unstable();
        keys.dedup();
        keys.push(names::CHANGES.to_owned());
        let sent = monotonic();
        let read = self.records.read(&keys).await?;
        if read.values.len() != keys.len() {
            return Err(fault("records were read in another number than asked"));
        }
        if let Some(at) = read.at {
            self.clock.heard(sent, at);
        }
        let values = keys.into_iter().zip(read.values);
        let before: HashMap<_, _> = values
            .filter_map(|(key, value)| Some((key, value?)))
            .collect();
        self.notice(before.get(names::CHANGES).map(String::as_str));
        Ok((before, read.at))
    }
}

fn places(asked: &[(&Part, Of)], at: Timestamp) -> BTreeMap<String, Place> {
    let places = asked.iter().flat_map(|asked| places_of(asked, at));
    let places = places.map(|place| (names::of_place(&place), place));
    places.collect()
}

fn places_of(&(part, of): &(&Part, Of), at: Timestamp) -> impl Iterator<Item = Place> {
    let places = match of {
        Of::Charge => [
            Some(Place::of(part, at)),
            Place::before(part, at),
            Place::after(part, at),
        ],
        Of::Window(window_start) => {
            let part = part.clone();
            [Some(Place { part, window_start }), None, None]
        }
    };
    places.into_iter().flatten()
}

fn has_all(asked: &[(&Part, Of)], places: &BTreeMap<String, Place>, at: Timestamp) -> bool {
    let mut needed = asked.iter().flat_map(|asked| places_of(asked, at));
    needed.all(|place| places.contains_key(&names::of_place(&place)))
}

fn limit_names(part: &Part) -> [String; 2] {
    let filed_under = &part.rule.limits;
    [part.key.as_str(), SetLimit::OF_ALL].map(|key| names::of_limit(filed_under, key))
}

fn page(
    asked: &[(&Part, Of)],
    places: &BTreeMap<String, Place>,
    before: HashMap<String, String>,
    at: Timestamp,
) -> Page {
    let mut rows = Rows::default();
    let mut unreadable = HashMap::new();
    for (name, place) in places {
        match before.get(name).map(|value| values::kept(value)) {
            Some(Ok((kept, expires_at))) => rows.put(place.clone(), kept, expires_at),
            Some(Err(error)) => {
                unreadable.insert(name.clone(), error);
            }
            None => {}
        }
    }
    for (part, _) in asked {
        let keys: [Option<&Key>; 2] = [Some(&part.key), None];
        for (name, key) in limit_names(part).into_iter().zip(keys) {
            let value = before.get(&name);
            match value.map(|value| values::limit(key.cloned(), value)) {
                Some(Ok(limit)) => rows.limits.put(&part.rule.limits, limit),
                Some(Err(error)) => {
                    unreadable.insert(name, error);
                }
                None => {}
            }
        }
    }
    Page {
        at,
        rows,
        before,
        unreadable,
    }
}
