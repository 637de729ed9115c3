//! `RateLimit`, `RateLimit-Policy` and `Retry-After`.
//!
//! The dialect is that of draft-ietf-httpapi-ratelimit-headers-08 to -11: `r` is what is left, `t` the seconds until
//! there is more. All values are structured fields (RFC 9651): a name is a string of the alphabet that
//! [`Policy`] allows, numbers have at most 15 digits.

use std::fmt::Write;
use std::time::Duration;

use arrayvec::ArrayString;
use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

use crate::limit::timestamp::seconds_ceil;
use crate::limit::{Decision, Policy};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The item of `RateLimit-Policy`: `"login";q=5;w=900`. It never changes for a policy.
pub(crate) fn policy_item(policy: &Policy) -> HeaderValue {
    let mut item = Item::new();
    let _ = write!(
        item,
        "\"{}\";q={};w={}",
        policy.as_name(),
        policy.limit(),
        policy.window_seconds()
    );
    field_value(&item)
}

/// The item of `RateLimit`: `"login";r=4;t=899`.
fn limit_item(decision: &Decision) -> HeaderValue {
    let mut item = Item::new();
    let _ = write!(
        item,
        "\"{}\";r={};t={}",
        decision.policy().as_name(),
        decision.remaining(),
        reset_seconds(decision)
    );
    field_value(&item)
}

/// Appends both list fields: those of a limit further inside stay in front.
pub(crate) fn append_fields(headers: &mut HeaderMap, decision: &Decision, policy: HeaderValue) {
    headers.append(RATE_LIMIT_POLICY, policy);
    headers.append(RATE_LIMIT, limit_item(decision));
}

/// Writes `Retry-After` in whole seconds (RFC 9110, 10.2.3), unless there is one.
pub(crate) fn write_retry_after(headers: &mut HeaderMap, after: Duration) {
    headers
        .entry(RETRY_AFTER)
        .or_insert_with(|| HeaderValue::from(wait_seconds(after)));
}

/// A wait in whole seconds: rounded up, so that nobody comes back too early, and never "now".
pub(crate) fn wait_seconds(after: Duration) -> u64 {
    seconds_ceil(after).max(1)
}

/// The seconds until there is more.
pub(crate) fn reset_seconds(decision: &Decision) -> u64 {
    wait_seconds(decision.reset_after())
}

/// Holds an item of the longest name and the largest numbers, without an allocation.
type Item = ArrayString<128>;

fn field_value(item: &Item) -> HeaderValue {
    #[expect(
        clippy::expect_used,
        reason = "a policy's name is checked when it is built, and the rest is digits"
    )]
    HeaderValue::from_str(item).expect("names and digits are visible ASCII")
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
        assert_eq!(wait_seconds(Duration::MAX), u64::MAX);
    }

    #[test]
    fn the_longest_item_fits() {
        let longest = Duration::from_hours(10 * 366 * 24);
        let policy = Policy::try_fixed(u32::MAX, longest)
            .unwrap()
            .name(&"n".repeat(64));
        let item = policy_item(&policy);
        let expected = format!("\"{}\";q=4294967295;w=316224000", "n".repeat(64));
        assert_eq!(item, expected);
    }

    #[test]
    fn a_window_below_a_second_is_told_as_one() {
        let policy = Policy::try_fixed(u32::MAX, Duration::from_millis(100)).unwrap();
        assert_eq!(
            policy_item(&policy),
            "\"fixed-4294967295-100ms\";q=4294967295;w=1"
        );
    }
}
