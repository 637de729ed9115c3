//! Which key a request has: always the same, or one of many.

use clap::ValueEnum;

/// The header that carries the key.
pub(crate) const HEADER: &str = "x-client-key";

const MANY: usize = 10_000;

/// How many keys there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Keys {
    One,
    Many,
}

impl Keys {
    /// The value of every key.
    pub(crate) fn values(self) -> Vec<String> {
        let count = match self {
            Self::One => 1,
            Self::Many => MANY,
        };
        (0..count)
            .map(|index| format!("client-{index:05}"))
            .collect()
    }

    /// The name that the command line knows it by.
    pub(crate) fn argument(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Many => "many",
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::One => "1 key",
            Self::Many => "10,000 keys",
        }
    }
}

/// Goes through the keys in an order that looks random, and is the same in each run.
pub(crate) struct Picker {
    state: u64,
    count: u64,
}

impl Picker {
    /// A picker of one connection, among `count` keys.
    pub(crate) fn new(connection: usize, count: usize) -> Self {
        // An odd factor, so that no connection starts at 0, where xorshift would stay.
        let state = (connection as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            state,
            count: count as u64,
        }
    }

    /// The index of the next key.
    pub(crate) fn pick(&mut self) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        // The upper half, times the count: as good as a remainder, without the division.
        let index = ((self.state >> 32) * self.count) >> 32;
        usize::try_from(index).unwrap_or(0)
    }
}
