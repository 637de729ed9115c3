//! Counters in one table of a SQL database, and the store that is made of it.
//!
//! It is SQLite here. For another database the type of the connection is another one, and so is what is marked with *here*.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::error::DatabaseError;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, QueryBuilder, SqliteConnection};
use tollgate::{
    ReadRecords, RecordChange, RecordStore, RecordWrite, Records, Store, StoreError, StoreHandle,
    Timestamp,
};

/// *Here* texts are compared by their bytes. Elsewhere that must be asked for, of keys and of values: by `VARBINARY` or `COLLATE "C"`,
/// say. And a key must have room for 1,300 bytes.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS records (
    key TEXT PRIMARY KEY, value TEXT NOT NULL, expires_at INTEGER
) WITHOUT ROWID";
/// *Here* writers take turns from their first statement on. Elsewhere it is `BEGIN`, and each row waits for who has written it: when two
/// transactions wait for each other, the database ends one, of which nothing is changed, and each of its changes is `false`.
const BEGIN: &str = "BEGIN IMMEDIATE";
/// A statement binds so many keys. Each database has a most.
const KEYS_AT_ONCE: usize = 500;

/// Rate limits in our database. Clones are the same store.
#[derive(Clone, Debug)]
pub(crate) struct OurStore(RecordStore);

impl OurStore {
    /// Opens the database, so that one that can't be opened is found now.
    pub(crate) async fn open(records: SqlRecords) -> Result<Self, StoreError> {
        let store = RecordStore::new("our database", records);
        store.open().await?;
        Ok(Self(store))
    }

    /// Writes what waits, and closes the database.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        self.0.close().await
    }
}

impl Store for OurStore {
    fn handle(&self) -> StoreHandle {
        self.0.handle()
    }
}

/// The table, on a connection of its own.
pub(crate) struct SqlRecords {
    options: SqliteConnectOptions,
    connection: Option<SqliteConnection>,
}

impl SqlRecords {
    pub(crate) fn new(options: SqliteConnectOptions) -> Self {
        Self {
            options,
            connection: None,
        }
    }

    /// Takes the connection. Who has done with it puts it back; one that has failed is not put back, and the next call opens another.
    async fn connection(&mut self) -> sqlx::Result<SqliteConnection> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let mut connection = self.options.connect().await?;
        sqlx::query(TABLE).execute(&mut connection).await?;
        Ok(connection)
    }

    /// Makes all changes that can be made, in one transaction. On an error none is, unless it is the commit that failed.
    async fn make(&mut self, changes: &[RecordChange]) -> sqlx::Result<Vec<bool>> {
        let mut connection = self.connection().await?;
        let mut transaction = connection.begin_with(BEGIN).await?;
        let mut made = Vec::new();
        for change in changes {
            made.push(make_one(&mut transaction, change).await?);
        }
        transaction.commit().await?;
        self.connection = Some(connection);
        Ok(made)
    }
}

impl Records for SqlRecords {
    async fn open(&mut self) -> Result<(), StoreError> {
        self.connection = Some(self.connection().await.map_err(failed)?);
        Ok(())
    }

    async fn read(&mut self, keys: &[String]) -> Result<ReadRecords, StoreError> {
        let mut connection = self.connection().await.map_err(failed)?;
        let values = values(&mut connection, keys).await.map_err(failed)?;
        self.connection = Some(connection);
        Ok(ReadRecords::new(values))
    }

    async fn change(&mut self, changes: &[RecordChange]) -> Vec<Result<bool, StoreError>> {
        match self.make(changes).await {
            Ok(made) => made.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(failed(error)); changes.len()],
        }
    }

    async fn list(
        &mut self,
        after: &str,
        before: &str,
        most: usize,
    ) -> Result<Vec<(String, String)>, StoreError> {
        const LIST: &str =
            "SELECT key, value FROM records WHERE key > ? AND key < ? ORDER BY key LIMIT ?";
        let mut connection = self.connection().await.map_err(failed)?;
        let records = sqlx::query_as(LIST)
            .bind(after)
            .bind(before)
            .bind(i64::try_from(most).unwrap_or(i64::MAX))
            .fetch_all(&mut connection)
            .await
            .map_err(failed)?;
        self.connection = Some(connection);
        Ok(records)
    }

    async fn close(&mut self) -> Result<(), StoreError> {
        match self.connection.take() {
            Some(connection) => connection.close().await.map_err(failed),
            None => Ok(()),
        }
    }
}

async fn values(
    connection: &mut SqliteConnection,
    keys: &[String],
) -> sqlx::Result<Vec<Option<String>>> {
    let mut found: HashMap<String, String> = HashMap::new();
    for keys in keys.chunks(KEYS_AT_ONCE) {
        let mut query = QueryBuilder::new("SELECT key, value FROM records WHERE key IN (");
        let mut places = query.separated(", ");
        for key in keys {
            places.push_bind(key);
        }
        query.push(")");
        found.extend(query.build_query_as().fetch_all(&mut *connection).await?);
    }
    Ok(keys.iter().map(|key| found.remove(key)).collect())
}

/// Makes a change whole or not at all: what it has written is undone, when a later one of its records is not what it was.
async fn make_one(connection: &mut SqliteConnection, change: &RecordChange) -> sqlx::Result<bool> {
    // Within a transaction this is a savepoint.
    let mut savepoint = connection.begin().await?;
    for record in change.writes() {
        if !write(&mut savepoint, record).await? {
            savepoint.rollback().await?;
            return Ok(false);
        }
    }
    savepoint.commit().await?;
    Ok(true)
}

/// Writes a record in one statement that does nothing, when it is not what it was.
async fn write(connection: &mut SqliteConnection, record: &RecordWrite) -> sqlx::Result<bool> {
    // In MySQL without the conflict: there an error about a row that exists undoes no more than its statement, and is `false`.
    // `INSERT IGNORE` would cut a long key.
    const INSERT: &str =
        "INSERT INTO records (value, expires_at, key) VALUES (?, ?, ?) ON CONFLICT DO NOTHING";
    const UPDATE: &str = "UPDATE records SET value = ?, expires_at = ? WHERE key = ? AND value = ?";
    const DELETE: &str = "DELETE FROM records WHERE key = ? AND value = ?";
    let expires_at = record.expires_at().map(Timestamp::unix_millis);
    let query = match (record.before(), record.after()) {
        (None, Some(after)) => sqlx::query(INSERT)
            .bind(after)
            .bind(expires_at)
            .bind(record.key()),
        (Some(before), Some(after)) => sqlx::query(UPDATE)
            .bind(after)
            .bind(expires_at)
            .bind(record.key())
            .bind(before),
        (Some(before), None) => sqlx::query(DELETE).bind(record.key()).bind(before),
        // There must be none still. *Here* nobody can add one before the commit; elsewhere that takes `SERIALIZABLE`.
        (None, None) => {
            let there = sqlx::query("SELECT 1 FROM records WHERE key = ?").bind(record.key());
            return Ok(there.fetch_optional(connection).await?.is_none());
        }
    };
    Ok(query.execute(connection).await?.rows_affected() == 1)
}

fn failed(error: sqlx::Error) -> StoreError {
    // *Here* 5 and 6 are of a database that others hold locked. In what has more detail they are the last byte.
    let code = error.as_database_error().and_then(DatabaseError::code);
    let code = code.and_then(|code| code.parse::<u32>().ok());
    StoreError::Database {
        // Whether it may pass by itself.
        is_transient: code.is_none_or(|code| matches!(code & 0xff, 5 | 6)),
        source: Arc::new(error),
    }
}
