//! `RateLimit`, `RateLimit-Policy` and `Retry-After`.
//!
//! All values are structured fields (RFC 9651): a name is a string of the alphabet that [`Policy`] allows, numbers have at
//! most 15 digits.

use std::time::Duration;

use arrayvec::ArrayString;
use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

use super::x_rate_limit::{self, write_x_rate_limit};
use super::{Dialect, PartitionKey, ResetFormat};
use crate::limit::timestamp::seconds_ceil;
use crate::limit::{Decision, Policy, Verdict};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// How a layer writes the fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    pub(crate) dialect: Dialect,
    pub(crate) partition_key: Option<PartitionKey>,
    pub(crate) x_rate_limit: Option<ResetFormat>,
}

impl Fields {
    /// Appends both list fields: those of a limit further inside stay in front. `X-RateLimit-*` come beside them. Of a policy
    /// that does not limit the key nothing is told. `policy` is the field of all of the decision's policies, when it is known.
    pub(crate) fn write(
        &self,
        headers: &mut HeaderMap,
        decision: &Decision,
        policy: Option<HeaderValue>,
    ) {
        let policy = policy.or_else(|| policy_field(limiting(decision).map(Verdict::policy)));
        let (Some(policy), Some(limit)) = (policy, self.limit_field(decision)) else {
            return;
        };
        headers.append(RATE_LIMIT_POLICY, policy);
        headers.append(RATE_LIMIT, limit);
        if let Some(reset_format) = self.x_rate_limit {
            write_x_rate_limit(headers, decision, reset_format);
        }
    }

    /// The names of all fields that may be written, `Retry-After` among them.
    pub(crate) fn names(&self) -> Vec<HeaderName> {
        let mut names = vec![RATE_LIMIT, RATE_LIMIT_POLICY, RETRY_AFTER];
        if self.x_rate_limit.is_some() {
            names.extend(x_rate_limit::NAMES);
        }
        names
    }

    /// The value of `RateLimit`, like `"login";r=4;t=899`.
    fn limit_field(&self, decision: &Decision) -> Option<HeaderValue> {
        let (available, window) = self.dialect.parameters();
        joined(limiting(decision), |item, verdict| {
            item.name(verdict.policy());
            item.parameter(available, u64::from(verdict.remaining()));
            if let Some(told) = decision.told_window(verdict) {
                item.parameter(window, wait_seconds(told));
            }
            if let Some(partition_key) = &self.partition_key {
                item.text(";pk=:");
                item.text(&partition_key.of(verdict.key()));
                item.text(":");
            }
        })
    }
}

/// The value of `RateLimit-Policy`, like `"login";q=5;w=900`: a member for each policy, in their order.
pub(crate) fn policy_field<'a>(policies: impl Iterator<Item = &'a Policy>) -> Option<HeaderValue> {
    joined(policies, |item, policy| {
        item.name(policy);
        item.parameter(";q=", u64::from(policy.limit()));
        item.parameter(";w=", policy.window_seconds());
    })
}

/// Takes both list fields out.
pub(crate) fn remove(headers: &mut HeaderMap) {
    headers.remove(RATE_LIMIT);
    headers.remove(RATE_LIMIT_POLICY);
}

/// What the policies say that limit the key, in their order.
fn limiting(decision: &Decision) -> impl Iterator<Item = &Verdict> {
    let verdicts = decision.verdicts();
    verdicts.filter(|verdict| !verdict.policy().is_exempt())
}

/// The policies of a decision, in their order.
pub(crate) fn policies(decision: &Decision) -> impl ExactSizeIterator<Item = &Policy> {
    decision.all_verdicts().map(Verdict::policy)
}

/// Writes `Retry-After` in whole seconds (RFC 9110, 10.2.3), unless there is one.
pub(crate) fn write_retry_after(headers: &mut HeaderMap, after: Duration) {
    headers
        .entry(RETRY_AFTER)
        .or_insert_with(|| HeaderValue::from(wait_seconds(after)));
}

/// The largest integer of a structured field (RFC 9651, 3.3.1): beyond it a parser drops the whole field.
pub(super) const LARGEST_INTEGER: u64 = 999_999_999_999_999;

/// A wait in whole seconds: rounded up, so that nobody comes back too early, and never "now".
pub(crate) fn wait_seconds(after: Duration) -> u64 {
    seconds_ceil(after).clamp(1, LARGEST_INTEGER)
}

/// A member of a list. It has room for the longest name, the largest numbers and a partition key, without an allocation.
struct Item(ArrayString<160>);

impl Item {
    fn text(&mut self, text: &str) {
        // There is room; what has none is left out rather than cut.
        let _ = self.0.try_push_str(text);
    }

    fn name(&mut self, policy: &Policy) {
        self.text("\"");
        self.text(policy.as_name());
        self.text("\"");
    }

    fn parameter(&mut self, name: &str, value: u64) {
        self.text(name);
        self.text(itoa::Buffer::new().format(value));
    }
}

/// The members of a list, joined as RFC 9651, 4.1.1, has it. One alone needs no allocation but that of the value; none is no
/// field.
fn joined<T>(
    members: impl Iterator<Item = T>,
    write_member: impl Fn(&mut Item, T),
) -> Option<HeaderValue> {
    let mut members = members.peekable();
    let mut list = String::new();
    let mut item = Item(ArrayString::new());
    while let Some(member) = members.next() {
        item.0.clear();
        write_member(&mut item, member);
        let is_one = list.is_empty() && members.peek().is_none();
        if !is_one {
            if !list.is_empty() {
                list.push_str(", ");
            }
            list.push_str(&item.0);
        }
    }
    let text = if list.is_empty() {
        item.0.as_str()
    } else {
        &list
    };
    // A policy's name is checked when it is built, and the rest is digits.
    let value = HeaderValue::from_str(text).ok();
    value.filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_rounds_up_and_is_never_now() {
        let cases = [
            (0, 1),
            (1, 1),
            (1_000, 1),
            (2_000, 2),
            (2_001, 3),
            (2_100, 3),
        ];
        for (millis, seconds) in cases {
            assert_eq!(
                wait_seconds(Duration::from_millis(millis)),
                seconds,
                "{millis} ms"
            );
        }
        assert_eq!(wait_seconds(Duration::MAX), 999_999_999_999_999);
    }

    #[test]
    fn the_longest_item_fits() {
        let longest = Duration::from_hours(10 * 366 * 24);
        let policy = Policy::try_fixed(u32::MAX, longest)
            .unwrap()
            .name(&"n".repeat(64));
        let item = policy_field([policy].iter()).unwrap();
        let expected = format!("\"{}\";q=4294967295;w=316224000", "n".repeat(64));
        assert_eq!(item, expected);
    }

    #[test]
    fn a_window_below_a_second_is_told_as_one() {
        let policy = Policy::try_fixed(u32::MAX, Duration::from_millis(100)).unwrap();
        assert_eq!(
            policy_field([policy].iter()).unwrap(),
            "\"fixed-4294967295-100ms\";q=4294967295;w=1"
        );
    }
}
