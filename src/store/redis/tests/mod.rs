//! The store on a real server, which the tests start.

mod server;

use self::server::RedisServer;
use super::RedisStore;
use crate::store::suite::{Subject, contract_suite};

async fn open() -> RedisStore {
    let url = RedisServer::shared().url();
    let prefix = RedisServer::prefix();
    RedisStore::connect_with_prefix(&url, &prefix)
        .await
        .unwrap()
}

contract_suite!(Subject::new(async |clock| (open().await.clock(&clock), ())).expiring());
