//! The names of mistakes in a set-up.

use std::fmt;

/// The stable name of a mistake in a set-up, in kebab case: `zero-window`. `docs/errors.md` tells the cure under it.
///
/// Shown, it stands in brackets at the end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mistake(pub(crate) &'static str);

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]", self.0)
    }
}
