//! What is Postgres's own: the server, its clock, its locks, and the rows themselves.

mod clocks;
mod contention;
mod leases;
mod network;
mod opening;
mod outages;
mod rows;
#[path = "../../../../tests/servers/postgres.rs"]
mod server;

use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use self::server::PostgresServer;
use super::*;
use crate::clock;
use crate::limit::{Key, Policy, Timestamp};
use crate::store::Outcome;
use crate::store::networks::slow::LATENCY;
use crate::store::networks::{Network, Place, SlowNodes, slow_suite};
use crate::store::suite::{NOON, Subject, charge_of};

/// A machine that is busy with other tests must not make a charge late.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store in a schema of its own on the server that all tests share.
async fn open() -> PostgresStore {
    open_in(&PostgresServer::new_schema()).await
}

async fn open_in(schema: &str) -> PostgresStore {
    open_at(&PostgresServer::shared().url(), schema).await
}

async fn open_at(url: &str, schema: &str) -> PostgresStore {
    let options = PostgresStoreOptions::new().schema(schema);
    options.connect(url).await.unwrap().deadline(PATIENCE)
}

slow_suite!(open_slow);

async fn open_slow(nodes: SlowNodes) -> Vec<Arc<Engine>> {
    let schema = PostgresServer::new_schema();
    let server = Place::Port(PostgresServer::shared().port());
    let mut engines = Vec::new();
    for _ in 0..nodes.count {
        let network = Network::slow(server.clone(), LATENCY).await;
        let mut store = open_at(&url_of(&network), &schema).await;
        store.move_server_clock(nodes.server_is_ahead);
        if let Some(clock) = &nodes.clock {
            store = store.clock(clock);
        }
        engines.push(store.engine);
    }
    engines
}

fn url_of(network: &Network) -> String {
    let own = format!(":{}/", PostgresServer::shared().port());
    let url = PostgresServer::shared().url();
    url.replace(&own, &format!(":{}/", network.port()))
}

mod on_a_server {
    use super::*;

    crate::__store_suite!(Subject::new(async |clock| (open().await.clock(&clock), ())));
}

fn noon() -> ManualClock {
    ManualClock::new(Timestamp::from_unix_millis(NOON))
}

fn alice() -> Key {
    Key::new("user", "alice")
}

/// The writer's side of a store, without the engine before it.
fn backend(schema: &str) -> Postgres {
    backend_at(&PostgresServer::shared().url(), Some(schema))
}

fn backend_at(url: &str, schema: Option<&str>) -> Postgres {
    let location = Location::from_url(url).unwrap();
    let schema = schema.map(str::to_owned);
    let location = Location { schema, ..location };
    Postgres {
        database: Database::new(location, ServerClock::new(), Arc::default()),
    }
}

/// Runs a query on a connection of its own.
async fn query(server: &PostgresServer, sql: &str) -> Vec<PgRow> {
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    let rows = sqlx::query(AssertSqlSafe(sql.to_owned()));
    let rows = rows.fetch_all(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    rows
}

async fn number(server: &PostgresServer, sql: &str) -> i64 {
    query(server, sql).await[0].get(0)
}

async fn charge(store: &PostgresStore, policy: &Policy, cost: u32) -> Result<Outcome, StoreError> {
    let charge = charge_of(&[(policy, &alice())], cost);
    store.engine.charge(&charge).await
}

async fn is_admitted(store: &PostgresStore, policy: &Policy) -> bool {
    charge(store, policy, 1).await.unwrap().is_admitted()
}

/// Asks until it is refused.
async fn fill(store: &PostgresStore, policy: &Policy) -> u32 {
    let mut admitted = 0;
    while is_admitted(store, policy).await {
        admitted += 1;
    }
    admitted
}

async fn used(store: &PostgresStore, policy: &Policy) -> u64 {
    let look = charge_of(&[(policy, &alice())], 1);
    let outcome = store.engine.peek(look).await.unwrap();
    outcome.found.first().state.used(policy, outcome.at)
}

/// Charges until there is an answer again, and tells it and how many errors came before.
async fn charge_patiently(store: &PostgresStore, policy: &Policy) -> (Outcome, usize) {
    let until = clock::monotonic() + PATIENCE;
    let mut errors = 0;
    loop {
        match charge(store, policy, 1).await {
            Ok(outcome) => return (outcome, errors),
            Err(error) => assert!(clock::monotonic() < until, "{error:?}"),
        }
        errors += 1;
        tokio::task::yield_now().await;
    }
}
