//! A store of one kind or another, as the arguments of these programs name it: a file, or the URL of a server.

use std::error::Error;
use std::time::Duration;

use tollgate::{FailureMode, Limiter, ManualClock, SqliteStore, StoreError};

pub(crate) enum Counters {
    File(SqliteStore),
    #[cfg(feature = "postgres")]
    Postgres(tollgate::PostgresStore),
    #[cfg(feature = "redis")]
    Redis(tollgate::RedisStore),
}

pub(crate) struct Setting<'a> {
    pub(crate) deadline: Duration,
    /// What decides, in place of the system's clock or the server's.
    pub(crate) clock: Option<&'a ManualClock>,
    /// By how many milliseconds the server's clock is moved. A file has none.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "redis")),
        expect(dead_code, reason = "no store of this build has a server")
    )]
    pub(crate) server_is_ahead: i64,
}

impl Counters {
    pub(crate) async fn open(
        place: &str,
        setting: Setting<'_>,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        #[cfg(feature = "postgres")]
        if place.starts_with("postgres://") {
            let store = tollgate::PostgresStore::connect(place).await?;
            let store = store.deadline(setting.deadline);
            store.move_server_clock(setting.server_is_ahead);
            return Ok(Self::Postgres(match setting.clock {
                Some(clock) => store.clock(clock),
                None => store,
            }));
        }
        #[cfg(feature = "redis")]
        if place.starts_with("unix://") {
            let store = tollgate::RedisStore::connect(place).await?;
            let store = store.deadline(setting.deadline);
            store.move_server_clock(setting.server_is_ahead);
            return Ok(Self::Redis(match setting.clock {
                Some(clock) => store.clock(clock),
                None => store,
            }));
        }
        let store = SqliteStore::open(place).await?.deadline(setting.deadline);
        Ok(Self::File(match setting.clock {
            Some(clock) => store.clock(clock),
            None => store,
        }))
    }

    /// Has a limiter count here. What this process decided alone would come on top of the limit that all share.
    pub(crate) fn limit(&self, limiter: Limiter) -> Limiter {
        let limiter = match self {
            Self::File(store) => limiter.store(store),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => limiter.store(store),
            #[cfg(feature = "redis")]
            Self::Redis(store) => limiter.store(store),
        };
        limiter.on_store_failure(FailureMode::Closed)
    }

    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        match self {
            Self::File(store) => store.close().await,
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.close().await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => store.close().await,
        }
    }
}
