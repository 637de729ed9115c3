//! The connection: how it is opened, kept sound after an error, and given up when it hangs.

mod opening;
mod test_time;

use std::future::Future;
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Connection, PgConnection, Postgres};
use tokio::time::timeout_at;

use self::opening::Opened;
pub(super) use self::test_time::TestTime;
use super::PostgresOpenError;
use super::location::Location;
use super::sql_state::{Meaning, store_error};
use super::statements::Statements;
use crate::clock::{self, Clock, ServerClock};
use crate::limit::Timestamp;
use crate::store::StoreError;

/// A call that takes longer is given up with its connection: the server or the network stands still. It is longer than the
/// server's own timeout for a statement, and half of what a row outlives its use by.
const CALL_PATIENCE: Duration = Duration::from_secs(5);
/// The same of an opening, which may have to wait for another node that makes the tables.
const OPENING_PATIENCE: Duration = Duration::from_secs(20);
/// The same when it was open before: charges wait for it.
const REOPENING_PATIENCE: Duration = Duration::from_secs(3);
/// How soon after a failed opening it is tried again: twice as long each time, up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);
/// A connection that was not used for so long may have been closed by the server, or by something between: it is asked first.
const IDLE_AFTER: Duration = Duration::from_secs(5);
/// How often a call is made that other nodes are in the way of.
const ATTEMPTS: u32 = 5;

/// What a call is made of: the statement and what it takes. It is made once more when it is tried again.
pub(super) type Call<'q> = Query<'q, Postgres, PgArguments>;

/// One connection of its own, opened when it is needed.
pub(super) struct Database {
    location: Location,
    clock: ServerClock,
    pub(super) time: Arc<TestTime>,
    connection: Option<PgConnection>,
    /// Set while a call is under way: still set at the next one when a call was given up or panicked.
    is_unsound: bool,
    used_at: Instant,
    statements: Option<Arc<Statements>>,
    /// The number of the counters, as it was when they were last seen.
    generation: Option<String>,
    has_lost: bool,
    failure: Option<Failure>,
    #[cfg(test)]
    calls: Arc<std::sync::atomic::AtomicU64>,
}

/// An opening that has failed.
struct Failure {
    error: PostgresOpenError,
    try_at: Instant,
    pause: Duration,
}

impl Database {
    pub(super) fn new(location: Location, clock: ServerClock, time: Arc<TestTime>) -> Self {
        Self {
            location,
            clock,
            time,
            connection: None,
            is_unsound: false,
            used_at: clock::monotonic(),
            statements: None,
            generation: None,
            has_lost: false,
            failure: None,
            #[cfg(test)]
            calls: Arc::default(),
        }
    }

    /// Opens it when it is not open, and hears the server's time.
    pub(super) async fn open(&mut self) -> Result<(), StoreError> {
        self.sound_connection().await?;
        self.is_unsound = false;
        Ok(())
    }

    /// The instant of a decision, where a test sets it, and by how much the server's clock is moved: what each function takes
    /// first.
    pub(super) fn moment(&self, clock: &Clock) -> (Option<i64>, i64) {
        let given = clock.manual().map(Timestamp::unix_millis);
        (given, self.time.shift())
    }

