//! Nodes on one Redis, and on a cluster.

mod cluster;
#[path = "../../../src/store/redis/tests/nodes.rs"]
#[expect(dead_code, reason = "the store's own tests use the rest of it")]
mod nodes;
#[path = "../../../src/store/redis/tests/server.rs"]
#[expect(dead_code, reason = "the store's own tests use the rest of it")]
mod server;

pub(crate) use self::server::RedisServer;

crate::server_nodes::tests_on!(RedisServer);
