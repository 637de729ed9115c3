//! What a limiter tells by `tracing`. Names and fields are stable, and none of them is a key.

use std::time::Duration;

use tracing::Level;

use crate::limit::{Decision, Mistake, Policy};
use crate::store::TARGET;

/// An event about a decision. When nobody listens to its level, nothing is worked out.
macro_rules! tell {
    ($name:literal, $level:expr, $decision:expr, $message:literal) => {
        tracing::event!(
            name: $name,
            target: TARGET,
            $level,
            policy = $decision.policy().as_name(),
            cost = $decision.cost(),
            limit = $decision.policy().limit(),
            used = $decision.used(),
            remaining = $decision.remaining(),
            reset_after_ms = millis_ceil($decision.reset_after()),
            retry_after_ms = $decision.retry_after().map(millis_ceil),
            degraded = $decision.is_degraded(),
            $message
        )
    };
}

/// Tells a decision: of several policies what the one says that matters most.
pub(super) fn decided(decision: &Decision, is_shadow: bool) {
    match (decision.is_allowed(), is_shadow) {
        (true, false) => tell!("tollgate.allowed", Level::TRACE, decision, "allowed"),
        (true, true) => tell!(
            "tollgate.shadow_allowed",
            Level::TRACE,
            decision,
            "allowed in shadow mode"
        ),
        (false, false) => tell!("tollgate.refused", Level::DEBUG, decision, "refused"),
        // To be read is what shadow mode is for, also where nobody has turned on more than the usual.
        (false, true) => tell!(
            "tollgate.shadow_refused",
            Level::INFO,
            decision,
            "over the limit, and let pass in shadow mode"
        ),
    }
}

/// Tells what a policy is, what it is keyed on, and where it counts.
pub(super) fn announced(policy: &Policy, source: Option<&str>, store: &str, is_shadow: bool) {
    let (before, key) = source.map_or(("", ""), |source| (", key ", source));
    let after = if is_shadow { ", in shadow mode" } else { "" };
    tracing::event!(
        name: "tollgate.announced",
        target: TARGET,
        Level::INFO,
        policy = policy.as_name(),
        limit = policy.limit(),
        window_ms = millis_ceil(policy.window()),
        source,
        store,
        shadow = is_shadow,
        "{policy}{before}{key}, store {store}{after}"
    );
}

/// Tells that two limiters share a counter, and may not mean it.
pub(super) fn shared(policy: &Policy, store: &str) {
    let name = policy.as_name();
    let told = if policy.is_named() {
        format!(
            "two limits named {name} are on the store {store} with different limits ({policy}): they share their \
             counters, and each is held to its own; give them names of their own with .name(\"…\") if that is not meant {}",
            Mistake("shared-name")
        )
    } else {
        format!(
            "two limits without a name are both {policy}, on the store {store}: they share their counters; give them \
             names of their own with .name(\"…\") {}",
            Mistake("shared-unnamed-limit")
        )
    };
    tracing::event!(
        name: "tollgate.shared",
        target: TARGET,
        Level::WARN,
        policy = name,
        limit = policy.limit(),
        store,
        "{told}"
    );
}

/// Whole milliseconds, rounded up: nobody who waits that long comes too early.
fn millis_ceil(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
