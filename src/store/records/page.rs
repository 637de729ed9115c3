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
}

impl Page {
    /// What is written to a place, if something of it is another than it was.
    pub(super) fn write(&self, place: &Place) -> Option<RecordWrite> {
        let key = names::of_place(place);
        let before = self.before.get(&key).cloned();
        let kept = self.rows.kept(place);
        let expires_at = kept.map(|(_, expires_at)| expires_at);
        let after = kept.map(|(kept, expires_at)| values::of_kept(kept, expires_at));
        (before != after).then_some(RecordWrite {
            key,
            before,
            after,
            expires_at,
        })
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
                return page(asked, &places, before, at);
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
            if matches!(of, Of::Charge) {
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
    let (place, before) = match of {
        Of::Charge => (Place::of(part, at), Place::before(part, at)),
        Of::Window(window_start) => {
            let part = part.clone();
            (Place { part, window_start }, None)
        }
    };
    [Some(place), before].into_iter().flatten()
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
) -> Result<Page, StoreError> {
    let mut rows = Rows::default();
    for (name, place) in places {
        if let Some(value) = before.get(name) {
            let (kept, expires_at) = values::kept(value)?;
            rows.put(place.clone(), kept, expires_at);
        }
    }
    for (part, _) in asked {
        let keys: [Option<&Key>; 2] = [Some(&part.key), None];
        for (name, key) in limit_names(part).into_iter().zip(keys) {
            if let Some(value) = before.get(&name) {
                let limit = values::limit(key.cloned(), value)?;
                rows.limits.put(&part.rule.limits, limit);
            }
        }
    }
    Ok(Page { at, rows, before })
}
