//! A connection beside that of the writer, which moves the WAL into the database: the writer need not stop for it.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sqlx::{ConnectOptions, Connection, Row, SqliteConnection};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::task::JoinHandle;
use tokio::time::sleep_until;

use super::frames::Frames;
use super::{Files, Location, settings};
use crate::clock;
use crate::store::sqlite::files::apart;

/// From a write to the look how much there is, while others may follow: under full load that is a megabyte.
const AFTER_WRITE: Duration = Duration::from_millis(20);
/// So many pages are worth a checkpoint. After one of all that there is, the next write begins the WAL anew and waits for the disk:
/// charges that come now and then would do so each time.
const ENOUGH: u64 = 1_000;
/// Only a writer's own checkpoint reaches the end of the WAL, so that it begins anew. When it is long, they are left to it: those
/// of several processes could leave no moment for it.
const LEFT_TO_OTHERS: Duration = Duration::from_millis(200);
/// After a failure: twice as long each time, up to the longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// It waits for nobody, neither for readers nor for the writer, and leaves what they need.
const CHECKPOINT: &str = "PRAGMA wal_checkpoint(PASSIVE)";

/// The task that checkpoints, on the writer's runtime; what it asks of SQLite is done on a thread of its connection. Nothing but
/// the WAL's length hangs on it: the writer checkpoints a WAL that has become long all the same.
pub(super) struct Checkpoints {
    signals: Arc<Signals>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Signals {
    wrote: Notify,
    end: Notify,
    #[cfg(test)]
    made: std::sync::atomic::AtomicUsize,
}

impl Checkpoints {
    /// Begins to checkpoint the database that consists of these files, when enough was written. The writer checkpoints a WAL of so
    /// many pages itself.
    pub(super) fn begin(location: Arc<Location>, files: Option<Files>, long: i64) -> Self {
        let signals = Arc::<Signals>::default();
        let beside = Beside {
            location,
            files,
            long,
            done: Frames::default(),
            connection: None,
        };
        let task = tokio::spawn(run(beside, Arc::clone(&signals)));
        Self { signals, task }
    }

    /// Notes that there is something in the WAL.
    pub(super) fn wrote(&self) {
        self.signals.wrote.notify_one();
    }

    /// How many checkpoints it has made.
    #[cfg(test)]
    pub(super) fn made(&self) -> usize {
        self.signals.made.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// Ends it, and closes its connection. A call that is under way is waited for.
    pub(super) async fn end(mut self) {
        self.signals.end.notify_one();
        // Should it have panicked, its connection is gone with it.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.signals.end.notify_one();
    }
}

/// The connection, opened when it is needed.
struct Beside {
    location: Arc<Location>,
    files: Option<Files>,
    long: i64,
    /// What was in the WAL at the last checkpoint.
    done: Frames,
    connection: Option<SqliteConnection>,
}

async fn run(mut beside: Beside, signals: Arc<Signals>) {
    let mut end = pin!(signals.end.notified());
    let mut pause = AFTER_WRITE;
    loop {
        if !comes_before(end.as_mut(), signals.wrote.notified()).await {
            break;
        }
        let timer = sleep_until((clock::monotonic() + pause).into());
        if !comes_before(end.as_mut(), timer).await {
            break;
        }
        let there = beside.there().await;
        if there.is_some_and(|there| there.since(beside.done) < ENOUGH) {
            continue;
        }
        let made = beside.checkpoint().await;
        #[cfg(test)]
        if made.is_ok() {
            let count = &signals.made;
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
        if made.is_ok() {
            beside.done = there.unwrap_or_default();
        }
        pause = match made {
            Ok(false) => AFTER_WRITE,
            Ok(true) => LEFT_TO_OTHERS,
            Err(error) => {
                tracing::debug!(%error, "a checkpoint of the rate limit store failed and will be tried again");
                LONGEST_PAUSE.min(2 * pause)
            }
        };
    }
    if let Some(connection) = beside.connection
        && let Err(error) = connection.close().await
    {
        tracing::debug!(%error, "the connection that checkpoints the rate limit store did not close cleanly");
    }
}

impl Beside {
    /// What is in the WAL, of other processes too; `None` when its file can't be read.
    async fn there(&self) -> Option<Frames> {
        let location = Arc::clone(&self.location);
        apart(move || Frames::read(&location.wal_path()?).ok()).await
    }

    /// Moves what it can into the database. What has to stay in the WAL, for a reader or since it was written meanwhile, is for
    /// the next time: after a write, so that an idle process does nothing. Says whether the WAL is long.
    async fn checkpoint(&mut self) -> Result<bool, sqlx::Error> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => match self.open().await? {
                Some(connection) => connection,
                None => return Ok(false),
            },
        };
        match sqlx::query(CHECKPOINT).fetch_all(&mut connection).await {
            Ok(rows) => {
                self.connection = Some(connection);
                let pages = rows.first().map_or(Ok(0), |row| row.try_get::<i64, _>(1))?;
                Ok(pages > self.long)
            }
            Err(error) => {
                // It is opened anew. Dropped, it would be closed at some later moment.
                let _ = connection.close().await;
                Err(error)
            }
        }
    }

    /// Opens it, unless another file has taken the place of the database's: SQLite would play the WAL into that. The writer will
    /// notice it, and end this.
    async fn open(&self) -> Result<Option<SqliteConnection>, sqlx::Error> {
        if let Some(files) = self.files {
            let location = Arc::clone(&self.location);
            if !apart(move || files.are_at(&location)).await {
                return Ok(None);
            }
        }
        let options =
            settings::of(&self.location, false).thread_name(|_| "tollgate-wal".to_owned());
        options.connect().await.map(Some)
    }
}

/// Waits for an event, and says whether it came before the end.
async fn comes_before(mut end: Pin<&mut Notified<'_>>, event: impl Future) -> bool {
    let mut event = pin!(event);
    std::future::poll_fn(|cx| {
        if end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(false);
        }
        event.as_mut().poll(cx).map(|_| true)
    })
    .await
}
