//! A sliding window that is full: as many events as the limit, all of different milliseconds.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use tollgate::{Key, Limiter, ManualClock, Policy, SqliteStore, Timestamp};

use super::WINDOW_SECONDS;
use super::classic::Classic;
use crate::measured::Measured;
use crate::turn::{self, Asker};

/// A disk that stalls for a moment is to be seen in the numbers, not to end the run.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Who counts the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// This crate's exact sliding window.
    Tollgate,
    /// Count, then insert.
    Classic,
}

/// How a full window is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The clock stands still, and every charge is refused.
    Refused,
    /// Before each charge the clock goes on until one event has left, so that every charge is admitted.
    Admitted,
}

impl Method {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Tollgate => "tollgate",
            Self::Classic => "count, then insert",
        }
    }
}

impl Asked {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Admitted => "admitted",
        }
    }
}

/// One key's window, with the clock that it is decided by.
#[derive(Clone)]
pub(super) struct Window {
    counter: Counter,
    limit: u32,
    clock: ManualClock,
}

#[derive(Clone)]
enum Counter {
    Tollgate(Limiter, SqliteStore, Key),
    Classic(Classic, String),
}

impl Window {
    pub(super) async fn open(
        method: Method,
        limit: u32,
        clock: &ManualClock,
        database: &Path,
        pool: u32,
    ) -> Result<Self> {
        let counter = match method {
            Method::Tollgate => {
                let store = SqliteStore::open(database).await?;
                let store = store.clock(clock).deadline(PATIENCE);
                let policy = Policy::sliding(limit, WINDOW_SECONDS).name("bench");
                let limiter = Limiter::new(policy).store(&store);
                Counter::Tollgate(limiter, store, Key::new("client", "full"))
            }
            Method::Classic => {
                let classic = Classic::open(database, pool).await?;
                Counter::Classic(classic, "client:full".to_owned())
            }
        };
        Ok(Self {
            counter,
            limit,
            clock: clock.clone(),
        })
    }

    /// The same window with another key, of which nothing is used.
    pub(super) fn of_key(&self, value: &str) -> Self {
        let counter = match &self.counter {
            Counter::Tollgate(limiter, store, _) => {
                Counter::Tollgate(limiter.clone(), store.clone(), Key::new("client", value))
            }
            Counter::Classic(classic, _) => {
                Counter::Classic(classic.clone(), format!("client:{value}"))
            }
        };
        Self {
            counter,
            ..self.clone()
        }
    }

    /// Admits as many events as the limit, evenly over the window: the last one now.
    pub(super) async fn fill(&self) -> Result<()> {
        for _ in 0..self.limit {
            self.clock.advance(self.spacing());
            ensure!(
                self.is_allowed().await?,
                "an event was refused while the window was filled"
            );
        }
        Ok(())
    }

    /// Has so many tasks ask for decisions, each for one after the other.
    pub(super) async fn load(&self, asked: Asked, tasks: usize, seconds: f64) -> Result<Measured> {
        let task = |_| Task {
            window: self.clone(),
            asked,
        };
        turn::take((0..tasks).map(task).collect(), seconds).await
    }

    /// Asks for one decision, and says whether it is the one that it should be.
    pub(super) async fn ask(&self, asked: Asked) -> Result<bool> {
        if asked == Asked::Admitted {
            self.clock.advance(self.spacing());
        }
        Ok(self.is_allowed().await? == (asked == Asked::Admitted))
    }

    pub(super) async fn is_allowed(&self) -> Result<bool> {
        match &self.counter {
            Counter::Tollgate(limiter, _, key) => Ok(limiter.check(key).await?.is_allowed()),
            Counter::Classic(classic, key) => {
                classic.is_allowed(key, self.limit, self.clock.now()).await
            }
        }
    }

    /// What a pool is set to; this crate has nothing to tell.
    pub(super) async fn settings(&self) -> Result<String> {
        match &self.counter {
            Counter::Classic(classic, _) => classic.settings().await,
            Counter::Tollgate(..) => Ok(String::new()),
        }
    }

    pub(super) async fn close(&self) -> Result<()> {
        match &self.counter {
            Counter::Tollgate(_, store, _) => Ok(store.close().await?),
            Counter::Classic(classic, _) => {
                classic.close().await;
                Ok(())
            }
        }
    }

    /// The time between two events: each has a millisecond of its own up to a limit of 60,000.
    fn spacing(&self) -> Duration {
        Duration::from_millis(WINDOW_SECONDS * 1_000 / u64::from(self.limit.max(1)))
    }
}

/// The instant at which the clocks begin.
pub(super) fn start() -> ManualClock {
    ManualClock::new(Timestamp::from_unix_millis(1_800_000_000_000))
}

/// One that asks.
struct Task {
    window: Window,
    asked: Asked,
}

impl Asker for Task {
    async fn ask(&mut self) -> Result<bool> {
        self.window.ask(self.asked).await
    }
}
