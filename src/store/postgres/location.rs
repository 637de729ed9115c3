//! Which server, which database and which schema it is.

use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, PgPool};

use super::PostgresOpenError;
use super::statements::is_valid_schema;

/// A statement that takes longer is ended by the server, before this side gives its connection up: what is stored is never later than
/// it may be.
const STATEMENT_TIMEOUT: &str = "4s";

/// Each statement of a function must see what was committed before it began, whatever the default of the user or the database is: they
/// lock, and then read.
const ISOLATION: &str = "read committed";

/// Where the tables are.
#[derive(Clone)]
pub(super) struct Location {
    pub(super) options: PgConnectOptions,
    /// `None` is the schema that the connection makes tables in.
    pub(super) schema: Option<String>,
    pub(super) is_unlogged: bool,
}

impl Location {
    pub(super) fn from_url(url: &str) -> Result<Self, PostgresOpenError> {
        let is_postgres = ["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| url.starts_with(scheme));
        if !is_postgres {
            return Err(PostgresOpenError::InvalidUrl);
        }
        // The reason may tell a part of the URL, and so of a password.
        let options = PgConnectOptions::from_str(url).map_err(|_| PostgresOpenError::InvalidUrl)?;
        Ok(Self::of(options))
    }

    pub(super) fn from_pool(pool: &PgPool) -> Self {
        Self::of(PgConnectOptions::clone(&pool.connect_options()))
    }

    fn of(options: PgConnectOptions) -> Self {
        let options = options
            .application_name("tollgate")
            .options([
                ("statement_timeout", STATEMENT_TIMEOUT),
                ("default_transaction_isolation", ISOLATION),
            ])
            .disable_statement_logging();
        Self {
            options,
            schema: None,
            is_unlogged: false,
        }
    }

    /// With a schema whose name needs no more care than quotes.
    pub(super) fn checked(self) -> Result<Self, PostgresOpenError> {
        match &self.schema {
            Some(name) if !is_valid_schema(name) => {
                let name = name.chars().take(80).collect();
                Err(PostgresOpenError::InvalidSchema(name))
            }
            _ => Ok(self),
        }
    }

    /// Host and port, or the folder of the socket.
    pub(super) fn server(&self) -> String {
        let port = self.options.get_port();
        match self.options.get_socket() {
            Some(folder) => format!("{}:{port}", folder.display()),
            None => format!("{}:{port}", self.options.get_host()),
        }
    }

    /// What the store is called where its health is told.
    pub(super) fn name(&self) -> String {
        match self.options.get_database() {
            Some(database) => format!("postgres/{database}"),
            None => "postgres".to_owned(),
        }
    }
}
