//! Databases that do not do what they must: the suite of records finds it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::yield_now;

use tollgate::__suite::{self as suite, Shared};

use super::*;

/// What is wrong with a database.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// It writes whatever a record was.
    NeverCompares,
    /// It compares, and others write before it does.
    ComparesBefore,
    /// It looks only at what is to be written.
    ComparesNoneThatStays,
    /// It writes one record after another, up to the first that is not what it was.
    WritesHalf,
    /// It makes no change of a call of which one is not made.
    JoinsChanges,
    /// It sorts as people do.
    SortsByLetters,
    /// It lists what it was to begin after.
    ListsBounds,
    /// It leaves out records that are not there.
    ReadsNoGaps,
}

#[derive(Clone)]
struct Broken {
    database: Database,
    fault: Fault,
}

impl Broken {
    /// How a change would be written by such a database: as changes that the one beneath makes right.
    fn translated(&self, change: &RecordChange) -> Vec<Vec<Written>> {
        let state = self.database.lock();
        let writes = change.writes().iter();
        let value = |write: &RecordWrite| state.records.get(write.key()).cloned();
        let written = writes.map(|write| Written {
            key: write.key().to_owned(),
            before: write.before().map(str::to_owned),
            after: write.after().map(str::to_owned),
            found: value(write),
        });
        let mut written: Vec<_> = written.collect();
        match self.fault {
            Fault::NeverCompares => {
                for write in &mut written {
                    write.before.clone_from(&write.found);
                }
            }
            Fault::ComparesNoneThatStays => written.retain(|write| write.before != write.after),
            Fault::WritesHalf => return written.into_iter().map(|write| vec![write]).collect(),
            _ => {}
        }
        vec![written]
    }

    fn write(&self, written: &[Written]) {
        let records = &mut self.database.lock().records;
        for write in written {
            match &write.after {
                Some(value) => records.insert(write.key.clone(), value.clone()),
                None => records.remove(&write.key),
            };
        }
    }
}

struct Written {
    key: String,
    before: Option<String>,
    after: Option<String>,
    found: Option<String>,
}

impl Records for Broken {
    async fn read(&mut self, keys: &[String]) -> Result<ReadRecords, StoreError> {
        let state = self.database.lock();
        let values = keys.iter().map(|key| state.records.get(key).cloned());
        Ok(ReadRecords::new(match self.fault {
            Fault::ReadsNoGaps => values.flatten().map(Some).collect(),
            _ => values.collect(),
        }))
    }

    async fn change(&mut self, changes: &[RecordChange]) -> Vec<Result<bool, StoreError>> {
        let is_as_read =
            |written: &Vec<Written>| written.iter().all(|write| write.found == write.before);
        let translated: Vec<_> = changes
            .iter()
            .map(|change| self.translated(change))
            .collect();
        let is_whole = translated.iter().flatten().all(is_as_read);
        let mut answers = Vec::new();
        for steps in &translated {
            let is_left_out = self.fault == Fault::JoinsChanges && !is_whole;
            let made = steps
                .iter()
                .take_while(|step| !is_left_out && is_as_read(step));
            let made: Vec<_> = made.collect();
            if self.fault == Fault::ComparesBefore {
                (0..100).for_each(|_| yield_now());
            }
            for step in &made {
                self.write(step);
            }
            answers.push(Ok(made.len() == steps.len()));
        }
        answers
    }

    async fn list(
        &mut self,
        after: &str,
        before: &str,
        most: usize,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let state = self.database.lock();
        let is_listed = |key: &str| match self.fault {
            Fault::ListsBounds => after <= key && key < before,
            _ => after < key && key < before,
        };
        let records = state.records.iter().filter(|(key, _)| is_listed(key));
        let mut records: Vec<_> = records
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if self.fault == Fault::SortsByLetters {
            records.sort_by_key(|(key, _)| key.to_lowercase());
        }
        records.truncate(most);
        Ok(records)
    }
}

/// Whether a test of the suite fails on a new database of that fault.
fn finds<F: Fn() -> Broken>(fault: Fault, open: impl Fn(Fault) -> F, test: fn(&Shared<F>)) -> bool {
    catch_unwind(AssertUnwindSafe(|| {
        test(&Shared::new(async || open(fault)));
    }))
    .is_err()
}

fn open(fault: Fault) -> impl Fn() -> Broken {
    let database = Database::default();
    move || Broken {
        database: database.clone(),
        fault,
    }
}

#[test]
fn a_change_that_never_compares_is_found() {
    let fault = Fault::NeverCompares;
    assert!(finds(
        fault,
        open,
        suite::a_record_changes_only_if_it_is_what_it_was
    ));
    assert!(finds(
        fault,
        open,
        suite::a_record_is_deleted_only_if_it_is_what_it_was
    ));
    assert!(finds(
        fault,
        open,
        suite::nothing_is_lost_of_what_many_change_at_once
    ));
}

#[test]
fn a_change_that_compares_before_others_write_is_found() {
    let fault = Fault::ComparesBefore;
    assert!(finds(
        fault,
        open,
        suite::nothing_is_lost_of_what_many_change_at_once
    ));
}

#[test]
fn a_change_that_compares_only_what_it_writes_is_found() {
    let fault = Fault::ComparesNoneThatStays;
    assert!(finds(
        fault,
        open,
        suite::a_record_that_stays_is_needed_as_it_was
    ));
}

#[test]
fn half_a_change_is_found() {
    let fault = Fault::WritesHalf;
    assert!(finds(
        fault,
        open,
        suite::a_change_is_made_whole_or_not_at_all
    ));
}

#[test]
fn changes_that_are_made_together_are_found() {
    let fault = Fault::JoinsChanges;
    assert!(finds(
        fault,
        open,
        suite::each_change_of_a_call_is_made_for_itself
    ));
}

#[test]
fn another_order_and_other_bounds_are_found() {
    for fault in [Fault::SortsByLetters, Fault::ListsBounds] {
        assert!(
            finds(
                fault,
                open,
                suite::records_are_listed_in_the_order_of_their_bytes
            ),
            "{fault:?}"
        );
    }
}

#[test]
fn values_in_other_places_than_their_keys_are_found() {
    let fault = Fault::ReadsNoGaps;
    assert!(finds(
        fault,
        open,
        suite::records_are_read_each_in_its_keys_place
    ));
}
