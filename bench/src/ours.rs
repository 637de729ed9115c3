//! This crate's layer in front of the router.

use anyhow::{Result, ensure};
use tokio::task::JoinSet;
use tollgate::key::{self, KeySource};
use tollgate::{Limiter, Policy, RateLimitLayer, SqliteStore};

use crate::contestant::WINDOW_SECONDS;
use crate::keys::{self, Keys};

/// So many ask at once to fill it: what waits goes into the file together.
const TASKS: usize = 256;

pub(crate) fn layer(policy: Policy, store: &SqliteStore) -> RateLimitLayer {
    RateLimitLayer::new(policy).key(source()).store(store)
}

pub(crate) fn settings(layer: &RateLimitLayer, is_leased: bool) -> String {
    let leases = if is_leased { "" } else { "leases(false), " };
    let limiter = layer.limiter();
    let policy = limiter.policy();
    format!(
        "{:?} of {} in {WINDOW_SECONDS} s, {leases}on SqliteStore::open, all else by default",
        policy.algorithm(),
        policy.limit(),
    )
}

fn source() -> KeySource {
    key::header(keys::HEADER)
}

/// Counts one request of each key.
pub(crate) async fn fill(limiter: &Limiter, keys: Keys) -> Result<()> {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            for index in (task..keys.count() as usize).step_by(TASKS) {
                let key = source().key_for(keys.value(index).as_str());
                let decision = limiter.check(&key).await?;
                ensure!(decision.is_allowed(), "tollgate refuses a first request");
            }
            Ok(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(())
}
