//! Where a database is, and what may be created there.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;

use super::{Files, OpenError, files};
use crate::store::file_sizes::FileSizes;

/// Where a database is.
#[derive(Clone, Debug)]
pub(super) enum Location {
    Memory,
    File {
        path: PathBuf,
        may_create: bool,
        options: Box<SqliteConnectOptions>,
    },
    /// What lies there is the application's: no file of it is made, deleted or set otherwise than its own connections do.
    Application {
        path: PathBuf,
        options: Box<SqliteConnectOptions>,
    },
}

impl Location {
    pub(super) fn from_path(path: &Path) -> Result<Self, OpenError> {
        let text = path.to_str();
        if text == Some(":memory:") {
            return Ok(Self::Memory);
        }
        // SQLite takes a name that begins with file: for a URI, and sqlx only takes UTF-8.
        let is_url = |text: &str| text.starts_with("sqlite:") || text.starts_with("file:");
        if text.is_none_or(|text| text.is_empty() || is_url(text)) {
            return Err(OpenError::NotAPath(path.to_owned()));
        }
        Ok(Self::File {
            path: path.to_owned(),
            may_create: true,
            options: Box::new(SqliteConnectOptions::new().filename(path)),
        })
    }

    pub(super) fn from_url(url: &str) -> Result<Self, OpenError> {
        let rest = url.strip_prefix("sqlite:").ok_or_else(|| {
            OpenError::InvalidUrl(
                "it does not start with sqlite:; for a path there is SqliteStore::open".to_owned(),
            )
        })?;
        let (database, query) = rest.split_once('?').unwrap_or((rest, ""));
        let database = database.trim_start_matches("//");
        let last = |name: &str| {
            let mut parameters = query.split('&').rev();
            parameters.find_map(|parameter| parameter.strip_prefix(name)?.strip_prefix('='))
        };
        let mode = last("mode");
        if database == ":memory:" || mode == Some("memory") {
            return Ok(Self::Memory);
        }
        if database.is_empty() {
            return Err(OpenError::InvalidUrl("it names no file".to_owned()));
        }
        let options = SqliteConnectOptions::from_str(url)
            .map_err(|error| OpenError::InvalidUrl(reason(&error)))?;
        let path = options.get_filename().to_owned();
        if mode == Some("ro") || last("immutable").is_some_and(|value| value != "0") {
            return Err(OpenError::NotWritable(path));
        }
        Ok(Self::File {
            path,
            may_create: mode != Some("rw"),
            options: Box::new(options),
        })
    }

    /// The database that a pool of the application opens. Where its file really is, the first connection tells.
    pub(super) fn from_pool(pool: &SqlitePool) -> Self {
        let options = SqliteConnectOptions::clone(&pool.connect_options());
        let name = options.get_filename();
        let path = match name.to_str().and_then(|name| name.strip_prefix("file:")) {
            Some(uri) => PathBuf::from(uri.split('?').next().unwrap_or(uri)),
            None => name.to_owned(),
        };
        Self::Application {
            path,
            options: Box::new(options),
        }
    }

    pub(super) fn is_applications(&self) -> bool {
        matches!(self, Self::Application { .. })
    }

    /// What log lines call the store: never the whole path.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Memory => "memory".to_owned(),
            Self::File { path, .. } | Self::Application { path, .. } => {
                path.file_name().map_or_else(
                    || "database".to_owned(),
                    |name| name.to_string_lossy().into_owned(),
                )
            }
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::Memory => PathBuf::from(":memory:"),
            Self::File { path, .. } | Self::Application { path, .. } => path.clone(),
        }
    }

    /// The file of the WAL, when there is one.
    pub(super) fn wal_path(&self) -> Option<PathBuf> {
        self.beside("-wal")
    }

    /// How long the WAL is; 0 when there is none.
    pub(super) fn wal_bytes(&self) -> u64 {
        let metadata = self.wal_path().and_then(|wal| fs::metadata(wal).ok());
        metadata.map_or(0, |wal| wal.len())
    }

    /// Notes how long the files are.
    pub(super) fn measure(&self, sizes: &FileSizes) {
        if let Self::File { path, .. } | Self::Application { path, .. } = self {
            let database = fs::metadata(path).ok();
            sizes.seen(database.map(|file| file.len()), self.wal_bytes());
        }
    }

    /// The file whose name ends with more than that of the database. SQLite puts it beside the file that a link leads to.
    pub(super) fn beside(&self, suffix: &str) -> Option<PathBuf> {
        match self {
            Self::Memory => None,
            Self::File { path, .. } | Self::Application { path, .. } => {
                let path = path.canonicalize().unwrap_or_else(|_| path.clone());
                let mut beside = path.into_os_string();
                beside.push(suffix);
                Some(beside.into())
            }
        }
    }

    /// Makes sure that there is a file, readable by its owner alone when it is new: keys are personal data, and SQLite
    /// would make it readable by all. The `-wal` and `-shm` files take its mode. What another database has left there, that
    /// which was open before, say, is deleted. Neither is done where the place is the application's.
    pub(super) fn prepare(&self, before: Option<&Files>) -> Result<(), OpenError> {
        let Self::File {
            path, may_create, ..
        } = self
        else {
            return Ok(());
        };
        if path.is_dir() {
            return Err(OpenError::IsFolder(path.clone()));
        }
        if path.exists() {
            if before.is_some_and(|before| !before.is_database_at(self)) {
                let _lock = files::lock_folder_of(path)?;
                files::clear_leftovers(self, before)?;
            }
            return Ok(());
        }
        if !may_create {
            return Err(OpenError::NotFound(path.clone()));
        }
        let _lock = files::lock_folder_of(path)?;
        files::clear_leftovers(self, before)?;
        let mut options = OpenOptions::new();
        // Never a file that exists: closing a descriptor of it would drop the locks this process holds on it.
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(path) {
            Ok(_) => Ok(()),
            Err(error) => match error.kind() {
                ErrorKind::AlreadyExists => Ok(()),
                ErrorKind::NotFound | ErrorKind::NotADirectory => {
                    Err(OpenError::NoFolder(path.clone()))
                }
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    Err(OpenError::NotWritable(path.clone()))
                }
                _ => Err(OpenError::failed(error)),
            },
        }
    }
}

/// What sqlx says of a URL, without its prefix.
fn reason(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Configuration(reason) => reason.to_string(),
        other => other.to_string(),
    }
}
