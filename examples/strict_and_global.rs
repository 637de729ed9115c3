//! A strict limit on one route inside a global one on all, keyed by the peer's address: each counts for itself.
//!
//! `POST /login` passes 5 times in 15 minutes; all routes together pass 100 times a minute. Both limits are on one SQLite
//! file, so a restart forgets nothing, and a second process on the same file shares the counts.
//!
//! Environment: `ADDR` (default `127.0.0.1:3000`), `DATABASE_URL` (default `sqlite://strict_and_global.db`).

use std::env;
use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::signal;
use tollgate::{RateLimitLayer, SqliteStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let database =
        env::var("DATABASE_URL").unwrap_or_else(|_| "sqlite://strict_and_global.db".to_owned());

    let store = SqliteStore::connect(&database).await?;
    let global = RateLimitLayer::fixed(100, 60).name("global").store(&store);
    let strict = RateLimitLayer::sliding(5, 900).name("login").store(&store);

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/login", post(|| async { "welcome\n" }).route_layer(strict))
        .layer(global)
        .into_make_service_with_connect_info::<SocketAddr>();

    let listener = TcpListener::bind(&address).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}, counting in {database}; try:");
    println!("  curl -i http://{address}/");
    println!("  curl -i -X POST http://{address}/login");
    axum::serve(listener, app)
        .with_graceful_shutdown(stopped())
        .await?;
    store.close().await?;
    Ok(())
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
