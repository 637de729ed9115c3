//! Why a store gave no answer.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::limit::Mistake;

const KEY_COUNT: Mistake = Mistake("key-count");
const KEYS_APART: Mistake = Mistake("keys-apart");
const FOREIGN_DECISION: Mistake = Mistake("foreign-decision");
const UNKNOWN_POLICY: Mistake = Mistake("unknown-policy");
const ENDED_LIMIT: Mistake = Mistake("ended-limit");
const LONG_KEY: Mistake = Mistake("long-key");

/// Why a store gave no answer. A refusal is an answer, not an error.
///
/// A charge that ends in an error may have been counted (a commit whose answer came too late), never the other way
/// round: what was answered "allowed" is stored. No message holds a key, SQL, or a path.
///
/// [`fmt::Debug`] says the same as [`fmt::Display`]: it is what `main` and `unwrap` print.
#[derive(Clone)]
#[non_exhaustive]
pub enum StoreError {
    /// The store was closed.
    Closed,
    /// More charges wait than the store's queue holds: 8,192.
    Overloaded,
    /// The store did not answer within its deadline.
    DeadlineExceeded,
    /// The store failed, or was late, several times in a row, and is not asked until it is tried again: within a second.
    BreakerOpen,
    /// The cap on rows or keys is reached, and all that are kept belong to keys that were refused or are in use.
    Full,
    /// More keys than 262,144 have used something on the days of which the usage by key was asked.
    TooManyKeys,
    /// A limiter of several policies was given several keys, but not one for each of them. The store was not asked.
    KeyCount {
        /// How many keys were given.
        keys: usize,
        /// How many policies there are.
        policies: usize,
    },
    /// A limiter of several policies was given different keys, and its store is a cluster of Redis, whose nodes decide apart. Nothing was
    /// charged.
    KeysApart,
    /// A decision was to be refunded that is not about this limiter's counters. Nothing was given back.
    ForeignDecision,
    /// A limit was to be set, read or removed, or keys were to be reset, of a policy that this limiter does not have. The name is shortened to 80 characters.
    UnknownPolicy(String),
    /// A limit was to be set whose end is not later than now. Nothing was set.
    EndedLimit,
    /// A limit was to be set for a key whose text is longer than 1,024 bytes. Nothing was set.
    LongKey,
    /// The store's thread panicked over this batch. The store goes on with the next one.
    Panicked,
    /// The database reported an error, or can't be opened again.
    Database {
        /// Whether the same call may succeed later without anybody's help: the database was locked, say.
        is_transient: bool,
        /// What the database said.
        source: Arc<dyn Error + Send + Sync>,
    },
}

impl StoreError {
    /// Whether the same call may succeed later without anybody's help.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Closed
            | Self::TooManyKeys
            | Self::KeyCount { .. }
            | Self::KeysApart
            | Self::ForeignDecision
            | Self::UnknownPolicy(_)
            | Self::EndedLimit
            | Self::LongKey => false,
            Self::Overloaded
            | Self::DeadlineExceeded
            | Self::BreakerOpen
            | Self::Full
            | Self::Panicked => true,
            Self::Database { is_transient, .. } => *is_transient,
        }
    }

    /// The stable name of the mistake, under which the page `docs/errors.md` tells the cure, when it is one of the set-up:
    /// `key-count`.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        match self {
            Self::KeyCount { .. } => Some(KEY_COUNT.0),
            Self::KeysApart => Some(KEYS_APART.0),
            Self::ForeignDecision => Some(FOREIGN_DECISION.0),
            Self::UnknownPolicy(_) => Some(UNKNOWN_POLICY.0),
            Self::EndedLimit => Some(ENDED_LIMIT.0),
            Self::LongKey => Some(LONG_KEY.0),
            _ => None,
        }
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        match self.source() {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KeyCount { keys, policies } => {
                return write!(
                    f,
                    "{keys} keys were given for {policies} policies of a rate limit: give one key for all, or one for each {KEY_COUNT}"
                );
            }
            Self::KeysApart => {
                return write!(
                    f,
                    "the policies of a rate limit were given different keys, and the nodes of a Redis cluster can't decide about several keys together: give one key, or charge a limiter for each {KEYS_APART}"
                );
            }
            Self::ForeignDecision => {
                return write!(
                    f,
                    "the decision was made by a rate limit with other counters: refund it by the limiter that has made it {FOREIGN_DECISION}"
                );
            }
            Self::UnknownPolicy(name) => {
                return write!(
                    f,
                    "the rate limit has no policy of the name {name:?}: give one of those that it was built with {UNKNOWN_POLICY}"
                );
            }
            Self::EndedLimit => {
                return write!(
                    f,
                    "the limit has ended when it begins: give an end that is still to come, or none {ENDED_LIMIT}"
                );
            }
            Self::LongKey => {
                return write!(
                    f,
                    "the key is longer than 1024 bytes as it is stored: set limits for keys with fewer parts {LONG_KEY}"
                );
            }
            Self::Closed => "the rate limit store is closed: open it again, or drop the layers that use it",
            Self::Overloaded => "the rate limit store's queue is full: it gets more charges than it can write",
            Self::DeadlineExceeded => {
                "the rate limit store did not answer in time: look for a process that holds its database locked, a slow disk, or a server that is overloaded or far away"
            }
            Self::BreakerOpen => {
                "the rate limit store failed several times in a row and is not asked for a moment: look for the error before this one"
            }
            Self::Full => {
                "the rate limit store holds as many keys as its cap allows, and none of them may go: use a store with a larger cap, or a file"
            }
            Self::TooManyKeys => "more than 262144 keys have used something on these days: ask for fewer days",
            Self::Panicked => "the rate limit store's thread panicked: this is a fault in it",
            Self::Database { .. } => "the rate limit store's database failed",
        })
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Database { source, .. } => Some(source),
            _ => None,
        }
    }
}
