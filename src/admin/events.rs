//! What the admin API tells by `tracing`. Names and fields are stable, and none of them is a key.

use tracing::Level;

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
