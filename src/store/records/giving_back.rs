//! Units that were charged and not used go back, and refusals are counted that nobody was asked for.

use std::collections::HashSet;

use super::backend::RecordBackend;
use super::page::{Of, Page};
use super::{KEYS_TOGETHER, RecordChange, RecordWrite, Records, conflict, feed, names, tries};
use crate::clock::Clock;
use crate::limit::algorithm::Taken;
use crate::store::engine::{Attempts, Freed};
use crate::store::memory::Place;
use crate::store::{GiveBack, Part, StoreError};

/// What the name of a block's counter ends with, behind that of its policy's.
const OF_BLOCK: &str = ";block";

/// Gives units back, and tells others where something was refused since.
pub(super) async fn give_back<R: Records>(
    backend: &mut RecordBackend<R>,
    units: &[GiveBack],
    clock: &Clock,
) -> Result<(), StoreError> {
    let mut left: Vec<&GiveBack> = units.iter().collect();
    for _ in tries() {
        let asked: Vec<_> = left
            .iter()
            .map(|back| (&back.part, Of::Window(window_of(back))))
            .collect();
        let mut page = backend.read(&asked, clock).await?;
        if backend.is_lost {
            // They would be those of others.
            return Ok(());
        }
        for back in &left {
            page.rows.give_back(back, page.at);
        }
        let mut writes = Writes::default();
        let (taken, mut later): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|back| writes.take(back, &page));
        let changes = writes.told(&page)?;
        let made: Result<Vec<_>, _> = backend.make(&changes).await.into_iter().collect();
        let made = changes.iter().zip(made?);
        let overtaken: HashSet<_> = made
            .filter(|(_, made)| !made)
            .flat_map(|(change, _)| change.writes.iter().map(|write| &write.key))
            .collect();
        let is_overtaken = |back: &&GiveBack| overtaken.contains(&names::of_place(&place_of(back)));
        later.extend(taken.into_iter().filter(is_overtaken));
        left = later;
        if left.is_empty() {
            return Ok(());
        }
    }
    Err(conflict())
}

/// Counts what was refused without asking, where it is still counted.
pub(super) async fn count_refused<R: Records>(
    backend: &mut RecordBackend<R>,
    attempts: &[Attempts],
) -> Result<(), StoreError> {
    let place = |of: &Attempts| Place {
        part: of.part.clone(),
        window_start: of.window_start.unix_millis(),
    };
    let mut left: Vec<&Attempts> = attempts.iter().collect();
    for _ in tries() {
        let asked: Vec<_> = left
            .iter()
            .map(|of| (&of.part, Of::Window(of.window_start.unix_millis())))
            .collect();
        let mut page = backend.read(&asked, &Clock::System).await?;
        for of in &left {
            page.rows.count_refused(of, &place(of));
        }
        let mut seen = HashSet::new();
        let writes = left.iter().filter_map(|of| {
            let write = page.write(&place(of))?;
            seen.insert(write.key.clone()).then_some(write)
        });
        let changes: Vec<_> = writes
            .map(|write| RecordChange {
                writes: vec![write],
            })
            .collect();
        let made = backend.make(&changes).await;
        let made: Result<Vec<_>, _> = made.into_iter().collect();
        let made = made?;
        left.retain(|of| {
            let name = names::of_place(&place(of));
            let mut changes = changes.iter().zip(&made);
            changes.any(|(change, made)| !made && change.writes[0].key == name)
        });
        if left.is_empty() {
            return Ok(());
        }
    }
    Err(conflict())
}

/// What is to be changed: each place for itself, and together those of which others are told.
#[derive(Default)]
struct Writes {
    apart: Vec<RecordChange>,
    told: Vec<RecordWrite>,
    freed: Vec<Freed>,
    seen: HashSet<String>,
}

impl Writes {
    /// Takes in what goes back to a place, unless that is to be told and too much is by now.
    fn take(&mut self, back: &GiveBack, page: &Page) -> bool {
        let place = place_of(back);
        let Some(write) = page.write(&place) else {
            return true;
        };
        if self.seen.contains(&write.key) {
            return true;
        }
        let is_told = page.rows.has_refused(&place);
        if is_told && self.told.len() == KEYS_TOGETHER {
            return false;
        }
        self.seen.insert(write.key.clone());
        if is_told {
            self.told.push(write);
            self.freed.push(freed(&back.part));
        } else {
            self.apart.push(RecordChange {
                writes: vec![write],
            });
        }
        true
    }

    /// All changes, with what others are told.
    fn told(mut self, page: &Page) -> Result<Vec<RecordChange>, StoreError> {
        if self.told.is_empty() {
            return Ok(self.apart);
        }
        let mut change = RecordChange { writes: self.told };
        let head = page.value(names::CHANGES);
        feed::tell(&mut change, head, &self.freed, page.at)?;
        self.apart.push(change);
        Ok(self.apart)
    }
}

fn place_of(back: &GiveBack) -> Place {
    Place {
        part: back.part.clone(),
        window_start: window_of(back),
    }
}

fn window_of(back: &GiveBack) -> i64 {
    match back.from {
        Taken::Window { start, .. } => start.unix_millis(),
        _ => 0,
    }
}

/// A block is one of its policy's keys.
fn freed(part: &Part) -> Freed {
    let counter = &*part.rule.counter;
    let key = part.key.as_str();
    Freed::Keys {
        counter: counter.strip_suffix(OF_BLOCK).unwrap_or(counter).to_owned(),
        first: key.to_owned(),
        last: key.to_owned(),
        is_reset: false,
    }
}
