//! A log-in that counts failures only, on a SQLite file: five in any 15 minutes from one address, and with the sixth attempt that
//! address is blocked for an hour.
//!
//! Who has the right password uses nothing, and neither does what is no answer to a password. The password of everybody is `open sesame`.
//!
//! Behind a reverse proxy the address is that of `X-Forwarded-For`, when `TRUSTED_PROXIES` names the proxies: addresses and
//! networks, separated by blanks. Without it the header is not read.
//!
//! Environment: `ADDR` (default `127.0.0.1:3000`), `DATABASE_URL` (default `sqlite://login.db`), `TRUSTED_PROXIES` (default
//! nobody).

use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::Form;
use axum::http::StatusCode;
use axum::routing::post;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::signal;
use tollgate::key::{ForwardedHeader, TrustedProxies};
use tollgate::{RateLimitLayer, SqliteStore, key};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let database = env::var("DATABASE_URL").unwrap_or_else(|_| "sqlite://login.db".to_owned());
    let proxies = env::var("TRUSTED_PROXIES").unwrap_or_default();

    let store = SqliteStore::connect(&database).await?;
    let proxies = TrustedProxies::try_networks(proxies.split_whitespace())?;
    let failures = RateLimitLayer::sliding(5, 900)
        .name("login")
        .key(key::client_ip(ForwardedHeader::x_forwarded_for(), proxies))
        .refund_if(|status| status != StatusCode::UNAUTHORIZED)
        .block_for(Duration::from_hours(1))
        .store(&store);

    let app = Router::new()
        .route("/login", post(login).route_layer(failures))
        .into_make_service_with_connect_info::<SocketAddr>();

    let listener = TcpListener::bind(&address).await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("listening on {url}, counting in {database}; try:");
    println!("  curl -i {url}/login -d 'password=open sesame'");
    println!("  curl -i {url}/login -d 'password=guess'");
    axum::serve(listener, app)
        .with_graceful_shutdown(stopped())
        .await?;
    store.close().await?;
    Ok(())
}

#[derive(Deserialize)]
struct Attempt {
    password: String,
}

async fn login(Form(attempt): Form<Attempt>) -> (StatusCode, &'static str) {
    // A real server compares hashes, in constant time.
    if attempt.password == "open sesame" {
        (StatusCode::OK, "welcome\n")
    } else {
        (StatusCode::UNAUTHORIZED, "wrong password\n")
    }
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
