//! Each algorithm, over a layer and as a limiter.

mod boundaries;
mod layers;
mod moments;
mod waits;

use tollgate::{ManualClock, Policy, RateLimitLayer, Store, key};

use crate::support::{memory, sqlite};

/// A policy of each algorithm with this limit; the windows of those which have one are 60 s long.
pub(crate) fn each_algorithm(limit: u32) -> [Policy; 7] {
    [
        Policy::fixed(limit, 60),
        Policy::sliding(limit, 60),
        Policy::sliding_counter(limit, 60),
        Policy::token_bucket(limit, 60),
        Policy::hourly(limit),
        Policy::daily(limit),
        Policy::monthly(limit),
    ]
}

pub(crate) fn stores(clock: &ManualClock) -> [Box<dyn Store>; 2] {
    [Box::new(memory(clock)), Box::new(sqlite(clock))]
}

/// A layer of this policy with one key for all.
fn layer_of(policy: Policy, store: &dyn Store) -> RateLimitLayer {
    RateLimitLayer::new(policy)
        .key(key::constant("all"))
        .store(store)
}
