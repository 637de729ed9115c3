//! Counters in Redis or Valkey, for services on several machines.
//!
//! A batch is one call of a script, which decides by the clock of the server: `scripts/` has them, `scripts.rs` names them.
//! `server.rs` is the connection, `cluster.rs` the nodes of a cluster, `servers.rs` either of them, `names.rs` what counters are
//! called. `charging.rs` is about batches: `plan.rs` is what one asks, `packed.rs` how that is written, `answer.rs` how what comes
//! back is read, and `replay.rs` tells the answers from it. `give_back.rs` is about units that go back, `resetting.rs` about
//! resets, `limits.rs` about limits that are set and what others are told,
//! `known.rs` about what is known of those limits in a cluster, `untold.rs` about what they can't be told yet; `slots.rs` and `spread.rs` sort it all for a cluster.

mod answer;
mod backend;
mod charging;
mod cluster;
mod failure;
mod give_back;
mod known;
mod limits;
mod names;
mod open_error;
mod packed;
mod plan;
mod replay;
mod resetting;
mod scripts;
mod server;
mod servers;
mod slots;
mod spread;
#[cfg(test)]
mod tests;
mod untold;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use redis::{Client, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use self::backend::Redis;
use self::cluster::Cluster;
use self::known::KnownLimits;
use self::names::Names;
pub use self::open_error::RedisOpenError;
use self::server::{Server, Timeout};
use self::servers::Servers;
use self::untold::Untold;
use super::engine::Engine;
use super::{Handle, Store, StoreError, StoreHandle, StoreHealth};
#[cfg(any(test, feature = "test-util"))]
use crate::clock::ManualClock;
use crate::clock::{Clock, ServerClock};

/// What names of keys begin with by default.
const DEFAULT_PREFIX: &str = "tollgate:";
const LONGEST_PREFIX: usize = 64;

/// Counters in Redis 7.0 or later, or in Valkey: shared by all processes on all machines that use it.
///
/// Clones are the same store, and all layers on it share its one queue and one connection. A batch of up to 512 charges is one call of a
/// script: all or nothing of each charge, by the clock of the server, whatever the clocks of the machines show.
/// Never more than the limit passes, as long as the server keeps what it was told: after a failover, or a restart without
/// `appendfsync always`, its last moments may be lost, and what was admitted in them can be admitted once more.
///
/// Every counter ends by itself, when its window is over. Limits that were set at run time stay.
///
/// | | default |
/// | --- | --- |
/// | [`deadline`](Self::deadline) of a charge | 250 ms |
/// | until a call is given up, and its connection | 1 s, or the deadline when that is longer |
/// | queue | 8,192 charges |
/// | prefix of the keys | `tollgate:` |
/// | [`max_keys_in_memory`](Self::max_keys_in_memory), which are answered without the server | 65,536 |
///
/// # Examples
///
/// ```no_run
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use tollgate::{RateLimitLayer, RedisStore};
///
/// let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
/// let login = RateLimitLayer::sliding(5, 900).name("login").store(&store);
/// let api = RateLimitLayer::fixed(100, 60).name("api").store(&store);
///
/// // When the server has stopped:
/// store.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct RedisStore {
    engine: Arc<Engine>,
    timeout: Timeout,
    #[cfg_attr(
        not(any(test, feature = "test-util")),
        expect(dead_code, reason = "only tests set it")
    )]
    offset: Arc<AtomicI64>,
}

impl RedisStore {
    /// Connects to the server of a URL: `redis://user:password@host:6379/0`, or `unix:///run/redis.sock`.
    ///
    /// For TLS, `rediss://…`, turn on a feature of the crate `redis` in the application, `tokio-rustls-comp` say.
    /// The server decides, so it must be the master: a replica refuses to write.
    ///
    /// # Errors
    ///
    /// [`RedisOpenError`] when the URL is none of a Redis, nobody answers, or the server refuses the user.
    pub async fn connect(url: &str) -> Result<Self, RedisOpenError> {
        Self::connect_with_prefix(url, DEFAULT_PREFIX).await
    }

