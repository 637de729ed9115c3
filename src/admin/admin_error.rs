//! Why an admin API can't be built.

use std::error::Error;
use std::fmt;

use crate::limit::Mistake;

const ADMIN_NAME_TWICE: Mistake = Mistake("admin-name-twice");

/// Why an [`Admin`](crate::Admin) API can't be built.
///
/// [`fmt::Debug`] says the same as [`fmt::Display`]: it is what `main` and `unwrap` print.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdminError {
    /// Two policies of this name count apart: on different stores, by different algorithms or windows, or without a store.
    NameTwice(String),
}

impl AdminError {
    /// The stable name of the mistake, under which the page `docs/errors.md` tells the cure.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::NameTwice(_) => ADMIN_NAME_TWICE.0,
        }
    }
}

impl fmt::Debug for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameTwice(name) => write!(
                f,
                "two policies of the admin API are named {name} and count apart, so that nobody could tell which is meant: give them names of their own with .name(\"…\") {ADMIN_NAME_TWICE}"
            ),
        }
    }
}

impl Error for AdminError {}
