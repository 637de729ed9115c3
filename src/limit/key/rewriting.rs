//! Keys made of other keys: joined, with other values, with hashes in place of values.

use super::Key;
use super::key_encoding::{
    BEFORE_VALUE, BETWEEN_PARTS, Place, is_hash, read_component, write_component, write_hash,
};
use super::text::Text;

/// What a key knows of the value of one of its parts.
pub(crate) enum StoredValue {
    /// All of it.
    Whole(Vec<u8>),
    /// It was so long that only a hash is left.
    Hash,
}

impl Key {
    /// This key with the parts of another one behind its own.
    pub(crate) fn join(mut self, next: &Key) -> Self {
        self.0.push(BETWEEN_PARTS);
        self.0.push_str(next.as_str());
        self
    }

    /// This key with every value as `change` gives it; `None` when it gives none for one of them.
    pub(crate) fn with_values<E>(
        &self,
        change: impl Fn(StoredValue) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Option<Self>, E> {
        let mut text = Text::new();
        for part in self.as_str().split(BETWEEN_PARTS) {
            let (kind, value) = kind_and_value(part);
            let value = if is_hash(value) {
                StoredValue::Hash
            } else {
                // What `write_component` wrote can be read.
                StoredValue::Whole(read_component(value).unwrap_or_default())
            };
            let Some(value) = change(value)? else {
                return Ok(None);
            };
            begin_part(&mut text, kind);
            write_component(&mut text, &value, Place::Value);
        }
        Ok(Some(Self(text)))
    }

    /// This key with a hash in place of every value, as a long value has one. `hash_of` gets each part as it is stored
    /// in clear, which tells apart what a stored hash and a value that looks like one stand for.
    pub(crate) fn with_hashes<H: AsRef<[u8]>>(&self, hash_of: impl Fn(&str) -> H) -> Self {
        let mut text = Text::new();
        for part in self.as_str().split(BETWEEN_PARTS) {
            begin_part(&mut text, kind_and_value(part).0);
            write_hash(&mut text, hash_of(part).as_ref());
        }
        Self(text)
    }
}

/// Kind and value of a part, as they are written.
fn kind_and_value(part: &str) -> (&str, &str) {
    part.split_once(BEFORE_VALUE).unwrap_or((part, ""))
}

fn begin_part(text: &mut Text, kind: &str) {
    if !text.as_str().is_empty() {
        text.push(BETWEEN_PARTS);
    }
    text.push_str(kind);
    text.push(BEFORE_VALUE);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A key of any parts.
    fn keys() -> impl Strategy<Value = Key> {
        let parts = proptest::collection::vec(
            (".{0,6}", proptest::collection::vec(any::<u8>(), 0..70)),
            1..4,
        );
        parts.prop_map(|parts| {
            let first = Key::new(&parts[0].0, &parts[0].1);
            parts[1..]
                .iter()
                .fold(first, |key, part| key.and(&part.0, &part.1))
        })
    }

    proptest! {
        #[test]
        fn joining_and_adding_a_part_are_one(key in keys(), kind in ".{0,6}", value in ".{0,70}") {
            let part = Key::new(&kind, &value);
            prop_assert_eq!(key.clone().join(&part), key.and(&kind, &value));
        }

        #[test]
        fn values_that_do_not_change_leave_the_key_as_it_is(key in keys()) {
            let is_whole = key.parts().all(|part| part.value().is_some());
            let same = key.with_values(|value| match value {
                StoredValue::Whole(value) => Ok(Some(value)),
                StoredValue::Hash => Err(()),
            });
            prop_assert_eq!(same, if is_whole { Ok(Some(key)) } else { Err(()) });
        }

        #[test]
        fn hashes_are_a_key_of_the_same_kinds(key in keys()) {
            let hashed = key.with_hashes(|_| [7; 32]);
            prop_assert_eq!(hashed.as_str().parse(), Ok(hashed.clone()));
            let kinds = |key: &Key| key.parts().map(|part| part.kind().to_owned()).collect::<Vec<_>>();
            prop_assert_eq!(kinds(&key), kinds(&hashed));
            prop_assert!(hashed.parts().all(|part| part.value().is_none()));
        }
    }

    #[test]
    fn a_value_that_is_taken_away_leaves_no_key() {
        let key = Key::new("user", "alice").and("route", "/");
        let left = key.with_values(|value| match value {
            StoredValue::Whole(value) => Ok::<_, ()>((value != b"/").then_some(value)),
            StoredValue::Hash => Ok(None),
        });
        assert_eq!(left, Ok(None));
    }
}
