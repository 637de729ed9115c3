//! Nodes on one Postgres.

#[path = "../servers/postgres.rs"]
#[expect(dead_code, reason = "the store's own tests use the rest of it")]
mod server;

pub(crate) use self::server::PostgresServer;

crate::server_nodes::tests_on!(PostgresServer);
