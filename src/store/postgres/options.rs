//! What is settled before a Postgres is used.

use sqlx::PgPool;

use super::location::Location;
use super::{PostgresOpenError, PostgresStore};

/// How a [`PostgresStore`] keeps its tables: what is settled before it connects.
///
/// | | default |
/// | --- | --- |
/// | [`schema`](Self::schema) | that in which the connection makes tables, mostly `public` |
/// | [`unlogged`](Self::unlogged) | off |
///
/// # Examples
///
/// ```no_run
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use tollgate::PostgresStoreOptions;
///
/// let store = PostgresStoreOptions::new()
///     .schema("rate_limits")
///     .unlogged(true)
///     .connect("postgres://app:secret@db.internal/app")
///     .await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct PostgresStoreOptions {
    schema: Option<String>,
    is_unlogged: bool,
}

impl PostgresStoreOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the schema that the tables are in: 1 to 63 bytes of letters, digits, `_` and `-`. It is made when it is not there, which
    /// takes the right to create schemas in the database.
    ///
    /// Nodes that name the same schema of the same database share their counters.
    pub fn schema(self, name: &str) -> Self {
        Self {
            schema: Some(name.to_owned()),
            ..self
        }
    }

    /// Whether the tables of the counters are `UNLOGGED` when they are made; `false` by default.
    ///
    /// What happens in them is not written to the log of the server then: charges cost it much less. But after a crash of the
    /// server, its power failure and its `kill -9` included, they are empty, and on its replicas they are always: **after a crash or a
    /// failover every key has its whole limit again.** A clean restart keeps them. Limits that were set at run time are kept in any case.
    ///
    /// Tables that are there stay as they are: `ALTER TABLE … SET LOGGED`, or `SET UNLOGGED`, changes them.
    pub fn unlogged(self, is_unlogged: bool) -> Self {
        Self {
            is_unlogged,
            ..self
        }
    }

    /// Connects as [`PostgresStore::connect`] does.
    ///
    /// # Errors
    ///
    /// As in [`PostgresStore::connect`].
    pub async fn connect(self, url: &str) -> Result<PostgresStore, PostgresOpenError> {
        PostgresStore::opened(self.at(Location::from_url(url)?)?).await
    }

    /// Connects as [`PostgresStore::from_pool`] does.
    ///
    /// # Errors
    ///
    /// As in [`PostgresStore::from_pool`].
    pub async fn from_pool(self, pool: &PgPool) -> Result<PostgresStore, PostgresOpenError> {
        PostgresStore::opened(self.at(Location::from_pool(pool))?).await
    }

    fn at(self, location: Location) -> Result<Location, PostgresOpenError> {
        let location = Location {
            schema: self.schema,
            is_unlogged: self.is_unlogged,
            ..location
        };
        location.checked()
    }
}
