//! A service that runs on several machines, with its counts in a Redis or Valkey that all of them use: 100 requests a minute for each
//! API key, and 5 attempts to log in within 15 minutes for each address.
//!
//! Start two of them on one server, and they share each limit: `docker compose up -d redis`, and then
//! `cargo run --example redis --features redis` twice, with another `ADDR`.
//!
//! Environment: `ADDR` (default `127.0.0.1:3000`), `REDIS_URL` (default `redis://127.0.0.1:6379`).

use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal;
use tollgate::{RateLimitLayer, RedisStore, key};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());

    // A server in the same data centre answers in a millisecond. One that does not is not waited for: this process goes on limiting by
    // itself until it is back.
    let store = RedisStore::connect(&url)
        .await?
        .deadline(Duration::from_millis(100));
    let api = RateLimitLayer::fixed(100, 60)
        .name("api")
        .key(key::header("x-api-key").or(key::peer_ip()))
        .store(&store);
    let login = RateLimitLayer::sliding(5, 900)
        .name("login")
        .key(key::peer_ip())
        .store(&store);

    let app = Router::new()
        .route("/ping", get(ping).route_layer(api))
        .route("/login", post(ping).route_layer(login));

    let listener = TcpListener::bind(&address).await?;
    let address = listener.local_addr()?;
    println!(
        "listening on http://{address}, counting in {}; try:",
        store.health().name()
    );
    println!("  curl -i http://{address}/ping -H 'X-Api-Key: alice'");
    println!("  curl -i -X POST http://{address}/login");
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
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
