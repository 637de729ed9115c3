//! Several policies in one layer: one decision, charged all or nothing.

mod answers;
mod building;
mod charging;
mod fields;
mod floods;
mod keys;
mod nesting;

use tollgate::{Policies, Policy, RateLimitLayer, Store, key};

use crate::support::CLIENT;

/// 2 in any 10 seconds, and 3 in each minute, for each [`CLIENT`].
fn burst_and_quota(store: &impl Store) -> RateLimitLayer {
    by_client(
        [
            Policy::sliding(2, 10).name("burst"),
            Policy::fixed(3, 60).name("quota"),
        ],
        store,
    )
}

/// These policies, for each [`CLIENT`].
fn by_client(policies: impl Into<Policies>, store: &(impl Store + ?Sized)) -> RateLimitLayer {
    RateLimitLayer::new(policies)
        .key(key::header(CLIENT))
        .store(store)
}
