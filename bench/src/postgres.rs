//! A Postgres that the benchmark starts: that of the tests, which waits for its disk here.

#[expect(
    dead_code,
    clippy::unwrap_used,
    reason = "it serves the tests, which break it and stop where they fail"
)]
#[path = "../../tests/servers/postgres.rs"]
mod server;

use anyhow::Result;
use sqlx::{Connection, PgConnection};

use self::server::PostgresServer;
use crate::trips::Trips;

/// A server, and its processes.
pub(crate) struct Postgres {
    server: PostgresServer,
    processes: Vec<u32>,
}

impl Postgres {
    /// Starts one, set up as it is by default.
    pub(crate) async fn start() -> Result<Self> {
        let server = PostgresServer::start();
        let mut connection = PgConnection::connect(&server.url()).await?;
        for setting in ["fsync", "full_page_writes"] {
            let sql = format!("ALTER SYSTEM SET {setting} = on");
            sqlx::query(sqlx::AssertSqlSafe(sql))
                .execute(&mut connection)
                .await?;
        }
        sqlx::query("SELECT pg_reload_conf()")
            .execute(&mut connection)
            .await?;
        connection.close().await?;
        Ok(Self {
            server,
            processes: Vec::new(),
        })
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// How often it was asked, by its own count.
    pub(crate) fn trips(&self) -> Trips {
        Trips::Postgres(self.url())
    }

    /// Finds the processes that work for those who are connected.
    pub(crate) async fn find_processes(&mut self) -> Result<()> {
        let mut connection = PgConnection::connect(&self.url()).await?;
        let sql = "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()";
        let found: Vec<i32> = sqlx::query_scalar(sql).fetch_all(&mut connection).await?;
        connection.close().await?;
        let found = found.into_iter().map(u32::try_from);
        self.processes = found.collect::<Result<_, _>>()?;
        Ok(())
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = u32> {
        self.processes.iter().copied()
    }

    /// What the server says of itself.
    pub(crate) async fn settings(&self) -> Result<String> {
        let mut connection = PgConnection::connect(&self.url()).await?;
        let mut told = Vec::new();
        for setting in [
            "fsync",
            "full_page_writes",
            "synchronous_commit",
            "shared_buffers",
        ] {
            let sql = "SELECT current_setting($1)";
            let value: String = sqlx::query_scalar(sql)
                .bind(setting)
                .fetch_one(&mut connection)
                .await?;
            told.push(format!("{setting} {value}"));
        }
        let version: String = sqlx::query_scalar("SHOW server_version")
            .fetch_one(&mut connection)
            .await?;
        connection.close().await?;
        Ok(format!(
            "Postgres {version} on loopback, {}; its CPU is in that of the server",
            told.join(", ")
        ))
    }
}
