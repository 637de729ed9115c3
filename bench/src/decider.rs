//! A limiter that is asked for decisions, and the tasks that ask it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use governor::DefaultKeyedRateLimiter;
use tollgate::{Key, Limiter, Policy, SqliteStore};

use crate::contestant::{Contestant, LIMIT, WINDOW_SECONDS};
use crate::governed;
use crate::keys::{Keys, Picker};
use crate::measured::Measured;
use crate::turn::{self, Asker};
use crate::upsert::Upsert;

/// A limiter, with the keys it is asked for.
#[derive(Clone)]
pub(crate) enum Decider {
    Tollgate(Limiter, Arc<[Key]>),
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
                Self::Tollgate(Limiter::new(policy).store(&store), keys.collect())
            }
            Contestant::Governor => Self::Governor(Arc::new(governed::limiter()?), values.into()),
            Contestant::Upsert => Self::Upsert(Upsert::open(database, pool).await?, values.into()),
            Contestant::None
            | Contestant::TollgateUnleased
            | Contestant::TollgateSliding
            | Contestant::GovernorHeaders
            | Contestant::Redis => {
                bail!("{} decides nothing of its own", contestant.label())
            }
        })
    }

    /// What a pool is set to; others have nothing to tell.
    pub(crate) async fn settings(&self) -> Result<String> {
        match self {
            Self::Upsert(upsert, _) => upsert.settings().await,
            Self::Tollgate(..) | Self::Governor(..) => Ok(String::new()),
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
            Self::Tollgate(_, keys) => keys.len(),
            Self::Governor(_, keys) | Self::Upsert(_, keys) => keys.len(),
        }
    }

    pub(crate) async fn is_allowed(&self, key: usize) -> Result<bool> {
        match self {
            Self::Tollgate(limiter, keys) => Ok(limiter.check(&keys[key]).await?.is_allowed()),
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
