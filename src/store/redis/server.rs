//! The connection to one server, and the scripts that it has.
//!
//! A call that gets no answer in time is given up, and its connection with it: the answer would be taken for that of the next call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, PushInfo, PushKind, Value};

use super::failure::{certain, failure, is_no_script};
use super::scripts::{SCRIPTS, Script};
use crate::clock;
use crate::store::StoreError;

/// After a connection could not be made, the next one is tried after so long: twice as long each time, up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A server answers in less than a millisecond. One that takes so long stands still, or the network does.
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a call may take, shared with the handles of the store: no less than the deadline of a charge.
#[derive(Clone, Debug)]
pub(super) struct Timeout(Arc<AtomicU64>);

impl Timeout {
    pub(super) fn new() -> Self {
        let millis = u64::try_from(SHORTEST_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        Self(Arc::new(AtomicU64::new(millis)))
    }

    pub(super) fn set(&self, deadline: Duration) {
        let timeout = deadline.max(SHORTEST_TIMEOUT);
        let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.0.store(millis, Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// One server.
pub(super) struct Server {
    client: Client,
    timeout: Timeout,
    link: Option<Link>,
    shas: [Option<String>; SCRIPTS],
    /// When a connection may be tried again, and why the last one was not made.
    try_at: Option<(Instant, StoreError)>,
    pause: Duration,
}

/// A connection, as long as it is one.
struct Link {
    connection: MultiplexedConnection,
    has_ended: Arc<AtomicBool>,
}

/// What a call has brought, and when it was sent.
pub(super) struct Answer {
    pub(super) sent: Instant,
    pub(super) value: Value,
}

impl Server {
    pub(super) fn new(client: Client, timeout: Timeout) -> Self {
        Self {
            client,
            timeout,
            link: None,
            shas: Default::default(),
            try_at: None,
            pause: SHORTEST_PAUSE,
        }
    }

    /// Runs a script, which is loaded when the server has not got it.
    pub(super) async fn run(
        &mut self,
        script: Script,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> Result<Answer, StoreError> {
        // Another client may have it forgotten in between.
        for _ in 0..2 {
            let sha = match &self.shas[script as usize] {
                Some(sha) => sha.clone(),
                None => self.load(script).await?,
            };
            let mut cmd = Cmd::with_capacity(3 + keys.len() + arguments.len(), 4_096);
            cmd.arg("EVALSHA").arg(sha).arg(keys.len()).arg(keys);
            for argument in arguments {
                cmd.arg(&**argument);
            }
            let sent = clock::monotonic();
            match self.send(&cmd).await? {
                Ok(value) => return Ok(Answer { sent, value }),
                Err(error) if is_no_script(&error) => self.forget(script),
                Err(error) => return Err(failure(error)),
            }
        }
        Err(certain(ScriptForgotten))
    }

    /// A connection, and what the server calls a script, which is loaded when it has not got it.
    pub(super) async fn ready(
        &mut self,
        script: Script,
    ) -> Result<(MultiplexedConnection, String), StoreError> {
        let sha = match &self.shas[script as usize] {
            Some(sha) => sha.clone(),
            None => self.load(script).await?,
        };
        let link = self.connected().await?;
        Ok((link.connection.clone(), sha))
    }

    /// The server has forgotten a script.
    pub(super) fn forget(&mut self, script: Script) {
        self.shas[script as usize] = None;
    }

    /// Asks for something without a script.
    pub(super) async fn ask(&mut self, cmd: &Cmd) -> Result<Answer, StoreError> {
        let sent = clock::monotonic();
        let value = self.send(cmd).await?.map_err(failure)?;
        Ok(Answer { sent, value })
    }

    /// Lets go of the connection.
    pub(super) fn close(&mut self) {
        self.link = None;
    }

    async fn load(&mut self, script: Script) -> Result<String, StoreError> {
        let mut cmd = Cmd::new();
        cmd.arg("SCRIPT").arg("LOAD").arg(script.text());
        let value = self.send(&cmd).await?.map_err(failure)?;
        let sha: String = redis::from_redis_value(value).map_err(|error| failure(error.into()))?;
        self.shas[script as usize] = Some(sha.clone());
        Ok(sha)
    }

    /// Sends a command. The outer error is of the connection, the inner one the server's.
    async fn send(&mut self, cmd: &Cmd) -> Result<Result<Value, redis::RedisError>, StoreError> {
        let link = self.connected().await?;
        let sent = link.connection.send_packed_command(cmd).await;
        match sent.and_then(Value::extract_error) {
            Ok(value) => Ok(Ok(value)),
            Err(error) if is_of_server(&error) => {
                // It is no master any more: what leads to the one that is now leads elsewhere.
                let is_replica = matches!(error.code(), Some("READONLY" | "MASTERDOWN"));
                if is_replica || error.is_unrecoverable_error() {
                    self.link = None;
                }
                Ok(Err(error))
            }
            Err(error) => {
                self.link = None;
                Err(failure(error))
            }
        }
    }

    async fn connected(&mut self) -> Result<&mut Link, StoreError> {
        let has_ended = |link: &Link| link.has_ended.load(Ordering::Relaxed);
        if self.link.as_ref().is_some_and(has_ended) {
            self.link = None;
        }
        if self.link.is_none() {
            let link = self.connect().await?;
            return Ok(self.link.insert(link));
        }
        self.link.as_mut().ok_or(StoreError::Closed)
    }

    async fn connect(&mut self) -> Result<Link, StoreError> {
        if let Some((try_at, error)) = &self.try_at
            && clock::monotonic() < *try_at
        {
            return Err(error.clone());
        }
        let has_ended = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&has_ended);
        let timeout = self.timeout.get();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(timeout))
            .set_response_timeout(Some(timeout))
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    told.store(true, Ordering::Relaxed);
                }
                Ok::<_, ()>(())
            });
        let connecting = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        match connecting.await {
            Ok(connection) => {
                self.try_at = None;
                self.pause = SHORTEST_PAUSE;
                Ok(Link {
                    connection,
                    has_ended,
                })
            }
            Err(error) => {
                // Nothing was asked yet.
                let error = certain(error);
                self.try_at = Some((clock::monotonic() + self.pause, error.clone()));
                self.pause = LONGEST_PAUSE.min(2 * self.pause);
                Err(error)
            }
        }
    }
}

/// The server forgets scripts as soon as it has loaded them.
#[derive(Debug)]
struct ScriptForgotten;

impl std::fmt::Display for ScriptForgotten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the server has forgotten a script that was just loaded")
    }
}

impl std::error::Error for ScriptForgotten {}

/// Whether the server has answered with it, rather than the connection failed.
fn is_of_server(error: &redis::RedisError) -> bool {
    matches!(
        error.kind(),
        redis::ErrorKind::Server(_) | redis::ErrorKind::Extension
    )
}
