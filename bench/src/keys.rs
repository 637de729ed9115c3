//! Which key a request has: always the same, or one of many.

use std::fmt::Display;

/// The header that carries the key.
pub(crate) const HEADER: &str = "x-client-key";

const MANY: u32 = 10_000;
/// As many digits as the last of so many keys has, and the first ones are filled up to.
const DIGITS: usize = 5;

/// How many keys there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    One,
    /// 10,000.
    Many,
    /// So many.
    Of(u32),
}

impl Keys {
    pub(crate) fn count(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Many => MANY,
            Self::Of(count) => count,
        }
    }

    /// The value of a key. All of them are equally long.
    pub(crate) fn value(self, index: usize) -> String {
        let digits = self.digits();
        format!("client-{index:0digits$}")
    }

    /// The value of every key.
    pub(crate) fn values(self) -> Vec<String> {
        (0..self.count())
            .map(|index| self.value(index as usize))
            .collect()
    }

    pub(crate) fn label(self) -> String {
        match self.count() {
            1 => "1 key".to_owned(),
            count => format!("{} keys", grouped(count)),
        }
    }

    /// The length of the number that each value ends with.
    pub(crate) fn digits(self) -> usize {
        let last = self.count().saturating_sub(1);
        last.to_string().len().max(DIGITS)
    }
}

/// A whole number with commas between the thousands.
pub(crate) fn grouped(number: impl Display) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_keys_are_equally_long() {
        assert_eq!(Keys::Many.value(7), "client-00007");
        assert_eq!(Keys::Of(1_000_000).value(7), "client-000007");
        assert_eq!(Keys::Of(1_000_000).value(999_999), "client-999999");
    }

    #[test]
    fn thousands_are_grouped() {
        let grouped = [7, 999, 1_000, 10_000, 1_000_000].map(grouped);
        assert_eq!(grouped, ["7", "999", "1,000", "10,000", "1,000,000"]);
    }
}
