//! Records in memory, and what a store in them promises.

mod faults;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tollgate::{
    ManualClock, ReadRecords, RecordChange, RecordStore, RecordWrite, Records, StoreError,
    Timestamp,
};

/// A database that several stores share.
#[derive(Clone, Debug, Default)]
struct Database(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    records: BTreeMap<String, String>,
    reads: usize,
    changes: usize,
    /// The most records that one change had.
    longest: usize,
    /// Others change the same records, so that every other attempt fails.
    is_contended: bool,
    now: Option<Timestamp>,
    fails_reading: bool,
    /// Changes with a key that has this fail.
    fails: Option<&'static str>,
}

impl Database {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn store(&self) -> RecordStore {
        RecordStore::new("test", self.clone()).deadline(Duration::from_secs(10))
    }
}

impl Records for Database {
    async fn read(&mut self, keys: &[String]) -> Result<ReadRecords, StoreError> {
        let mut state = self.lock();
        state.reads += 1;
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
        let state = &mut *self.lock();
        state.changes += 1;
        let lengths = changes.iter().map(|change| change.writes().len());
        state.longest = lengths.chain([state.longest]).max().unwrap();
        let is_overtaken = state.is_contended && state.changes % 2 == 1;
        let mut make = |change: &RecordChange| {
            let mut keys = change.writes().iter().map(RecordWrite::key);
            if let Some(fails) = state.fails
                && keys.any(|key| key.contains(fails))
            {
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
        let state = self.lock();
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

mod contended {
    use super::*;

    tollgate::store_suite!(async |clock| {
        let database = Database::default();
        database.lock().is_contended = true;
        (database.store().clock(&clock), ())
    });
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
