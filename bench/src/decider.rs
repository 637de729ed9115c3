//! A limiter that is asked for decisions, and the tasks that ask it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use governor::DefaultKeyedRateLimiter;
use tollgate::{Key, Limiter, Policy, SqliteStore};

use crate::contestant::{Contestant, LIMIT, WINDOW_SECONDS};
use crate::keys::{Keys, Picker};
use crate::measured::Measured;
use crate::turn::{self, Asker};
use crate::upsert::Upsert;
use crate::{governed, ours};

/// A limiter, with the keys it is asked for.
#[derive(Clone)]
pub(crate) enum Decider {
    /// With its settings.
    Tollgate(Limiter, Arc<[Key]>, Arc<str>),
    Governor(Arc<DefaultKeyedRateLimiter<String>>, Arc<[String]>),
    Upsert(Upsert, Arc<[String]>),
}

impl Decider {
    pub(crate) async fn open(
        contestant: Contestant,
        keys: Keys,
        database: &Path,
        pool: u32,
    ) -> Result<Self> {
        let values = keys.values();
        Ok(match contestant {
            Contestant::Tollgate => {
                let store = SqliteStore::open(database).await?;
                let policy = Policy::fixed(LIMIT, WINDOW_SECONDS).name("bench");
                let keys = values
                    .iter()
                    .map(|value| Key::new("client", value.as_str()));
                let limiter = Limiter::new(policy)
                    .store(&store)
                    .on_store_failure(ours::ON_STORE_FAILURE);
                let settings = ours::settings(&limiter, "leases on", database).await?;
                Self::Tollgate(limiter, keys.collect(), settings.into())
            }
            Contestant::Governor => Self::Governor(Arc::new(governed::limiter()?), values.into()),
            Contestant::Upsert => Self::Upsert(Upsert::open(database, pool).await?, values.into()),
            _ => bail!("{} is not asked without HTTP", contestant.label()),
        })
    }

    /// How one that counts in a file is set; governor has nothing to tell.
    pub(crate) async fn settings(&self) -> Result<String> {
        match self {
            Self::Upsert(upsert, _) => upsert.settings().await,
            Self::Tollgate(_, _, settings) => Ok(settings.to_string()),
            Self::Governor(..) => Ok(String::new()),
        }
    }

    /// Has so many tasks ask for decisions, each for one after the other.
    pub(crate) async fn load(&self, tasks: usize, seconds: f64) -> Result<Measured> {
        let task = |task| Task {
            decider: self.clone(),
            picker: Picker::new(task, self.key_count()),
        };
        turn::take((0..tasks).map(task).collect(), seconds).await
    }

    pub(crate) fn key_count(&self) -> usize {
        match self {
            Self::Tollgate(_, keys, _) => keys.len(),
            Self::Governor(_, keys) | Self::Upsert(_, keys) => keys.len(),
        }
    }

    pub(crate) async fn is_allowed(&self, key: usize) -> Result<bool> {
        match self {
            // What the store does not answer counts as failed, and does not end the run.
            Self::Tollgate(limiter, keys, _) => {
                let decision = limiter.check(&keys[key]).await;
                Ok(decision.is_ok_and(|decision| decision.is_allowed()))
            }
            Self::Governor(limiter, keys) => Ok(limiter.check_key(&keys[key]).is_ok()),
            Self::Upsert(upsert, keys) => upsert.is_allowed(&keys[key], LIMIT).await,
        }
    }
}

/// One that asks, for keys in an order of its own.
struct Task {
    decider: Decider,
    picker: Picker,
}

impl Asker for Task {
    async fn ask(&mut self) -> Result<bool> {
        self.decider.is_allowed(self.picker.pick()).await
    }
}
