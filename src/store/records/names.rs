//! What records are called. Stored data hangs on it.
//!
//! A tab joins what a name is made of. No counter and no key has one, and what sorts right after it is a line feed.

use crate::store::Part;
use crate::store::memory::Place;

/// Of the record that tells how many changes there were.
pub(super) const CHANGES: &str = "changes";
/// All records are between these.
pub(super) const FIRST: &str = "";
pub(super) const LAST: &str = "~";

pub(super) fn of_place(place: &Place) -> String {
    let (counter, key) = (&place.part.rule.counter, place.part.key.as_str());
    format!("count\t{counter}\t{key}\t{}", place.window_start)
}

/// The key and the window of the record of a place.
pub(super) fn key_and_window(name: &str) -> Option<(&str, i64)> {
    let mut fields = name.split('\t').skip(2);
    let key = fields.next()?;
    Some((key, fields.next()?.parse().ok()?))
}

/// The two texts between which the records of one key are.
pub(super) fn around_key(part: &Part) -> (String, String) {
    let (counter, key) = (&part.rule.counter, part.key.as_str());
    let of_key = format!("count\t{counter}\t{key}");
    (format!("{of_key}\t"), format!("{of_key}\n"))
}

/// The two texts between which the records of the keys after one text, and before another, are.
pub(super) fn between_keys(part: &Part, after: &str, before: &str) -> (String, String) {
    let of_counter = format!("count\t{}\t", part.rule.counter);
    (
        format!("{of_counter}{after}\n"),
        format!("{of_counter}{before}"),
    )
}

/// Of the limit of a key, or with an empty text of all keys.
pub(super) fn of_limit(filed_under: &str, key: &str) -> String {
    format!("limit\t{filed_under}\t{key}")
}

/// The two texts between which the limits of keys after one are.
pub(super) fn limits_after(filed_under: &str, key: &str) -> (String, String) {
    (
        of_limit(filed_under, key),
        format!("limit\t{filed_under}\n"),
    )
}

/// The names of what is told to others begin so.
const CHANGE: &str = "change\t";

pub(super) fn is_of_change(name: &str) -> bool {
    name.starts_with(CHANGE)
}

pub(super) fn of_change(number: i64) -> String {
    format!("{CHANGE}{number:019}")
}
