//! Things that are in several slots of a cluster, slot by slot. In one server all are in one.

use std::collections::HashMap;

use super::names::Names;
use super::plan::Kind;
use super::slots::slot_of;
use crate::limit::Timestamp;
use crate::store::Part;

/// Things of one slot, and their places among all.
pub(super) struct Group<T> {
    pub(super) slot: u16,
    pub(super) things: Vec<T>,
    pub(super) places: Vec<usize>,
}

/// Sorts things by what they have in common, in the order in which that comes first.
pub(super) fn grouped<T>(
    things: impl IntoIterator<Item = T>,
    slot: impl Fn(&T) -> u16,
) -> Vec<Group<T>> {
    let mut groups: Vec<Group<T>> = Vec::new();
    let mut by_slot = HashMap::new();
    for (place, thing) in things.into_iter().enumerate() {
        let slot = slot(&thing);
        let group = *by_slot.entry(slot).or_insert_with(|| {
            groups.push(Group {
                slot,
                things: Vec::new(),
                places: Vec::new(),
            });
            groups.len() - 1
        });
        groups[group].things.push(thing);
        groups[group].places.push(place);
    }
    groups
}

/// The slot of all counters of a part's key.
pub(super) fn slot_of_part(names: &Names, part: &Part) -> u16 {
    slot_of(&names.of(part))
}

/// What a counter is called in the server, as far as an instant tells that.
pub(super) fn declared(part: &Part, name: &str, at: Timestamp) -> Vec<String> {
    let of = |start: Timestamp| format!("{name}:{}", super::names::instant(start));
    match Kind::of(part) {
        Kind::Window | Kind::Month => vec![of(part.span(at).start)],
        Kind::Pair => vec![of(part.span(at).start), of(part.span_before(at).start)],
        Kind::Log | Kind::Bucket | Kind::Block => vec![name.to_owned()],
    }
}
