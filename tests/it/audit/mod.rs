//! Allowed requests that are recorded, and what was used by them.

mod dates;
mod records;
mod troubles;
mod usage;

use std::path::PathBuf;
use std::time::Duration;

use sqlx::{Connection, Row, SqliteConnection};
use tempfile::TempDir;
use tollgate::{ManualClock, SqliteStore};

use crate::support::clock;

/// A store on a file of its own, whose clock stands still.
struct Recorded {
    store: SqliteStore,
    clock: ManualClock,
    path: PathBuf,
    _folder: TempDir,
}

impl Recorded {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limits.db");
        let clock = clock();
        let store = SqliteStore::open(&path).await.unwrap();
        Self {
            store: store.deadline(Duration::from_mins(1)).clock(&clock),
            clock,
            path,
            _folder: folder,
        }
    }

    async fn connection(&self) -> SqliteConnection {
        let url = format!("sqlite://{}", self.path.display());
        SqliteConnection::connect(&url).await.unwrap()
    }

    /// The rows of a query whose only column is a text.
    async fn texts(&self, query: &'static str) -> Vec<String> {
        let mut connection = self.connection().await;
        let rows = sqlx::query(query).fetch_all(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Closes the store, and reads what it has recorded, a line for each request, in the order of their decisions.
    async fn lines(&self) -> Vec<String> {
        self.store.close().await.unwrap();
        let query = "SELECT concat_ws(' ', policy, key, method, iif(route = '', '-', route), ifnull(status, '-'), units)
            FROM api_calls ORDER BY at, id";
        self.texts(query).await
    }

    async fn count(&self) -> u64 {
        let count = self
            .texts("SELECT CAST(count(*) AS TEXT) FROM api_calls")
            .await;
        count[0].parse().unwrap()
    }
}
