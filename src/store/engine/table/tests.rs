//! The table against a map without a bound, and what it does at the bound.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::limit::{Key, Policy};
use crate::store::Rule;

fn part(rule: u8, key: u32) -> Part {
    let policy = Policy::fixed(10, 60);
    let rule = Rule::new(format!("p{rule}"), String::new(), policy);
    Part {
        rule: Arc::new(rule),
        key: Key::new("user", key),
    }
}

fn nothing_goes(_: &Part, _: u32) {
    panic!("there was room");
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Part, u32),
    Remove(Part),
    KeepOdd,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let parts = (0..2_u8, 0..40_u32).prop_map(|(rule, key)| part(rule, key));
    let step = prop_oneof![
        8 => (parts.clone(), any::<u32>()).prop_map(|(part, value)| Step::Insert(part, value)),
        4 => parts.prop_map(Step::Remove),
        1 => Just(Step::KeepOdd),
    ];
    prop::collection::vec(step, 0..300)
}

/// Room for all of the steps' keys, should they be in one shard.
const ROOM_FOR_ALL: usize = 80 * SHARDS;

proptest! {
    #[test]
    fn each_key_is_there_or_was_handed_out_once(
        steps in steps(),
        max_keys in prop_oneof![1..100_usize, Just(ROOM_FOR_ALL)],
    ) {
        let table = Table::default();
        table.set_max_keys(max_keys);
        let mut model = HashMap::new();
        for step in steps {
            match step {
                Step::Insert(part, value) => {
                    let mut gone = Vec::new();
                    table.lock(&part).insert(value, |part, value| gone.push((part.clone(), value)));
                    prop_assert!(max_keys < ROOM_FOR_ALL || gone.iter().all(|(gone, _)| *gone == part));
                    for (part, value) in gone {
                        prop_assert_eq!(model.remove(&part), Some(value));
                    }
                    model.insert(part, value);
                }
                Step::Remove(part) => {
                    prop_assert_eq!(table.lock(&part).remove(), model.remove(&part));
                }
                Step::KeepOdd => {
                    table.retain(|_, value| *value % 2 == 1);
                    model.retain(|_, value| *value % 2 == 1);
                }
            }
            prop_assert_eq!(table.len(), model.len());
            prop_assert!(table.len() <= table.max_keys());
        }
        for (part, value) in &model {
            let known = table.lock(part).get().copied();
            prop_assert_eq!(known, Some(*value));
        }
    }
}

#[test]
fn keys_that_are_used_outlast_those_that_are_not() {
    let table = Table::default();
    table.set_max_keys(16 * SHARDS);
    let used: Vec<_> = (0..16).map(|key| part(0, key)).collect();
    for part in &used {
        table.lock(part).insert(0, nothing_goes);
    }
    for key in 0..10_000 {
        let new = part(1, key);
        table.lock(&new).insert(0, |_, _| ());
        for part in &used {
            assert!(table.lock(part).get_mut().is_some(), "{key}");
        }
    }
}

/// In a flood of keys one that came a moment ago may come again.
#[test]
fn a_new_key_is_not_the_next_to_go() {
    let table = Table::default();
    table.set_max_keys(64 * SHARDS);
    let mut age = 0;
    for key in 0..10_000 {
        table
            .lock(&part(0, key))
            .insert(key, |_, gone| age += key - gone);
    }
    let gone = 10_000 - u32::try_from(table.len()).unwrap();
    assert!(age / gone > 900, "{}", age / gone);
}

#[test]
fn a_lower_bound_holds_for_a_shard_that_is_written_to() {
    let table = Table::default();
    for key in 0..10_000 {
        table.lock(&part(0, key)).insert(0, nothing_goes);
    }
    assert_eq!(table.len(), 10_000);
    table.set_max_keys(100);
    for key in 10_000..11_000 {
        table.lock(&part(0, key)).insert(0, |_, _| ());
    }
    assert!(table.len() <= 100);
}
