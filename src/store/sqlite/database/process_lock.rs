//! A lock of the operating system around each write, so that processes wake each other where SQLite would have them sleep.

#[cfg(unix)]
use std::fs::Permissions;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use tokio::time::sleep_until;
use tracing::Level;

use super::Location;
use crate::clock;
use crate::store::TARGET;
use crate::store::sqlite::files::apart;

/// Several times what others need for their writes. Who waits longer writes without it, and is held up by SQLite's lock alone:
/// together that is no longer than the usual deadline.
const PATIENCE: Duration = Duration::from_millis(50);
/// When the file can't be made or locked, it is tried again after so long.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// What the name of its file ends with.
const SUFFIX: &str = "-lock";

/// The lock of a database, taken only while it is switched on. Nothing but time hangs on it: the writes are those of SQLite, with
/// its own lock, and a process that does not know of this one is safe.
pub(super) struct ProcessLock {
    is_on: Arc<AtomicBool>,
    file: Option<Arc<File>>,
    try_at: Instant,
    has_warned: bool,
}

/// One's turn to write, until it is dropped or the process ends, however it does.
pub(super) struct Turn(Arc<File>);

impl Drop for Turn {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::debug!(%error, "the process lock of the rate limit store was not released");
        }
    }
}

impl ProcessLock {
    pub(super) fn new() -> Self {
        Self {
            is_on: Arc::default(),
            file: None,
            try_at: clock::monotonic(),
            has_warned: false,
        }
    }

    pub(super) fn switch(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_on)
    }

    /// Waits for its turn, and gives up after a while: a process that stands still with the lock would hold up this one for as long.
    pub(super) async fn turn(&mut self, location: &Arc<Location>) -> Option<Turn> {
        if !self.is_on.load(Ordering::Relaxed) || clock::monotonic() < self.try_at {
            return None;
        }
        match self.wait(location).await {
            Ok(turn) => turn,
            Err(error) => {
                self.tell(location, &error);
                self.file = None;
                self.try_at = clock::monotonic() + AFTER_FAILURE;
                None
            }
        }
    }

    /// Lets the file go: the one that lies beside the database may be another one now.
    pub(super) fn forget_file(&mut self) {
        self.file = None;
    }

    /// Warns once: what follows is each second the same.
    fn tell(&mut self, location: &Location, error: &io::Error) {
        if mem::replace(&mut self.has_warned, true) {
            tracing::debug!(%error, "the process lock of the rate limit store can't be used and will be tried again");
            return;
        }
        tracing::event!(
            name: "tollgate.process_lock_unusable",
            target: TARGET,
            Level::WARN,
            store = location.name(),
            %error,
            "the process lock of the rate limit store can't be used: charges go on without it, and it is tried again each second"
        );
    }

    #[cfg(test)]
    pub(super) fn is_passed_by(&self) -> bool {
        self.file.as_ref().is_some_and(is_waited_for)
    }

    async fn wait(&mut self, location: &Arc<Location>) -> io::Result<Option<Turn>> {
        let file = match &self.file {
            Some(file) => file,
            None => {
                let location = Arc::clone(location);
                let Some(file) = apart(move || open(&location)).await? else {
                    return Ok(None);
                };
                self.file.insert(Arc::new(file))
            }
        };
        if is_waited_for(file) {
            return Ok(None);
        }
        match file.try_lock() {
            Ok(()) => return Ok(Some(Turn(Arc::clone(file)))),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let file = Arc::clone(file);
        // When it has the lock and nobody waits any more, the turn is dropped there.
        let mut waiting = pin!(spawn_blocking(move || file.lock().map(|()| Turn(file))));
        let mut timer = pin!(sleep_until((clock::monotonic() + PATIENCE).into()));
        std::future::poll_fn(|cx| match waiting.as_mut().poll(cx) {
            Poll::Ready(Ok(turn)) => Poll::Ready(turn.map(Some)),
            Poll::Ready(Err(_)) => Poll::Ready(Ok(None)),
            Poll::Pending => timer.as_mut().poll(cx).map(|()| Ok(None)),
        })
        .await
    }
}

/// Whether a thread still waits for the lock, for a turn that was given up. Nobody else has the file while there is no turn.
fn is_waited_for(file: &Arc<File>) -> bool {
    Arc::strong_count(file) > 1
}

/// Opens the file, and makes it when it is not there, for those who may use the database. It stays: a process that deletes it would
/// leave others with a lock of their own.
fn open(location: &Location) -> io::Result<Option<File>> {
    let Some(path) = location.beside(SUFFIX) else {
        return Ok(None);
    };
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(&path) {
        Ok(file) => {
            #[cfg(unix)]
            share(&file, location)?;
            Ok(Some(file))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            OpenOptions::new().write(true).open(path).map(Some)
        }
        Err(error) => Err(error),
    }
}

/// Gives a new file the group and the mode of the database's, whatever the umask. Only its metadata is asked for: closing that file
/// would drop the locks that SQLite holds on it.
#[cfg(unix)]
fn share(file: &File, location: &Location) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    let database = std::fs::metadata(location.path())?;
    // It may be a group that this process is not in; then the folder decides.
    let _ = fchown(file, None, Some(database.gid()));
    file.set_permissions(Permissions::from_mode(database.mode() & 0o666))
}
