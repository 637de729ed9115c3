//! A limit as it is stored.

use super::Limit;
use crate::limit::{Key, Timestamp};

/// A limit that was set at run time, and whose it is: see [`Limiter::stored_limit`](crate::Limiter::stored_limit).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLimit {
    key: Option<Key>,
    limit: Limit,
    ends_at: Option<Timestamp>,
}

impl StoredLimit {
    pub(crate) fn new(key: Option<Key>, limit: Limit, ends_at: Option<Timestamp>) -> Self {
        Self {
            key,
            limit,
            ends_at,
        }
    }

    /// The key; `None` when it is of the policy, for all keys without one of their own.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// The limit, without its end.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// From when on it is as if it had not been set; `None` when it does not end.
    #[must_use]
    pub fn ends_at(&self) -> Option<Timestamp> {
        self.ends_at
    }

    /// Whether it is over.
    pub(crate) fn has_ended(&self, now: Timestamp) -> bool {
        self.ends_at.is_some_and(|ends_at| ends_at <= now)
    }
}
