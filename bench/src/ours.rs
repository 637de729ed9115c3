//! This crate's layer in front of the router.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::task::JoinSet;
use tokio::time;
use tollgate::key::{self, KeySource};
use tollgate::{
    FailureMode, Key, Limiter, Policy, PostgresStore, RateLimitLayer, RedisStore, SqliteStore,
    Store,
};

use crate::contestant::WINDOW_SECONDS;
use crate::keys::{self, Keys};
use crate::pool;

/// So many ask at once to fill it: what waits goes into the file together.
const TASKS: usize = 256;

/// What the store does not answer in time counts as an answer that failed. By default this crate would go on in memory, and
/// that would be measured as if the file had counted it.
pub(crate) const ON_STORE_FAILURE: FailureMode = FailureMode::Closed;
/// A first request is tried so often: one that comes too late is no reason to end the run.
const ATTEMPTS: usize = 20;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(500);

/// Any of this crate's stores that have something to close.
pub(crate) enum OurStore {
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
    Redis(RedisStore),
}

impl OurStore {
    pub(crate) async fn close(&self) -> Result<()> {
        match self {
            Self::Sqlite(store) => store.close().await?,
            Self::Postgres(store) => store.close().await?,
            Self::Redis(store) => store.close().await?,
        }
        Ok(())
    }
}

pub(crate) fn layer(policy: Policy, store: &impl Store) -> RateLimitLayer {
    RateLimitLayer::new(policy)
        .key(source())
        .store(store)
        .on_store_failure(ON_STORE_FAILURE)
}

/// How a limiter on a file is set.
pub(crate) async fn settings(limiter: &Limiter, leases: &str, database: &Path) -> Result<String> {
    let policy = limiter.policy();
    // Only the size of pages stays with the file: the rest is what src/store/sqlite/settings.rs sets for its own connections.
    Ok(format!(
        "{:?} of {} in {WINDOW_SECONDS} s, {leases}, FailureMode::{ON_STORE_FAILURE:?}, on SqliteStore::open: one writer, \
         journal_mode wal, synchronous 1, busy_timeout 200, cache_size -16384, page_size {}, WAL of 4 MB (12 while another \
         connection checkpoints), deadline 250 ms",
        policy.algorithm(),
        policy.limit(),
        pool::page_size(database).await?,
    ))
}

/// How a limiter on a server is set.
pub(crate) fn settings_on(limiter: &Limiter, leases: &str, server: &str) -> String {
    let policy = limiter.policy();
    format!(
        "{:?} of {} in {WINDOW_SECONDS} s, {leases}, FailureMode::{ON_STORE_FAILURE:?}, one connection, deadline 250 ms, on {server}",
        policy.algorithm(),
        policy.limit(),
    )
}

fn source() -> KeySource {
    key::header(keys::HEADER)
}

/// Counts one request of each key.
pub(crate) async fn fill(limiter: &Limiter, keys: Keys) -> Result<()> {
    let mut tasks = JoinSet::<Result<()>>::new();
    for task in 0..TASKS {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            for index in (task..keys.count() as usize).step_by(TASKS) {
                let key = source().key_for(keys.value(index).as_str());
                charge(&limiter, &key).await?;
            }
            Ok(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(())
}

/// Charges a first request, however long it takes.
async fn charge(limiter: &Limiter, key: &Key) -> Result<()> {
    for attempt in 1.. {
        match limiter.check(key).await {
            // One that came too late may have been charged all the same.
            Ok(decision) if decision.is_allowed() || attempt > 1 => break,
            Ok(_) => bail!("tollgate refuses a first request"),
            Err(error) if attempt >= ATTEMPTS => return Err(error.into()),
            Err(_) => time::sleep(BETWEEN_ATTEMPTS).await,
        }
    }
    Ok(())
}
