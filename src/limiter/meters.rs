//! What a limiter tells in numbers, by the facade `metrics`. Names and labels are stable, and none of them is a key.

use metrics::{SharedString, counter};

use crate::limit::{Decision, Policy};

/// Counts a decision once for each of its policies: of one that was refused, which of them have refused it.
pub(super) fn decided(decision: &Decision, is_shadow: bool) {
    for verdict in decision.all_verdicts() {
        let outcome = match (decision.is_allowed(), verdict.is_denied(), is_shadow) {
            (true, _, false) => "allowed",
            (false, true, false) => "denied",
            (false, false, false) => "denied_by_other",
            (true, _, true) => "shadow_allowed",
            (false, true, true) => "shadow_denied",
            (false, false, true) => "shadow_denied_by_other",
        };
        count(verdict.policy(), outcome, decision.is_degraded());
    }
}

/// Counts what was not decided, since neither the store nor this process's memory has answered.
pub(super) fn unanswered<'a>(policies: impl Iterator<Item = &'a Policy>, is_shadow: bool) {
    let outcome = if is_shadow {
        "shadow_unanswered"
    } else {
        "unanswered"
    };
    for policy in policies {
        count(policy, outcome, true);
    }
}

fn count(policy: &Policy, outcome: &'static str, is_degraded: bool) {
    counter!(
        "tollgate_decisions_total",
        "policy" => SharedString::from_shared(policy.shared_name()),
        "outcome" => outcome,
        "degraded" => if is_degraded { "true" } else { "false" },
    )
    .increment(1);
}
