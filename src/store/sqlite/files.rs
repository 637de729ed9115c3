//! The files of a database by their identity, so that it is noticed when others have taken their place.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;

use super::{Location, OpenError};

/// Does what hangs with the file system on a thread beside: the deadlines are watched on this one.
pub(super) async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await {
        Ok(done) => done,
        // Nobody cancels it. A panic goes on here, and ends where the call is watched.
        Err(error) => resume_unwind(error.into_panic()),
    }
}

/// Which files an open database consists of, by what the file system tells of their paths. They are never opened for it:
/// closing the database's file again would drop the locks that SQLite holds on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files {
    database: Identity,
    wal: Option<Identity>,
}

/// Device and inode.
type Identity = (u64, u64);

impl Files {
    /// What is at the place of a database. `None` for one in memory, when there is no file, and where files have no identity.
    pub(super) fn at(location: &Location) -> Option<Self> {
        let (Location::File { path, .. } | Location::Application { path, .. }) = location else {
            return None;
        };
        Some(Self {
            database: identity(path)?,
            wal: location.wal_path().as_deref().and_then(identity),
        })
    }

    /// The same with the WAL that is there now: opening the database has made it.
    pub(super) fn with_wal_at(self, location: &Location) -> Self {
        let wal = location.wal_path().as_deref().and_then(identity);
        Self { wal, ..self }
    }

    /// Whether the database's file is still in its place.
    pub(super) fn is_database_at(&self, location: &Location) -> bool {
        Self::at(location).is_some_and(|files| files.database == self.database)
    }

    /// Whether all of them are. While a database is open SQLite makes no other WAL.
    pub(super) fn are_at(&self, location: &Location) -> bool {
        Self::at(location).is_some_and(|files| {
            files.database == self.database && (self.wal.is_none() || files.wal == self.wal)
        })
    }

    /// Whether the WAL that lies beside another database is of this one.
    fn is_wal_left_at(&self, location: &Location) -> bool {
        let wal = location.wal_path().as_deref().and_then(identity);
        wal.is_some() && wal == self.wal && !self.is_database_at(location)
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Path) -> Option<Identity> {
    None
}

/// Keeps other processes from clearing a place and making a database there, until it is dropped. It never waits: a process that
/// stands still with the lock would hold up this one for as long.
pub(super) fn lock_folder_of(path: &Path) -> Result<Option<File>, OpenError> {
    if cfg!(not(unix)) {
        return Ok(None);
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        return Err(OpenError::NoFolder(path.to_owned()));
    }
    let Ok(folder) = File::open(folder) else {
        // It may be written all the same.
        return Ok(None);
    };
    match folder.try_lock() {
        Ok(()) => Ok(Some(folder)),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked(path.to_owned())),
        // Not every file system has locks on folders.
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Deletes the WAL and its index where the database that they belong to is gone. SQLite would play them into the one that takes its
/// place, and a process that has not noticed yet goes on to write into them.
pub(super) fn clear_leftovers(location: &Location, lost: Option<&Files>) -> Result<(), OpenError> {
    let Location::File { path, .. } = location else {
        return Ok(());
    };
    let is_left = !path.exists() || lost.is_some_and(|lost| lost.is_wal_left_at(location));
    if !is_left {
        return Ok(());
    }
    for leftover in [location.wal_path(), location.beside("-shm")] {
        delete(leftover)?;
    }
    Ok(())
}

fn delete(path: Option<PathBuf>) -> Result<(), OpenError> {
    match path.map(fs::remove_file) {
        Some(Err(error)) if error.kind() != ErrorKind::NotFound => Err(OpenError::failed(error)),
        _ => Ok(()),
    }
}
