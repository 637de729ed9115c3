//! What is measured, and how each of them becomes a server.

use std::path::Path;

use anyhow::Result;
use axum::Router;
use axum::routing::get;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tollgate::{Policy, PostgresStore, RedisStore, SqliteStore};

use crate::keys::Keys;
use crate::ours::OurStore;
use crate::postgres::Postgres;
use crate::redis::Redis;
use crate::server::SetUp;
use crate::trips::with_trips;
use crate::upsert::Upsert;
use crate::{governed, ours, redis, upsert};

/// So large that nothing is ever refused, and everyone does the same work.
pub(crate) const LIMIT: u32 = u32::MAX;
/// A window that does not end while it is measured.
pub(crate) const WINDOW_SECONDS: u64 = 365 * 86_400;
/// The policy's name, where there are names.
pub(crate) const NAME: &str = "bench";

/// How much each key may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Quota {
    /// So much that nothing is ever refused.
    Endless,
    /// One request, so that all others are refused.
    One,
}

impl Quota {
    /// The name that the command line knows it by.
    pub(crate) fn argument(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The command that measures it.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Endless => "http",
            Self::One => "refused",
        }
    }

    pub(crate) fn limit(self) -> u32 {
        match self {
            Self::Endless => LIMIT,
            Self::One => 1,
        }
    }
}

/// What limits the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Contestant {
    /// Nothing.
    None,
    /// This crate, on a SQLite file.
    Tollgate,
    /// The same without leases: the store is asked for each request.
    TollgateUnleased,
    /// The same with an exact sliding window.
    TollgateSliding,
    /// This crate, on a Postgres of this machine, with leases and without.
    TollgatePostgres,
    TollgatePostgresUnleased,
    /// This crate, on a Redis of this machine, with leases and without.
    TollgateRedis,
    TollgateRedisUnleased,
    /// `tower_governor`, in memory, as it is by default: it sends no fields.
    Governor,
    /// `tower_governor` which tells the client what is left, as this crate does.
    GovernorHeaders,
    /// One upsert for each request.
    Upsert,
    /// One `INCR` for each request, in a Redis on this machine.
    Redis,
}

/// A server, and what to tell of it.
pub(crate) struct Entrant {
    pub(crate) router: Router,
    pub(crate) settings: String,
    /// Kept to be closed.
    pub(crate) store: Option<OurStore>,
    /// Kept to be ended.
    pub(crate) redis: Option<Redis>,
    pub(crate) postgres: Option<Postgres>,
}

impl Entrant {
    /// Other processes that have a part in each request.
    pub(crate) fn helpers(&self) -> Vec<u32> {
        let redis = self.redis.as_ref().and_then(Redis::process);
        let postgres = self.postgres.iter().flat_map(Postgres::processes);
        redis.into_iter().chain(postgres).collect()
    }
}

