//! Why a database can't be opened.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::limit::Mistake;
use crate::store::StoreError;

/// Why a database can't be opened.
///
/// [`fmt::Debug`] says the same as [`fmt::Display`], and the cause: it is what `main` and `unwrap` print. The message ends
/// with the mistake's [name](Self::name) in brackets.
#[derive(Clone)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL is no SQLite URL.
    InvalidUrl(String),
    /// The path is empty, a URL, or not UTF-8.
    NotAPath(PathBuf),
    /// The path is a folder.
    IsFolder(PathBuf),
    /// The folder of the file is missing.
    NoFolder(PathBuf),
    /// The file is missing, and is not to be created: the URL says `mode=rw`, or the pool's options lack
    /// `create_if_missing(true)`.
    NotFound(PathBuf),
    /// The file, or its folder, can't be written.
    NotWritable(PathBuf),
    /// The file is something else.
    NotADatabase(PathBuf),
    /// The file is damaged, or a WAL lies beside it that belongs to another one.
    Damaged(PathBuf),
    /// There is no room on the disk of the file. An open database needs a few more pages than a closed one.
    DiskFull(PathBuf),
    /// Another process kept the file locked.
    Locked(PathBuf),
    /// The pool's database is in memory, where each connection has one of its own, or none that another could open.
    PoolInMemory,
    /// The application has a table, view or index of this name, which is needed here.
    NameTaken(String),
    /// The file was written by a later version of this crate, and needs at least schema `oldest_reader`.
    SchemaTooNew {
        /// The oldest schema version whose readers the file is good for.
        oldest_reader: i64,
        /// The schema version of this crate.
        supported: i64,
    },
    /// The SQLite that is linked lacks what this crate needs.
    SqliteTooOld {
        /// Its version.
        found: String,
    },
    /// Something else.
    Failed(Arc<dyn Error + Send + Sync>),
}

impl OpenError {
    /// The stable name of the mistake, under which the page `docs/errors.md` tells the cure.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::SqliteStore;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let error = SqliteStore::open(folder).await.unwrap_err();
    /// assert_eq!(error.name(), "path-is-folder");
    /// assert!(error.to_string().ends_with("[path-is-folder]"));
    /// # });
    /// ```
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.mistake().0
    }

    fn mistake(&self) -> Mistake {
        match self {
            Self::InvalidUrl(_) => Mistake("invalid-url"),
            Self::NotAPath(_) => Mistake("not-a-path"),
            Self::IsFolder(_) => Mistake("path-is-folder"),
            Self::NoFolder(_) => Mistake("no-folder"),
            Self::NotFound(_) => Mistake("database-not-found"),
            Self::NotWritable(_) => Mistake("database-not-writable"),
            Self::NotADatabase(_) => Mistake("not-a-database"),
            Self::Damaged(_) => Mistake("database-damaged"),
            Self::DiskFull(_) => Mistake("disk-full"),
            Self::Locked(_) => Mistake("database-locked"),
            Self::PoolInMemory => Mistake("pool-in-memory"),
            Self::NameTaken(_) => Mistake("table-name-taken"),
            Self::SchemaTooNew { .. } => Mistake("schema-too-new"),
            Self::SqliteTooOld { .. } => Mistake("sqlite-too-old"),
            Self::Failed(_) => Mistake("database-not-opened"),
        }
    }

    pub(super) fn failed(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Failed(Arc::new(error))
    }

    /// The error with the file's name in place of its path.
    pub(super) fn without_folder(mut self) -> Self {
        if let Self::NotAPath(path)
        | Self::IsFolder(path)
        | Self::NoFolder(path)
        | Self::NotFound(path)
        | Self::NotWritable(path)
        | Self::NotADatabase(path)
        | Self::Damaged(path)
        | Self::DiskFull(path)
        | Self::Locked(path) = &mut self
            && let Some(name) = path.file_name()
        {
            *path = PathBuf::from(name);
        }
        self
    }

    /// The error of an opening that went through the engine.
    pub(super) fn from_store(error: StoreError) -> Self {
        if let StoreError::Database { source, .. } = &error
            && let Some(error) = source.downcast_ref::<Self>()
        {
            return error.clone();
        }
        Self::failed(error)
    }
}

impl From<OpenError> for StoreError {
    fn from(error: OpenError) -> Self {
        Self::Database {
            is_transient: matches!(error, OpenError::Locked(_) | OpenError::DiskFull(_)),
            source: Arc::new(error),
        }
    }
}

impl fmt::Debug for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        match self {
            Self::Failed(source) => write!(f, ": {source}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAPath(path) if path.as_os_str().is_empty() => {
                f.write_str("the path of the database is empty: name a file, like limits.db")
            }
            Self::NotAPath(path) => write!(
                f,
                "{} is no path: give a URL like sqlite://limits.db to SqliteStore::connect, and a path in UTF-8 to open",
                path.display()
            ),
            Self::InvalidUrl(reason) => write!(
                f,
                "this SQLite URL can't be used ({reason}): write sqlite://limits.db or sqlite:///var/lib/app/limits.db"
            ),
            Self::IsFolder(path) => write!(
                f,
                "{} is a folder: name a file in it, like {}",
                path.display(),
                path.join("limits.db").display()
            ),
            Self::NoFolder(path) => write!(
                f,
                "the folder of {} does not exist: create it first",
                path.display()
            ),
            Self::NotFound(path) => write!(
                f,
                "{} does not exist, and mode=rw forbids to create it, or the pool's options do: leave the mode out, or set create_if_missing(true)",
                path.display()
            ),
            Self::NotWritable(path) => write!(
                f,
                "{} can't be written: give this process write access to the file and its folder, and leave out mode=ro, read_only, query_only and immutable",
                path.display()
            ),
            Self::NotADatabase(path) => write!(
                f,
                "{} is not a SQLite database: name another file, or move this one away",
                path.display()
            ),
            Self::Damaged(path) => write!(
                f,
                "{} is damaged: stop what uses it, and move it away together with its -wal and -shm",
                path.display()
            ),
            Self::DiskFull(path) => write!(
                f,
                "the disk of {} has no room: make some before the next start",
                path.display()
            ),
            Self::Locked(path) => write!(
                f,
                "{} stays locked by another process: find it with fuser or lsof, and end its transaction",
                path.display()
            ),
            Self::PoolInMemory => f.write_str(
                "the pool's database is in memory, where another connection does not find it: use SqliteStore::in_memory(), or a pool on a file",
            ),
            Self::NameTaken(name) => write!(
                f,
                "the application's database has {name} already, and tollgate needs that name: rename it, or count in a file of its own by SqliteStore::open"
            ),
            Self::SchemaTooNew {
                oldest_reader,
                supported,
            } => write!(
                f,
                "the database was written by a later version of tollgate (it needs schema {oldest_reader}, this is {supported}): \
                 upgrade tollgate, or use another file"
            ),
            Self::SqliteTooOld { found } => write!(
                f,
                "SQLite {found} is too old: 3.38 is needed; build with sqlx's bundled SQLite"
            ),
            Self::Failed(_) => f.write_str("the database can't be opened"),
        }?;
        write!(f, " {}", self.mistake())
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(source) => Some(source),
            _ => None,
        }
    }
}
