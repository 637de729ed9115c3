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

/// Gives units back, tells others where something was refused since, and returns those that are certain not to have gone back.
///
/// A change that failed may have been made, so what is in it is not given back again: its units stay used. Then it is an error, unless
/// something is left that certainly was in none. An error that says it may be tried again means that nothing has happened at all.
pub(super) async fn give_back<R: Records>(
    backend: &mut RecordBackend<R>,
    units: &[GiveBack],
    clock: &Clock,
) -> Result<Vec<GiveBack>, StoreError> {
    let mut left: Vec<&GiveBack> = units.iter().collect();
    let mut doubt = None;
    let mut failure = conflict();
    for _ in tries() {
        match give_back_once(backend, &left, clock).await {
            Ok(once) => {
                left = once.left;
                doubt = once.doubt.or(doubt);
            }
            Err(error) => {
                failure = error;
                break;
            }
        }
        if left.is_empty() {
            break;
        }
    }
    if let Some(error) = &doubt {
        tracing::debug!(%error, "units of a rate limit may not have been given back, and are not given back again");
    }
    match doubt {
        Some(error) if left.is_empty() => Err(in_doubt(error)),
        None if left.len() == units.len() && !left.is_empty() => Err(failure),
        _ => Ok(left.into_iter().cloned().collect()),
    }
}

/// What became of units that were to go back.
struct Once<'a> {
    /// They did not go back, and can be tried once more.
    left: Vec<&'a GiveBack>,
    /// Why it is not known of others whether they did.
    doubt: Option<StoreError>,
}

async fn give_back_once<'a, R: Records>(
    backend: &mut RecordBackend<R>,
    units: &[&'a GiveBack],
    clock: &Clock,
) -> Result<Once<'a>, StoreError> {
    let asked: Vec<_> = units
        .iter()
        .map(|back| (&back.part, Of::Window(window_of(back))))
        .collect();
    let mut page = backend.read(&asked, clock).await?;
    if backend.is_lost {
        // They would be those of others.
        return Ok(Once {
            left: Vec::new(),
            doubt: None,
        });
    }
    let mut doubt = None;
    let mut writes = Writes::default();
    let mut left = Vec::new();
    let mut taken = Vec::new();
    for back in units {
        page.rows.give_back(back, page.at);
    }
    for &back in units {
        match page.check(&back.part, Of::Window(window_of(back))) {
            Err(error) => doubt = Some(error),
            Ok(()) if writes.take(back, &page) => taken.push(back),
            Ok(()) => left.push(back),
        }
    }
    let changes = writes.told(&page)?;
    let made = backend.make(&changes).await;
    let mut overtaken = HashSet::new();
    for (change, made) in changes.iter().zip(made) {
        match made {
            Ok(true) => {}
            Ok(false) => overtaken.extend(change.writes.iter().map(|write| &write.key)),
            Err(error) => doubt = Some(error),
        }
    }
    let is_overtaken = |back: &&GiveBack| overtaken.contains(&names::of_place(&place_of(back)));
    left.extend(taken.into_iter().filter(is_overtaken));
    Ok(Once { left, doubt })
}

/// Counts what was refused without asking, where it is still counted.
///
/// It only tells, so what may have been counted is not counted again. An error means that nothing was, for certain when it says that it
/// may be tried again.
pub(super) async fn count_refused<R: Records>(
    backend: &mut RecordBackend<R>,
    attempts: &[Attempts],
) -> Result<(), StoreError> {
    let mut left: Vec<&Attempts> = attempts.iter().collect();
    let mut doubt = None;
    let mut has_counted = false;
    let mut failure = conflict();
    for _ in tries() {
        let asked: Vec<_> = left
            .iter()
            .map(|of| (&of.part, Of::Window(of.window_start.unix_millis())))
            .collect();
        let mut page = match backend.read(&asked, &Clock::System).await {
            Ok(page) => page,
            Err(error) => {
                failure = error;
                break;
            }
        };
        let changes = counting(&left, &mut page);
        let mut overtaken = HashSet::new();
        for (change, made) in changes.iter().zip(backend.make(&changes).await) {
            match made {
                Ok(true) => has_counted = true,
                Ok(false) => overtaken.extend(change.writes.iter().map(|write| &write.key)),
                Err(error) => doubt = Some(error),
            }
        }
        left.retain(|of| overtaken.contains(&names::of_place(&place_of_attempts(of))));
        if left.is_empty() {
            break;
        }
    }
    match doubt {
        _ if has_counted => Ok(()),
        Some(error) => Err(in_doubt(error)),
        None if left.is_empty() => Ok(()),
        None => Err(failure),
    }
}

/// The changes that count what was refused, each place for itself.
fn counting(attempts: &[&Attempts], page: &mut Page) -> Vec<RecordChange> {
    for of in attempts {
        page.rows.count_refused(of, &place_of_attempts(of));
    }
    let mut seen = HashSet::new();
    let writes = attempts.iter().filter_map(|of| {
        let write = page.write(&place_of_attempts(of))?;
        seen.insert(write.key.clone()).then_some(write)
    });
    let changes = writes.map(|write| RecordChange {
        writes: vec![write],
    });
    changes.collect()
}

/// An error of a change that may have been made: nobody must make it again.
fn in_doubt(error: StoreError) -> StoreError {
    match error {
        StoreError::Database { source, .. } => StoreError::Database {
            is_transient: false,
            source,
        },
        other => other,
    }
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
        // Of a window that is over it is the next one that has refused since, and more of it may be refused meanwhile.
        let is_over = place.window_start < Place::of(&back.part, page.at).window_start;
        let is_next = is_over && Place::is_one_of_several(&back.part);
        let is_told = is_next || page.rows.has_refused(&place);
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

fn place_of_attempts(of: &Attempts) -> Place {
    Place {
        part: of.part.clone(),
        window_start: of.window_start.unix_millis(),
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
