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
        joined(limiting(decision), |list, verdict| {
            list.name(verdict.policy());
            list.parameter(available, u64::from(verdict.remaining()));
            if let Some(told) = decision.told_window(verdict) {
                list.parameter(window, wait_seconds(told));
            }
            if let Some(partition_key) = &self.partition_key {
                list.text(";pk=:");
                list.text(&partition_key.of(verdict.key()));
                list.text(":");
            }
        })
    }
}

/// The value of `RateLimit-Policy`, like `"login";q=5;w=900`: a member for each policy, in their order.
pub(crate) fn policy_field<'a>(policies: impl Iterator<Item = &'a Policy>) -> Option<HeaderValue> {
    joined(policies, |list, policy| {
        list.name(policy);
        list.parameter(";q=", u64::from(policy.limit()));
        list.parameter(";w=", policy.window_seconds());
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

/// The longest name, the largest numbers and a partition key have room in it.
const LONGEST_MEMBER: usize = 160;

/// The members of a list, joined as RFC 9651, 4.1.1, has it: four have room without an allocation, as long as they may be, and
/// some ten as they mostly are.
#[derive(Default)]
struct List {
    text: ArrayString<{ 4 * LONGEST_MEMBER }>,
    /// What stands before it of a longer list.
    before: String,
}

impl List {
    /// Makes room for the next member.
    fn begin_member(&mut self) {
        if !self.text.is_empty() {
            self.text(", ");
        }
        if self.text.remaining_capacity() < LONGEST_MEMBER {
            self.before.push_str(&self.text);
            self.text.clear();
        }
    }

    fn text(&mut self, text: &str) {
        // There is room; what has none is left out rather than cut.
        let _ = self.text.try_push_str(text);
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

/// The value of a list. It needs no allocation but its own, and none is no field.
fn joined<T>(
    members: impl Iterator<Item = T>,
    write_member: impl Fn(&mut List, T),
) -> Option<HeaderValue> {
    let mut list = List::default();
    for member in members {
        list.begin_member();
        write_member(&mut list, member);
    }
    let text = if list.before.is_empty() {
        list.text.as_str()
    } else {
        list.before.push_str(&list.text);
        &list.before
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
    fn a_list_of_any_length_is_whole() {
        let name = |n: u32| format!("n{n:0>63}");
        for count in [1, 4, 5, 9, 40] {
            let policies = (0..count).map(|n| Policy::fixed(u32::MAX, 60).name(&name(n)));
            let policies: Vec<_> = policies.collect();
            let members = (0..count).map(|n| format!("\"{}\";q=4294967295;w=60", name(n)));
            let members: Vec<_> = members.collect();
            assert_eq!(policy_field(policies.iter()).unwrap(), members.join(", "));
        }
        assert_eq!(policy_field([].iter()), None);
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
