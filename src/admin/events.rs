//! What the admin API tells by `tracing`. Names and fields are stable, and none of them is a key.

use tracing::Level;

use crate::limit::Limit;
use crate::store::TARGET;

/// Tells that somebody has sent no key, or a wrong one.
pub(super) fn denied(attempts: u64) {
    tracing::event!(
        name: "tollgate.admin_denied",
        target: TARGET,
        Level::WARN,
        attempts,
        "the admin API was asked without its key, or with a wrong one"
    );
}

/// Tells that counters were reset.
pub(super) fn reset(policy: &str, scope: &'static str, units: u64) {
    tracing::event!(
        name: "tollgate.admin_reset",
        target: TARGET,
        Level::INFO,
        policy,
        scope,
        units,
        "the admin API has reset counters"
    );
}

/// Tells that a limit was set.
pub(super) fn limit_set(policy: &str, scope: &'static str, limit: Limit, ends: bool) {
    tracing::event!(
        name: "tollgate.admin_limit_set",
        target: TARGET,
        Level::INFO,
        policy,
        scope,
        limit = %limit,
        ends,
        "the admin API has set a limit"
    );
}

/// Tells that a limit was removed, or would have been if there had been one.
pub(super) fn limit_removed(policy: &str, scope: &'static str) {
    tracing::event!(
        name: "tollgate.admin_limit_removed",
        target: TARGET,
        Level::INFO,
        policy,
        scope,
        "the admin API has removed a limit"
    );
}
