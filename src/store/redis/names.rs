//! How counters are named in Redis: text that an operator can read, of which all of one key lie in one slot of a cluster.
//!
//! `tollgate:api;fixed;60s:{ip:203.0.113.7}:1700000040000` is the prefix, the counter, the key as the hash tag, and the start of
//! its window where it has one.

use crate::limit::Timestamp;
use crate::store::Part;

/// The ends of time as scripts have them, in milliseconds: whole numbers far beyond are no longer exact there.
const LAST: i64 = 1 << 52;

/// Makes names under a prefix, which has no braces.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        let prefix = prefix.to_owned();
        Self { prefix }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// What the names of a counter begin with. Windows have the start behind it.
    pub(super) fn of(&self, part: &Part) -> String {
        self.of_texts(&part.rule.counter, part.key.as_str())
    }

    pub(super) fn of_texts(&self, counter: &str, key: &str) -> String {
        // An empty hash tag would be none; no key begins with a bare `%`.
        let escape = if key.starts_with('}') { "%" } else { "" };
        format!("{}{counter}:{{{escape}{key}}}", self.prefix)
    }

    /// A name in the slot of what is not of a single key.
    pub(super) fn shared(&self) -> String {
        format!("{}{{shared}}:changes", self.prefix)
    }

    /// The pattern of all names of a counter whose key begins with a text.
    pub(super) fn pattern(&self, counter: &str, from: &str) -> String {
        let mut pattern = String::new();
        let escape = if from.starts_with('}') { "%" } else { "" };
        for text in [&self.prefix, counter, ":{", escape, from] {
            for char in text.chars() {
                if "*?[]\\^-".contains(char) {
                    pattern.push('\\');
                }
                pattern.push(char);
            }
        }
        pattern.push('*');
        pattern
    }

    /// The key in a name of a counter.
    pub(super) fn key_in<'a>(&self, counter: &str, name: &'a str) -> Option<&'a str> {
        let rest = name.strip_prefix(&*self.prefix)?.strip_prefix(counter)?;
        let rest = rest.strip_prefix(":{")?;
        let (key, _) = rest.rsplit_once('}')?;
        Some(
            key.strip_prefix('%')
                .filter(|key| key.starts_with('}'))
                .unwrap_or(key),
        )
    }
}

/// An instant as scripts have it.
pub(super) fn instant(at: Timestamp) -> i64 {
    at.unix_millis().clamp(-LAST, LAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_whose_counter_it_is() {
        let names = Names::new("tollgate:");
        let name = names.of_texts("api;fixed;60s", "ip:203.0.113.7");
        assert_eq!(name, "tollgate:api;fixed;60s:{ip:203.0.113.7}");
        for key in ["ip:203.0.113.7", "a:}", "}:", "}}:{}", "a:{b}:1"] {
            let name = names.of_texts("c", key) + ":1700000000000";
            assert_eq!(names.key_in("c", &name), Some(key));
        }
        assert_eq!(names.key_in("other", &name), None);
    }

    #[test]
    fn a_pattern_takes_nothing_else_for_what_it_means() {
        let names = Names::new("a*:");
        assert_eq!(names.pattern("c", "k:[?]"), "a\\*:c:{k:\\[\\?\\]*");
    }
}
