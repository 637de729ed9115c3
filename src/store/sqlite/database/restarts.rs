//! When the WAL is begun anew by force, since readers leave no moment for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::Row;

use super::{Database, Location};
use crate::clock;
use crate::store::StoreError;
use crate::store::sqlite::files::apart;

/// SQLite begins a WAL anew only at a moment without readers. When there was none until it is so much longer than usual, the
/// writer makes one: it waits for those that read, while new ones read the database itself.
const LONGER_BY: u64 = 1 << 20;
/// Each of the two tries waits so long for readers, while nobody on the file can write; after a failure longer, but never
/// as long as others wait for their write. The first try leaves readers on the newest state, which the second one needs:
/// that goes through at once when they are short.
const RESTARTS: [&str; 2] = [
    "PRAGMA busy_timeout = 20; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA wal_checkpoint(TRUNCATE)",
    "PRAGMA busy_timeout = 40; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA wal_checkpoint(TRUNCATE)",
];
/// What it was: `settings::BUSY_TIMEOUT`.
const AFTER_RESTART: &str = "PRAGMA busy_timeout = 200";
/// After a restart that failed, since a reader does not end: twice as long each time, up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// When a long WAL is to be begun anew, and how patiently.
pub(super) struct Restarts {
    usual_bytes: u64,
    due_at: Instant,
    pause: Duration,
    /// Which of `RESTARTS` is next.
    patience: usize,
}

impl Restarts {
    pub(super) fn new() -> Self {
        Self {
            usual_bytes: u64::MAX - LONGER_BY,
            due_at: clock::monotonic(),
            pause: SHORTEST_PAUSE,
            patience: 0,
        }
    }

    /// Notes how long the WAL gets where readers leave a moment.
    pub(super) fn set_usual(&mut self, bytes: u64) {
        self.usual_bytes = bytes;
    }
}

impl Database {
    /// Ends a transaction that a panic has left open, and begins the WAL anew when it has become long, unless it is the
    /// application's: to wait for readers would hold up its writers, and a tool that copies the WAL may forbid it.
    pub(in crate::store::sqlite) async fn restart_long_wal(&mut self) -> Result<(), StoreError> {
        if self.is_unsound {
            // Until then others on the file could not write.
            self.make_sound().await;
        }
        let now = clock::monotonic();
        if now < self.restarts.due_at || self.connection.is_none() {
            return Ok(());
        }
        if !matches!(*self.location, Location::File { .. }) {
            return Ok(());
        }
        let location = Arc::clone(&self.location);
        if apart(move || location.wal_bytes()).await <= self.restarts.usual_bytes + LONGER_BY {
            return Ok(());
        }
        self.restarts.due_at = now + self.restarts.pause;
        let restart = RESTARTS[self.restarts.patience];
        let restarted = self.fetch_all(sqlx::query(restart)).await;
        self.fetch_all(sqlx::query(AFTER_RESTART)).await?;
        let is_done = restarted?
            .last()
            .is_some_and(|row| matches!(row.try_get(0), Ok(0_i64)));
        let restarts = &mut self.restarts;
        if is_done {
            restarts.due_at = now;
            restarts.pause = SHORTEST_PAUSE;
        } else {
            restarts.pause = LONGEST_PAUSE.min(2 * restarts.pause);
            restarts.patience = (RESTARTS.len() - 1).min(restarts.patience + 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::settings::BUSY_TIMEOUT;

    #[test]
    fn the_busy_timeout_is_put_back_after_a_restart() {
        let told = AFTER_RESTART.rsplit(' ').next().unwrap().parse();
        assert_eq!(told, Ok(BUSY_TIMEOUT.as_millis()));
    }
}
