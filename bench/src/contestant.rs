//! What is measured, and how each of them becomes a server.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use axum::Router;
use axum::routing::get;
use clap::ValueEnum;
use tollgate::{RateLimitLayer, SqliteStore, key};

use crate::redis::Redis;
use crate::upsert::Upsert;
use crate::{governed, keys, redis, upsert};

/// So large that nothing is ever refused, and everyone does the same work.
pub(crate) const LIMIT: u32 = u32::MAX;
/// A window that does not end while it is measured.
pub(crate) const WINDOW_SECONDS: u64 = 365 * 86_400;

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

    pub(crate) fn limit(self) -> u32 {
        match self {
            Self::Endless => LIMIT,
            Self::One => 1,
        }
    }
}

/// What limits the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contestant {
    /// Nothing.
    None,
    /// This crate, on a SQLite file.
    Tollgate,
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
    pub(crate) store: Option<SqliteStore>,
    /// Kept to be ended.
    pub(crate) redis: Option<Redis>,
}

impl Contestant {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::None => "no limiter",
            Self::Tollgate => "tollgate",
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

    /// The same hello-world behind each of them.
    pub(crate) async fn enter(self, database: &Path, pool: u32, quota: Quota) -> Result<Entrant> {
        let limit = quota.limit();
        let hello = Router::new().route("/", get(async || "hello"));
        let mut store = None;
        let mut redis_server = None;
        let mut settings = String::new();
        let router = match self {
            Self::None => {
                settings.push_str("the handler alone");
                hello
            }
            Self::Tollgate => {
                let sqlite = SqliteStore::open(database).await?;
                let layer = RateLimitLayer::fixed(limit, WINDOW_SECONDS)
                    .name("bench")
                    .key(key::header(keys::HEADER))
                    .store(&sqlite);
                write!(
                    settings,
                    "{:?} of {limit} in {WINDOW_SECONDS} s, on SqliteStore::open, all else by default",
                    layer.limiter().policy().algorithm(),
                )?;
                store = Some(sqlite);
                hello.layer(layer)
            }
            Self::Governor => {
                settings = governed::settings(quota);
                governed::limit(hello, quota)?
            }
            Self::GovernorHeaders => {
                settings = format!("{}, use_headers()", governed::settings(quota));
                governed::limit_with_headers(hello, quota)?
            }
            Self::Upsert => {
                let upsert = Upsert::open(database, pool).await?;
                settings = upsert.settings().await?;
                upsert::limit(hello, upsert, limit)
            }
            Self::Redis => {
                let folder = database.parent().unwrap_or(Path::new("."));
                let server = Redis::start(folder)?;
                let connection = server.connect().await?;
                settings = redis::settings(connection.clone()).await?;
                redis_server = Some(server);
                redis::limit(hello, connection, limit)
            }
        };
        Ok(Entrant {
            router,
            settings,
            store,
            redis: redis_server,
        })
    }
}