    /// Makes a call, all of which is done or nothing, and what came of it when the error says so. Where it can't be known, the
    /// error is one that nothing is tried again after.
    pub(super) async fn call<'q>(
        &mut self,
        call: impl Fn(&Statements) -> Call<'q>,
    ) -> Result<Vec<PgRow>, StoreError> {
        let mut attempt = 1;
        loop {
            let (statements, connection) = self.sound_connection().await?;
            let answer = patient(CALL_PATIENCE, call(&statements).fetch_all(connection)).await;
            self.used_at = clock::monotonic();
            #[cfg(test)]
            self.calls.fetch_add(1, Ordering::Relaxed);
            let Some(answer) = answer else {
                self.drop_connection();
                return Err(StoreError::DeadlineExceeded);
            };
            let error = match answer {
                Ok(rows) => {
                    self.is_unsound = false;
                    return Ok(rows);
                }
                Err(error) => error,
            };
            match Meaning::of(&error) {
                Meaning::Again | Meaning::Undone { .. } => self.is_unsound = false,
                Meaning::Ended | Meaning::InDoubt => self.drop_connection(),
            }
            if Meaning::of(&error) != Meaning::Again || attempt >= ATTEMPTS {
                return Err(store_error(error));
            }
            attempt += 1;
        }
    }

    /// The same for what is not after the instant of the node.
    pub(super) fn moment_until(&self, now: Timestamp) -> (Option<i64>, i64) {
        let given = self.time.is_given().then_some(now.unix_millis());
        (given, self.time.shift())
    }

    /// Notes the server's time, as an answer has told it.
    pub(super) fn heard(&self, sent: Instant, at: Timestamp, clock: &Clock) {
        if clock.manual().is_none() {
            self.clock.heard(sent, at);
        }
    }

    /// The same of an answer that is about no decision.
    pub(super) fn overheard(&self, sent: Instant, at: Timestamp) {
        self.clock.heard(sent, at);
    }

    /// Whether the counters were lost, and that was not taken notice of yet.
    pub(super) fn has_lost(&self) -> bool {
        self.has_lost
    }

    /// Whether the counters were lost since this was last asked.
    pub(super) fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.has_lost)
    }

    pub(super) async fn close(&mut self) -> Result<(), StoreError> {
        match self.connection.take() {
            // What was to be stored is; that it can't be told goodbye is no matter.
            Some(connection) if !self.is_unsound => {
                let _ = patient(REOPENING_PATIENCE, connection.close()).await;
            }
            _ => {}
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn clock(&self) -> Clock {
        Clock::Server(self.clock.clone())
    }

    /// The number of the counters.
    #[cfg(test)]
    pub(super) fn generation(&self) -> Option<&str> {
        self.generation.as_deref()
    }

    /// How many calls were made.
    #[cfg(test)]
    pub(super) fn calls(&self) -> Arc<std::sync::atomic::AtomicU64> {
        Arc::clone(&self.calls)
    }

    async fn sound_connection(
        &mut self,
    ) -> Result<(Arc<Statements>, &mut PgConnection), StoreError> {
        if self.is_unsound {
            self.drop_connection();
        }
        let is_idle = clock::monotonic().duration_since(self.used_at) > IDLE_AFTER;
        if let (Some(connection), true) = (&mut self.connection, is_idle)
            && !matches!(
                patient(REOPENING_PATIENCE, connection.ping()).await,
                Some(Ok(()))
            )
        {
            self.drop_connection();
        }
        if self.connection.is_none() {
            self.reopen().await?;
        }
        self.is_unsound = true;
        match (&self.statements, &mut self.connection) {
            (Some(statements), Some(connection)) => Ok((Arc::clone(statements), connection)),
            _ => Err(StoreError::Closed),
        }
    }

    async fn reopen(&mut self) -> Result<(), StoreError> {
        if let Some(failure) = &self.failure
            && clock::monotonic() < failure.try_at
        {
            return Err(failure.error.clone().into());
        }
        let is_first = self.statements.is_none();
        let patience = if is_first {
            OPENING_PATIENCE
        } else {
            REOPENING_PATIENCE
        };
        let shift = self.time.shift();
        let sent = clock::monotonic();
        let opened = patient(patience, opening::open(&self.location, shift)).await;
        let opened = opened.unwrap_or_else(|| {
            Err(PostgresOpenError::Unreachable {
                server: self.location.server(),
                source: Arc::new(StoreError::DeadlineExceeded),
            })
        });
        match opened {
            Ok(opened) => {
                self.opened(opened, sent);
                Ok(())
            }
            Err(error) => {
                let before = self.failure.as_ref();
                let pause = before.map_or(SHORTEST_PAUSE, |failure| {
                    LONGEST_PAUSE.min(2 * failure.pause)
                });
                self.failure = Some(Failure {
                    error: error.clone(),
                    try_at: clock::monotonic() + pause,
                    pause,
                });
                Err(error.into())
            }
        }
    }

    fn opened(&mut self, opened: Opened, sent: Instant) {
        self.failure = None;
        self.is_unsound = false;
        self.used_at = clock::monotonic();
        self.clock.heard(sent, opened.at);
        let is_known = self.generation.as_ref();
        self.has_lost |= is_known.is_some_and(|generation| *generation != opened.generation);
        self.generation = Some(opened.generation);
        self.statements = Some(opened.statements);
        self.connection = Some(opened.connection);
    }

    /// Without a word to the server, which may not listen.
    fn drop_connection(&mut self) {
        self.connection = None;
        self.is_unsound = false;
    }
}

/// `None` when it takes longer.
async fn patient<T>(patience: Duration, call: impl Future<Output = T>) -> Option<T> {
    let give_up_at = clock::monotonic() + patience;
    timeout_at(give_up_at.into(), call).await.ok()
}
