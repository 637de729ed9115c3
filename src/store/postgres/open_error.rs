//! Why a Postgres can't be used.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::limit::Mistake;
use crate::store::StoreError;

/// Why a Postgres can't be used.
///
/// [`fmt::Debug`] says the same as [`fmt::Display`], and the cause: it is what `main` and `unwrap` print. The message ends with
/// the mistake's [name](Self::name) in brackets. No message shows a password.
#[derive(Clone)]
#[non_exhaustive]
pub enum PostgresOpenError {
    /// The URL is no Postgres URL.
    InvalidUrl,
    /// The schema's name is empty, longer than 63 bytes, or has something else than letters, digits, `_` and `-`.
    InvalidSchema(String),
    /// No schema was named, and the connection has none: its `search_path` names none that exists.
    NoSchema,
    /// The server does not answer, at this host and port.
    Unreachable {
        /// Host and port, or the folder of the socket.
        server: String,
        /// What went wrong.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The server does not let this user in, or not into this database.
    Refused {
        /// What the server says.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The URL asks for TLS, and the application's sqlx is built without it.
    NoTls,
    /// The server has no TLS, or its certificate is not trusted, or is not one for this host.
    Tls {
        /// What went wrong.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// A pooler in front of the server, pgbouncer say, does not do what the store needs.
    Pooler {
        /// What the pooler or the server says.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The user may not make the tables, or may not use those that are there.
    NotPermitted {
        /// What the server says.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The server only reads: it is a replica, or its transactions are read-only.
    ReadOnly,
    /// The database is not in UTF-8.
    NotUtf8 {
        /// Its encoding.
        found: String,
    },
    /// The server is older than Postgres 13.
    ServerTooOld {
        /// Its version.
        found: String,
    },
    /// The schema has a table or view of this name that is not of this crate, and the name is needed.
    NameTaken(String),
    /// The tables were made by a later version of this crate, and need at least schema version `oldest_reader`.
    SchemaTooNew {
        /// The oldest schema version whose readers the tables are good for.
        oldest_reader: i64,
        /// The schema version of this crate.
        supported: i64,
    },
    /// Something else.
    Failed(Arc<dyn Error + Send + Sync>),
}

impl PostgresOpenError {
    /// The stable name of the mistake, under which the page `docs/errors.md` tells the cure.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::PostgresStore;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let error = PostgresStore::connect("mysql://localhost").await.unwrap_err();
    /// assert_eq!(error.name(), "invalid-postgres-url");
    /// # });
    /// ```
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.mistake().0
    }

    fn mistake(&self) -> Mistake {
        match self {
            Self::InvalidUrl => Mistake("invalid-postgres-url"),
            Self::InvalidSchema(_) => Mistake("invalid-schema"),
            Self::NoSchema => Mistake("no-schema"),
            Self::Unreachable { .. } => Mistake("postgres-unreachable"),
            Self::Refused { .. } => Mistake("postgres-refused"),
            Self::NoTls => Mistake("postgres-without-tls"),
            Self::Tls { .. } => Mistake("postgres-tls-failed"),
            Self::Pooler { .. } => Mistake("postgres-behind-pooler"),
            Self::NotPermitted { .. } => Mistake("postgres-not-permitted"),
            Self::ReadOnly => Mistake("postgres-read-only"),
            Self::NotUtf8 { .. } => Mistake("postgres-not-utf8"),
            Self::ServerTooOld { .. } => Mistake("postgres-too-old"),
            Self::NameTaken(_) => Mistake("postgres-name-taken"),
            Self::SchemaTooNew { .. } => Mistake("postgres-schema-too-new"),
            Self::Failed(_) => Mistake("postgres-not-opened"),
        }
    }

    /// The error of an opening that went through the engine.
    pub(super) fn from_store(error: StoreError) -> Self {
        if let StoreError::Database { source, .. } = &error
            && let Some(error) = source.downcast_ref::<Self>()
        {
            return error.clone();
        }
        Self::Failed(Arc::new(error))
    }
}

impl From<PostgresOpenError> for StoreError {
    fn from(error: PostgresOpenError) -> Self {
        Self::Database {
            is_transient: matches!(
                error,
                PostgresOpenError::Unreachable { .. } | PostgresOpenError::ReadOnly
            ),
            source: Arc::new(error),
        }
    }
}

impl fmt::Debug for PostgresOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        match self.source() {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for PostgresOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidUrl => f.write_str(
                "this is no Postgres URL: write postgres://user:password@host:5432/database, and %-encode what is special in the password",
            ),
            Self::InvalidSchema(name) => write!(
                f,
                "{name:?} can't be the schema of rate limits: use letters, digits, `_` and `-`, 63 bytes at most"
            ),
            Self::NoSchema => f.write_str(
                "the connection has no schema for the tables of rate limits: name one, or have its search_path name one that exists",
            ),
            Self::Unreachable { server, .. } => write!(
                f,
                "Postgres does not answer at {server}: start it, or correct host and port"
            ),
            Self::Refused { .. } => f.write_str(
                "Postgres does not let this user in: correct user, password and database, or pg_hba.conf",
            ),
            Self::NoTls => f.write_str(
                "the URL asks for TLS, and sqlx is built without: add one of its TLS features to the application, like sqlx = { features = [\"tls-rustls-ring\"] }, or set sslmode=disable",
            ),
            Self::Tls { .. } => f.write_str(
                "there is no TLS with this Postgres: have sslrootcert name the CA of its certificate and the URL a host of it, or turn ssl on in the server",
            ),
            Self::Pooler { .. } => f.write_str(
                "a pooler stands before this Postgres and keeps the store from working: give pgbouncer, 1.21 or later, ignore_startup_parameters = options,extra_float_digits and max_prepared_statements above 0, or connect past it",
            ),
            Self::NotPermitted { .. } => f.write_str(
                "the user may not make or use the tables of rate limits: grant CREATE on the schema, or make them once as their owner and grant USAGE, SELECT, INSERT, UPDATE and DELETE",
            ),
            Self::ReadOnly => f.write_str(
                "this Postgres only reads: connect to the primary, without default_transaction_read_only",
            ),
            Self::NotUtf8 { found } => write!(
                f,
                "the database is in {found}, and keys are UTF-8: use a database that was created with ENCODING 'UTF8'"
            ),
            Self::ServerTooOld { found } => {
                write!(f, "Postgres {found} is too old: 13 or later is needed")
            }
            Self::NameTaken(name) => write!(
                f,
                "the schema has something else that is called {name}, and tollgate needs that name: rename it, or name another schema"
            ),
            Self::SchemaTooNew {
                oldest_reader,
                supported,
            } => write!(
                f,
                "the tables were made by a later version of tollgate (they need schema {oldest_reader}, this is {supported}): \
                 upgrade tollgate, or name another schema"
            ),
            Self::Failed(_) => f.write_str("the Postgres can't be used for rate limits"),
        }?;
        write!(f, " {}", self.mistake())
    }
}

impl Error for PostgresOpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unreachable { source, .. }
            | Self::Refused { source }
            | Self::Tls { source }
            | Self::Pooler { source }
            | Self::NotPermitted { source }
            | Self::Failed(source) => Some(source),
            _ => None,
        }
    }
}
