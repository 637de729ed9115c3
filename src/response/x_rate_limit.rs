//! `X-RateLimit-Limit`, `-Remaining` and `-Reset`: what clients knew before the IETF's fields.

use std::cmp::Reverse;

use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::fields::{LARGEST_INTEGER, wait_seconds};
use crate::limit::Decision;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(super) const NAMES: [HeaderName; 3] = [LIMIT, REMAINING, RESET];

/// What `X-RateLimit-Reset` says. The field has two meanings in the wild, so there is no default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResetFormat {
    /// Seconds since the Unix epoch, rounded up, as GitHub and express-rate-limit send it.
    EpochSeconds,
    /// Seconds from now, rounded up, at least 1, as Envoy sends it.
    DeltaSeconds,
}

/// Writes the three fields. They hold one value each: where a limit further inside has written them, the stricter stays,
/// with the fewest left; of equals the one with the longest wait. Of several policies it is the one that the decision
/// speaks for, unless that does not limit the key. A wait that is not told has no `X-RateLimit-Reset`, and counts as the longest.
pub(super) fn write_x_rate_limit(
    headers: &mut HeaderMap,
    decision: &Decision,
    reset_format: ResetFormat,
) {
    if decision.policy().is_exempt() {
        return;
    }
    let remaining = u64::from(decision.remaining());
    let window = decision.told_window(decision.leading());
    let reset = window.map(|window| match reset_format {
        ResetFormat::DeltaSeconds => wait_seconds(window),
        ResetFormat::EpochSeconds => {
            let resets_at = decision.decided_at().saturating_add(window);
            let seconds = u64::try_from(resets_at.unix_seconds_ceil()).unwrap_or(0);
            seconds.min(LARGEST_INTEGER)
        }
    });
    let rank = |remaining, reset: Option<u64>| (remaining, Reverse(reset.unwrap_or(u64::MAX)));
    if let Some(inner_remaining) = number(headers, &REMAINING)
        && rank(inner_remaining, number(headers, &RESET)) <= rank(remaining, reset)
    {
        return;
    }
    headers.insert(LIMIT, HeaderValue::from(decision.policy().limit()));
    headers.insert(REMAINING, HeaderValue::from(remaining));
    match reset {
        Some(reset) => headers.insert(RESET, HeaderValue::from(reset)),
        None => headers.remove(RESET),
    };
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}
