//! A connection is opened, and the tables are made where they are missing.

use std::sync::Arc;

use sqlx::postgres::PgRow;
use sqlx::{ConnectOptions, PgConnection, Row};

use crate::limit::Timestamp;
use crate::store::postgres::PostgresOpenError;
use crate::store::postgres::location::Location;
use crate::store::postgres::sql_state::open_error;
use crate::store::postgres::statements::{Statements, is_valid_schema};

/// The version of the tables and functions that this crate makes.
const VERSION: i64 = 1;
/// The oldest version of this crate's schema whose code can work on tables of `VERSION`: a rolled-back deploy goes on.
const OLDEST_READER: i64 = 1;
/// The oldest server that has all functions which are called.
const OLDEST_SERVER: i32 = 130_000;

/// What is known of the server before anything is done. `$1` is the schema that is asked for. It reads the catalogs as tables: a
/// name that was looked up once, and was not there, may be remembered so.
const LOOK: &str = "
SELECT
    current_setting('server_version_num')::int, current_setting('server_version'), current_setting('server_encoding'),
    pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on',
    asked.schema,
    EXISTS (SELECT FROM pg_namespace AS n WHERE n.nspname = asked.schema),
    EXISTS (
        SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = asked.schema AND c.relname = 'rate_limit_schema')
FROM (SELECT coalesce($1::text, current_schema()::text) AS schema) AS asked
";

/// Nodes that start at once make the tables one after another: those that come later find them. The two numbers are `tollgate`'s
/// own, and the schema.
const LOCK: &str = "
SELECT pg_advisory_xact_lock(1953459298, hashtext('schema of ' || $1)), set_config('statement_timeout', '20s', true)
";

/// A connection that is open.
pub(super) struct Opened {
    pub(super) connection: PgConnection,
    pub(super) statements: Arc<Statements>,
    pub(super) generation: String,
    pub(super) at: Timestamp,
}

pub(super) async fn open(location: &Location, shift: i64) -> Result<Opened, PostgresOpenError> {
    let failed = |error| open_error(location, error);
    let mut connection = location.options.connect().await.map_err(failed)?;
    let row = sqlx::query(LOOK)
        .bind(&location.schema)
        .fetch_one(&mut connection)
        .await
        .map_err(failed)?;
    let server = Server::of(&row).map_err(failed)?;
    let schema = server.checked()?;
    let statements = Statements::of(&schema);
    if !server.has_schema {
        create_schema(&mut connection, &statements)
            .await
            .map_err(failed)?;
    }
    ensure(&mut connection, &statements, &schema, &server, location).await?;
    let row = sqlx::query(statements.generation.sql())
        .bind(shift)
        .fetch_one(&mut connection)
        .await
        .map_err(failed)?;
    Ok(Opened {
        generation: row.try_get(0).map_err(failed)?,
        at: Timestamp::from_unix_millis(row.try_get(1).map_err(failed)?),
        connection,
        statements: Arc::new(statements),
    })
}

/// What a server says of itself.
struct Server {
    number: i32,
    version: String,
    encoding: String,
    only_reads: bool,
    schema: Option<String>,
    has_schema: bool,
    has_tables: bool,
}

impl Server {
    fn of(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            number: row.try_get(0)?,
            version: row.try_get(1)?,
            encoding: row.try_get(2)?,
            only_reads: row.try_get(3)?,
            schema: row.try_get(4)?,
            has_schema: row.try_get(5)?,
            has_tables: row.try_get(6)?,
        })
    }

    /// The schema, when the server will do.
    fn checked(&self) -> Result<String, PostgresOpenError> {
        if self.number < OLDEST_SERVER {
            let found = self.version.clone();
            return Err(PostgresOpenError::ServerTooOld { found });
        }
        if self.encoding != "UTF8" {
            let found = self.encoding.clone();
            return Err(PostgresOpenError::NotUtf8 { found });
        }
        if self.only_reads {
            return Err(PostgresOpenError::ReadOnly);
        }
        let schema = self.schema.clone().ok_or(PostgresOpenError::NoSchema)?;
        if is_valid_schema(&schema) {
            Ok(schema)
        } else {
            Err(PostgresOpenError::InvalidSchema(schema))
        }
    }
}

async fn create_schema(
    connection: &mut PgConnection,
    statements: &Statements,
) -> Result<(), sqlx::Error> {
    match sqlx::raw_sql(statements.create_schema().sql())
        .execute(connection)
        .await
    {
        // Another node has made it at the same moment.
        Err(error) if is_unique_violation(&error) => Ok(()),
        made => made.map(drop),
    }
}

fn is_unique_violation(error: &sqlx::Error) -> bool {
    let error = error.as_database_error();
    error.is_some_and(sqlx::error::DatabaseError::is_unique_violation)
}

/// Makes what is missing, or refuses tables that are too new.
async fn ensure(
    connection: &mut PgConnection,
    statements: &Statements,
    schema: &str,
    server: &Server,
    location: &Location,
) -> Result<(), PostgresOpenError> {
    let failed = |error| open_error(location, error);
    if server.has_tables {
        let found = versions(connection, statements).await.map_err(failed)?;
        if let Some((version, oldest_reader)) = found
            && (version >= VERSION || oldest_reader > VERSION)
        {
            return check(oldest_reader);
        }
    }
    // A connection on which one of these fails is dropped.
    let begin = sqlx::raw_sql("BEGIN");
    begin.execute(&mut *connection).await.map_err(failed)?;
    let lock = sqlx::query(LOCK).bind(schema);
    lock.execute(&mut *connection).await.map_err(failed)?;
    // Another node may have been here until now.
    let again = sqlx::query(LOOK).bind(&location.schema);
    let row = again.fetch_one(&mut *connection).await.map_err(failed)?;
    let now = Server::of(&row).map_err(failed)?;
    if now.has_tables {
        let found = versions(connection, statements).await.map_err(failed)?;
        check(found.map_or(0, |(_, oldest_reader)| oldest_reader))?;
    } else {
        let taken = sqlx::query(statements.taken.sql()).bind(schema);
        let taken = taken
            .fetch_optional(&mut *connection)
            .await
            .map_err(failed)?;
        if let Some(row) = taken {
            return Err(PostgresOpenError::NameTaken(
                row.try_get(0).map_err(failed)?,
            ));
        }
    }
    let migration = statements.migration(location.is_unlogged, VERSION, OLDEST_READER);
    let migration = sqlx::raw_sql(migration.sql());
    migration.execute(&mut *connection).await.map_err(failed)?;
    let commit = sqlx::raw_sql("COMMIT");
    commit.execute(connection).await.map_err(failed)?;
    Ok(())
}

fn check(oldest_reader: i64) -> Result<(), PostgresOpenError> {
    if oldest_reader > VERSION {
        return Err(PostgresOpenError::SchemaTooNew {
            oldest_reader,
            supported: VERSION,
        });
    }
    Ok(())
}

/// The version of the tables, and the oldest one whose code can work on them.
async fn versions(
    connection: &mut PgConnection,
    statements: &Statements,
) -> Result<Option<(i64, i64)>, sqlx::Error> {
    let row = sqlx::query(statements.versions.sql())
        .fetch_optional(connection)
        .await?;
    row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .transpose()
}