    /// Connects as [`connect`](Self::connect) does, and counts in keys whose names begin with a text of up to 64 bytes without
    /// braces: with another one a store has other counters.
    ///
    /// # Errors
    ///
    /// [`RedisOpenError::InvalidPrefix`], and as in [`connect`](Self::connect).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use tollgate::RedisStore;
    ///
    /// let store = RedisStore::connect_with_prefix("redis://127.0.0.1", "staging:limits:").await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub async fn connect_with_prefix(url: &str, prefix: &str) -> Result<Self, RedisOpenError> {
        check_prefix(prefix)?;
        let info = info_of(url)?;
        let name = name(&info);
        let client = Client::open(info).map_err(|error| invalid(&error))?;
        let timeout = Timeout::new();
        let server = Server::new(client, timeout.clone());
        Self::opened(Servers::One(Box::new(server)), timeout, name, prefix).await
    }

    /// Connects to a cluster, of which some nodes are named: the others are found. The counters of one key are in one slot.
    ///
    /// Several policies in one decision must be about the same key there, since nodes can't decide together: with keys of their own
    /// put them into layers of their own, which are charged one after the other. A charge that is about several keys all the same is
    /// refused with an error.
    ///
    /// # Errors
    ///
    /// [`RedisOpenError`] as in [`connect`](Self::connect), and when no node is named.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use tollgate::RedisStore;
    ///
    /// let store = RedisStore::connect_cluster(&["redis://10.0.0.1:6379", "redis://10.0.0.2:6379"]).await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub async fn connect_cluster(urls: &[&str]) -> Result<Self, RedisOpenError> {
        Self::connect_cluster_with_prefix(urls, DEFAULT_PREFIX).await
    }

    /// Connects as [`connect_cluster`](Self::connect_cluster) does, and counts in keys with another
    /// [prefix](Self::connect_with_prefix).
    ///
    /// # Errors
    ///
    /// [`RedisOpenError::InvalidPrefix`], and as in [`connect_cluster`](Self::connect_cluster).
    pub async fn connect_cluster_with_prefix(
        urls: &[&str],
        prefix: &str,
    ) -> Result<Self, RedisOpenError> {
        check_prefix(prefix)?;
        let seeds: Result<Vec<_>, _> = urls.iter().map(|url| info_of(url)).collect();
        let seeds = seeds?;
        let Some(first) = seeds.first() else {
            return Err(RedisOpenError::InvalidUrl("no node is named".to_owned()));
        };
        let name = name(first);
        let timeout = Timeout::new();
        let cluster = Cluster::new(seeds, timeout.clone());
        Self::opened(Servers::Cluster(Box::new(cluster)), timeout, name, prefix).await
    }

    async fn opened(
        servers: Servers,
        timeout: Timeout,
        name: String,
        prefix: &str,
    ) -> Result<Self, RedisOpenError> {
        let store = Self::on(servers, timeout, name, prefix);
        let opened = store.engine.open().await;
        opened.map_err(RedisOpenError::from_store)?;
        Ok(store)
    }

    fn on(servers: Servers, timeout: Timeout, name: String, prefix: &str) -> Self {
        let backend = Self::backend(servers, prefix);
        let (clock, offset) = (backend.clock.clone(), Arc::clone(&backend.offset));
        Self {
            engine: Arc::new(Engine::new(name, backend, Clock::Server(clock))),
            timeout,
            offset,
        }
    }

    fn backend(servers: Servers, prefix: &str) -> Redis {
        Redis {
            servers,
            names: Names::new(prefix),
            clock: ServerClock::new(),
            offset: Arc::default(),
            limits: KnownLimits::default(),
            untold: Untold::default(),
        }
    }

    /// Sets how long a charge or a look may wait for its answer, from 1 ms to 10 s; 250 ms by default. What is outside
    /// counts as the nearer end. It holds for all clones.
    ///
    /// After it the limiter's failure mode decides. The time is real time, also when a test has paused tokio's.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.engine.set_deadline(deadline);
        self.timeout.set(deadline);
        self
    }

    /// Sets how many keys are answered from memory at most, from 16; 65,536 by default. It holds for all clones.
    ///
    /// So many keys of which units were charged ahead, and so many that are known to be over (see
    /// [`Policy::leases`](crate::Policy::leases)), are remembered. Beyond that those go first that were not used lately. A key that is not
    /// remembered is decided by the server, which is slower and just as exact: no limit hangs on this number.
    #[must_use]
    pub fn max_keys_in_memory(self, max_keys: usize) -> Self {
        self.engine.set_max_keys(max_keys);
        self
    }

    /// Sets the clock that every decision on this store is made by, in place of the server's. Only the first call counts.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn clock(self, clock: &ManualClock) -> Self {
        self.engine.set_clock(Clock::Manual(clock.clone()));
        self
    }

    /// Moves the server's clock by milliseconds, as this node sees it. For tests of what a step of it does.
    #[cfg(any(test, feature = "test-util"))]
    #[doc(hidden)]
    pub fn move_server_clock(&self, millis: i64) {
        self.offset
            .store(millis, std::sync::atomic::Ordering::Relaxed);
    }

    /// How the store is: whether it answers, since when and why it does not, and how much waits. The server is not asked.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        self.engine.report()
    }

    /// Writes what waits and closes the connection, also while layers still hold the store.
    ///
    /// Later charges get [`StoreError::Closed`], for which each limiter's failure mode decides: by default they are counted in
    /// this process's memory. Closing a closed store does nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when units that were charged ahead can't be given back.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.engine.close().await
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("name", &self.engine.name())
            .finish_non_exhaustive()
    }
}

impl Store for RedisStore {
    fn handle(&self) -> StoreHandle {
        StoreHandle(Handle::Queued(Arc::clone(&self.engine)))
    }
}

/// What log lines call the store: the address, and the database when it is not the first. Nothing of the user.
fn name(info: &ConnectionInfo) -> String {
    match info.redis_settings().db() {
        0 => format!("redis {}", info.addr()),
        db => format!("redis {}/{db}", info.addr()),
    }
}

fn info_of(url: &str) -> Result<ConnectionInfo, RedisOpenError> {
    let info = url.into_connection_info().map_err(|error| {
        // With TLS it would be a good one.
        let is_without_tls = plain(url).is_some_and(|plain| plain.into_connection_info().is_ok());
        if is_without_tls {
            RedisOpenError::NoTls
        } else {
            invalid(&error)
        }
    })?;
    // It tells when a connection has ended while nobody asks anything.
    let settings = info.redis_settings().clone();
    Ok(info.set_redis_settings(settings.set_protocol(ProtocolVersion::RESP3)))
}

/// The same URL without TLS, when it is one with TLS.
fn plain(url: &str) -> Option<String> {
    let rest = ["rediss://", "valkeys://"].map(|scheme| url.strip_prefix(scheme));
    let rest = rest.into_iter().flatten().next()?;
    Some(format!("redis://{rest}"))
}

fn check_prefix(prefix: &str) -> Result<(), RedisOpenError> {
    let is_odd = |char: char| char.is_control() || "{}".contains(char);
    if prefix.len() > LONGEST_PREFIX || prefix.contains(is_odd) {
        return Err(RedisOpenError::InvalidPrefix);
    }
    Ok(())
}

/// Why a URL will not do. The URL itself may have a password.
fn invalid(error: &redis::RedisError) -> RedisOpenError {
    RedisOpenError::InvalidUrl(error.category().to_owned())
}