impl Contestant {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::None => "no limiter",
            Self::Tollgate => "tollgate",
            Self::TollgateUnleased => "tollgate, leases off",
            Self::TollgateSliding => "tollgate, exact sliding",
            Self::TollgatePostgres => "tollgate on Postgres",
            Self::TollgatePostgresUnleased => "tollgate on Postgres, leases off",
            Self::TollgateRedis => "tollgate on Redis",
            Self::TollgateRedisUnleased => "tollgate on Redis, leases off",
            Self::Governor => "tower_governor",
            Self::GovernorHeaders => "tower_governor, with headers",
            Self::Upsert => "upsert per request",
            Self::Redis => "Redis INCR per request",
        }
    }

    /// The name that the command line knows it by.
    pub(crate) fn argument(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The status of what is beyond the quota, or within it when that is endless.
    pub(crate) fn expected_status(self, quota: Quota) -> u16 {
        match (self, quota) {
            (Self::None, _) | (_, Quota::Endless) => 200,
            (_, Quota::One) => 429,
        }
    }

    /// Whether it asks a server that counts how often.
    pub(crate) fn has_server(self) -> bool {
        matches!(
            self,
            Self::Redis
                | Self::TollgatePostgres
                | Self::TollgatePostgresUnleased
                | Self::TollgateRedis
                | Self::TollgateRedisUnleased
        )
    }

    /// Whether several processes count together.
    pub(crate) fn is_shared(self) -> bool {
        !matches!(self, Self::None | Self::Governor | Self::GovernorHeaders)
    }

    /// The same hello-world behind each of them.
    pub(crate) async fn enter(self, set_up: &SetUp) -> Result<Entrant> {
        let limit = set_up.quota.limit();
        let filled = Keys::Of(set_up.filled);
        let hello = Router::new().route("/", get(async || "hello"));
        let (mut store, mut redis_server, mut postgres) = (None, None, None);
        let (router, settings) = match self {
            Self::None => (hello, "the handler alone".to_owned()),
            Self::Tollgate | Self::TollgateUnleased | Self::TollgateSliding => {
                let sqlite = SqliteStore::open(&set_up.database).await?;
                let layer = ours::layer(self.policy(limit), &sqlite);
                ours::fill(&layer.limiter(), filled).await?;
                let settings =
                    ours::settings(&layer.limiter(), self.leases(), &set_up.database).await?;
                store = Some(OurStore::Sqlite(sqlite));
                (hello.layer(layer), settings)
            }
            Self::TollgatePostgres | Self::TollgatePostgresUnleased => {
                let server = postgres.insert(Postgres::start().await?);
                let on_server = PostgresStore::connect(&server.url()).await?;
                let layer = ours::layer(self.policy(limit), &on_server);
                ours::fill(&layer.limiter(), filled).await?;
                server.find_processes().await?;
                let settings =
                    ours::settings_on(&layer.limiter(), self.leases(), &server.settings().await?);
                store = Some(OurStore::Postgres(on_server));
                (with_trips(hello.layer(layer), server.trips()), settings)
            }
            Self::TollgateRedis | Self::TollgateRedisUnleased => {
                let folder = set_up.database.parent().unwrap_or(Path::new("."));
                let server = redis_server.insert(Redis::of(set_up.redis, folder).await?);
                let on_server = RedisStore::connect(&server.url()).await?;
                let layer = ours::layer(self.policy(limit), &on_server);
                ours::fill(&layer.limiter(), filled).await?;
                let settings =
                    ours::settings_on(&layer.limiter(), self.leases(), &server.settings().await?);
                store = Some(OurStore::Redis(on_server));
                (with_trips(hello.layer(layer), server.trips()), settings)
            }
            Self::Governor => (
                governed::limit(hello, set_up.quota, filled)?,
                governed::settings(set_up.quota),
            ),
            Self::GovernorHeaders => (
                governed::limit_with_headers(hello, set_up.quota, filled)?,
                governed::settings_with_headers(set_up.quota),
            ),
            Self::Upsert => {
                let upsert = Upsert::open(&set_up.database, set_up.pool).await?;
                upsert.fill(filled).await?;
                let settings = upsert.settings().await?;
                (upsert::limit(hello, upsert, limit), settings)
            }
            Self::Redis => {
                let folder = set_up.database.parent().unwrap_or(Path::new("."));
                let server = redis_server.insert(Redis::of(set_up.redis, folder).await?);
                server.fill(filled).await?;
                let settings = format!(
                    "{}, one multiplexed connection for each process",
                    server.settings().await?
                );
                let connection = server.connect().await?;
                let limited = redis::limit(hello, connection, limit);
                (with_trips(limited, server.trips()), settings)
            }
        };
        Ok(Entrant {
            router,
            settings,
            store,
            redis: redis_server,
            postgres,
        })
    }

    /// What its leases are, in words.
    fn leases(self) -> &'static str {
        match self {
            Self::TollgateSliding => "which has no leases",
            _ if self.is_leased() => "leases on",
            _ => "leases(false)",
        }
    }

    fn is_leased(self) -> bool {
        !matches!(
            self,
            Self::TollgateUnleased | Self::TollgatePostgresUnleased | Self::TollgateRedisUnleased
        )
    }

    /// What this crate is asked for.
    fn policy(self, limit: u32) -> Policy {
        let policy = match self {
            Self::TollgateSliding => Policy::sliding(limit, WINDOW_SECONDS),
            _ => Policy::fixed(limit, WINDOW_SECONDS),
        };
        policy.name(NAME).leases(self.is_leased())
    }
}
