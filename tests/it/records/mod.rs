//! Records in memory, and what a store in them promises.

mod broken;
mod doubts;
mod faults;
mod pairs;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tollgate::{
    FailureMode, Key, Limiter, ManualClock, Policies, Policy, ReadRecords, RecordChange,
    RecordStore, RecordWrite, Records, StoreError, Timestamp,
};

/// A database that several stores share.
#[derive(Clone, Debug, Default)]
struct Database(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    records: BTreeMap<String, String>,
    reads: usize,
    /// Reads of what tells how much was told to others, and of nothing else.
    looks: usize,
    changes: usize,
    /// The most records that one change had.
    longest: usize,
    /// Others change the same records, so that every other attempt fails.
    is_contended: bool,
    now: Option<Timestamp>,
    fails_reading: bool,
    /// Changes with a key that has this fail, and how many have.
    fails: Option<&'static str>,
    failed: usize,
    /// What fails is made all the same: only its answer is lost.
    is_made_unheard: bool,
    /// The next change of a counter says that it has come, and waits until it may go on.
    gate: Option<(Sender<()>, Receiver<()>)>,
    /// Ranges that end where they begin, or before.
    odd_ranges: usize,
}

impl Database {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn store(&self) -> RecordStore {
        RecordStore::new("test", self.clone()).deadline(Duration::from_secs(10))
    }

    fn wait_at_gate(&self, changes: &[RecordChange]) {
        let mut writes = changes.iter().flat_map(RecordChange::writes);
        if !writes.any(|write| write.key().starts_with("count")) {
            return;
        }
        let gate = self.lock().gate.take();
        if let Some((came, go)) = gate {
            came.send(()).unwrap();
            go.recv().unwrap();
        }
    }
}

impl Records for Database {
    async fn read(&mut self, keys: &[String]) -> Result<ReadRecords, StoreError> {
        let mut state = self.lock();
        state.reads += 1;
        state.looks += usize::from(matches!(keys, [key] if key == "changes"));
        if state.fails_reading {
            return Err(failure());
        }
        let values = keys.iter().map(|key| state.records.get(key).cloned());
        let read = ReadRecords::new(values.collect());
        Ok(match state.now {
            Some(now) => read.at(now),
            None => read,
        })
    }

    async fn change(&mut self, changes: &[RecordChange]) -> Vec<Result<bool, StoreError>> {
        self.wait_at_gate(changes);
        let state = &mut *self.lock();
        state.changes += 1;
        let lengths = changes.iter().map(|change| change.writes().len());
        state.longest = lengths.chain([state.longest]).max().unwrap();
        let is_overtaken = state.is_contended && state.changes % 2 == 1;
        let mut make = |change: &RecordChange| {
            let mut keys = change.writes().iter().map(RecordWrite::key);
            let fails = state
                .fails
                .is_some_and(|text| keys.any(|key| key.contains(text)));
            state.failed += usize::from(fails);
            if fails && !state.is_made_unheard {
                return Err(failure());
            }
            let records = &mut state.records;
            let mut writes = change.writes().iter();
            let is_as_read = writes.all(|write| {
                let value = records.get(write.key()).map(String::as_str);
                value == write.before()
            });
            for write in change.writes() {
                if !is_as_read || is_overtaken {
                    continue;
                }
                match write.after() {
                    Some(value) => records.insert(write.key().to_owned(), value.to_owned()),
                    None => records.remove(write.key()),
                };
            }
            if fails {
                return Err(failure());
            }
            Ok(is_as_read && !is_overtaken)
        };
        changes.iter().map(&mut make).collect()
    }

    async fn list(
        &mut self,
        after: &str,
        before: &str,
        most: usize,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let mut state = self.lock();
        if after >= before {
            state.odd_ranges += 1;
            return Ok(Vec::new());
        }
        let range = (Bound::Excluded(after), Bound::Excluded(before));
        let records = state.records.range::<str, _>(range).take(most);
        Ok(records
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect())
    }
}

mod in_memory {
    use super::*;

    tollgate::store_suite!(async |clock| (Database::default().store().clock(&clock), ()));
}

mod shared {
    use super::*;

    tollgate::records_suite!(async || {
        let database = Database::default();
        move || database.clone()
    });
}

mod contended {
    use super::*;

    tollgate::store_suite!(async |clock| {
        let database = Database::default();
        database.lock().is_contended = true;
        (database.store().clock(&clock), ())
    });
}

fn user(n: usize) -> Key {
    Key::new("user", n)
}

fn api(limit: u32) -> Policy {
    Policy::fixed(limit, 60).name("api")
}

fn limiter(policies: impl Into<Policies>, store: &RecordStore) -> Limiter {
    let limiter = Limiter::new(policies).store(store);
    limiter.on_store_failure(FailureMode::Closed)
}

/// Asks for one unit after another, and counts those that are had.
async fn passed(limiter: &Limiter, key: &Key, times: usize) -> usize {
    let mut passed = 0;
    for _ in 0..times {
        passed += usize::from(limiter.check(key).await.unwrap().is_allowed());
    }
    passed
}

fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_unix_millis(0))
}

fn failure() -> StoreError {
    StoreError::Database {
        is_transient: true,
        source: Arc::new(std::io::Error::other("as the test wants it")),
    }
}
