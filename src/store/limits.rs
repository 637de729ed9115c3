//! Limits that are set at run time, as a store is asked for them.

use crate::limit::{Key, StoredLimit, Timestamp};

/// A limit that is to be set, or removed.
#[derive(Clone, Debug)]
pub(crate) struct SetLimit {
    /// What the limits of the policy are filed under; see `Rule::limits`.
    pub(crate) filed_under: String,
    /// `None` is the policy itself: all keys without a limit of their own.
    pub(crate) key: Option<Key>,
    /// `None` removes it.
    pub(crate) limit: Option<NewLimit>,
    pub(crate) now: Timestamp,
}

/// A limit, as it is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewLimit {
    /// `None` when there is no limit.
    pub(crate) units: Option<u32>,
    pub(crate) ends_at: Option<Timestamp>,
}

impl SetLimit {
    /// As the limit of the policy itself is filed: no key is an empty text.
    pub(crate) const OF_ALL: &str = "";

    /// The text of the key, as the limit is filed.
    pub(crate) fn key_text(&self) -> &str {
        self.key.as_ref().map_or(Self::OF_ALL, Key::as_str)
    }
}

/// Which limits are asked for. Those that have ended are none.
#[derive(Clone, Debug)]
pub(crate) struct LimitsAsk {
    pub(crate) filed_under: String,
    pub(crate) which: Which,
    pub(crate) now: Timestamp,
}

/// Which of the limits of a policy.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    /// That of a key, or with `None` of the policy itself.
    Of(Option<Key>),
    /// Those of keys, in the order of their texts.
    Keys { after: Option<Key>, most: u32 },
}

/// What was asked for.
pub(crate) type Limits = Vec<StoredLimit>;
