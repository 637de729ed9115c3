//! A text that needs no allocation while it is short.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use arrayvec::ArrayString;

/// An address and its kind, a header and its name, a short user id: they fit without an allocation.
const INLINE: usize = 44;

/// A text that needs no allocation while it is short.
#[derive(Clone)]
pub(super) enum Text {
    Inline(ArrayString<INLINE>),
    Heap(String),
}

impl Text {
    pub(super) fn new() -> Self {
        Self::Inline(ArrayString::new())
    }

    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Inline(text) => text,
            Self::Heap(text) => text,
        }
    }

    pub(super) fn push(&mut self, char: char) {
        self.push_str(char.encode_utf8(&mut [0; 4]));
    }

    pub(super) fn push_str(&mut self, more: &str) {
        match self {
            Self::Inline(text) => {
                if text.try_push_str(more).is_err() {
                    *self = Self::Heap([text.as_str(), more].concat());
                }
            }
            Self::Heap(text) => text.push_str(more),
        }
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        self.push_str(more);
        Ok(())
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Text {}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}
