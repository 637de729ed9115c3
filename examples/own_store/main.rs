//! Limits in a database that the library does not know: 3 requests in any 60 seconds from one address.
//!
//! `sql_records.rs` is all that such a database takes, in plain SQL on one table. Stop the server, start it again, and nothing is
//! forgotten; start two on one database, with another `ADDR`, and they share each limit. `tests/it/own_store.rs` proves the table with
//! the suite that every store of the library passes.
//!
//! `cargo run --example own_store --features records`, and then `curl -i http://127.0.0.1:3000/ping`, four times.
//!
//! Environment: `ADDR` (default `127.0.0.1:3000`), `DATABASE_URL` (default `sqlite://records.db`).

mod sql_records;

use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use tokio::net::TcpListener;
use tokio::signal;
use tollgate::RateLimitLayer;

use self::sql_records::{OurStore, SqlRecords};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let database = env::var("DATABASE_URL").unwrap_or_else(|_| "sqlite://records.db".to_owned());

    let options = SqliteConnectOptions::from_str(&database)?
        .create_if_missing(true)
        // A commit does not wait for the disk: what a crash of the machine takes with it is told as the last few requests.
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        // Others are waited for no longer. All charges wait behind a call.
        .busy_timeout(Duration::from_secs(1));
    let store = OurStore::open(SqlRecords::new(options)).await?;
    let limit = RateLimitLayer::sliding(3, 60).name("ping").store(&store);

    let app = Router::new()
        .route("/ping", get(ping).route_layer(limit))
        .into_make_service_with_connect_info::<SocketAddr>();

    let listener = TcpListener::bind(&address).await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("listening on {url}, counting in {database}; try:");
    println!("  curl -i {url}/ping");
    axum::serve(listener, app)
        .with_graceful_shutdown(stopped())
        .await?;
    // Gives back what was charged ahead, for the others.
    store.close().await?;
    Ok(())
}

async fn ping() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// Ctrl-C, or what a service manager sends.
async fn stopped() {
    let interrupted = signal::ctrl_c();
    #[cfg(unix)]
    {
        let terminated = async {
            match signal::unix::signal(signal::unix::SignalKind::terminate()) {
                Ok(mut signal) => signal.recv().await,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupted => (),
            _ = terminated => (),
        }
    }
    #[cfg(not(unix))]
    let _ = interrupted.await;
}
