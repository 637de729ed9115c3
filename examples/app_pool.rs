//! Limits in the application's own database: one SQLite file with a table of notes, and beside it the counters.
//!
//! `POST /notes` writes a note, 3 in any 60 seconds from one address; `GET /notes` tells how many there are. The limit has a
//! connection of its own to the file, so the pool may be as small as it likes: here it has one connection.
//!
//! Environment: `ADDR` (default `127.0.0.1:3000`), `DATABASE_URL` (default `sqlite://app.db`).

use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::str::FromStr;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use tokio::net::TcpListener;
use tokio::signal;
use tollgate::{RateLimitLayer, SqliteStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let database = env::var("DATABASE_URL").unwrap_or_else(|_| "sqlite://app.db".to_owned());

    let options = SqliteConnectOptions::from_str(&database)?
        .create_if_missing(true)
        // Readers and writers do not wait for each other, and a commit does not wait for the disk.
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal);
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .connect_with(options)
        .await?;
    // A larger application has migrations; the tables of the limits are none of them.
    sqlx::query("CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")
        .execute(&pool)
        .await?;

    let store = SqliteStore::from_pool(&pool).await?;
    let limit = RateLimitLayer::sliding(3, 60).name("notes").store(&store);

    let app = Router::new()
        .route("/notes", post(write).route_layer(limit))
        .route("/notes", get(count))
        .with_state(pool.clone())
        .into_make_service_with_connect_info::<SocketAddr>();

    let listener = TcpListener::bind(&address).await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("listening on {url}, everything in {database}; try:");
    println!("  curl -i {url}/notes -d 'buy milk'");
    println!("  curl -i {url}/notes");
    axum::serve(listener, app)
        .with_graceful_shutdown(stopped())
        .await?;
    // The limits' connection, and then the application's.
    store.close().await?;
    pool.close().await;
    Ok(())
}

async fn write(State(pool): State<SqlitePool>, text: String) -> Result<StatusCode, StatusCode> {
    // A statement of its own begins no transaction that reads before it writes.
    sqlx::query("INSERT INTO notes (text) VALUES ($1)")
        .bind(text)
        .execute(&pool)
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(StatusCode::CREATED)
}

async fn count(State(pool): State<SqlitePool>) -> Result<String, StatusCode> {
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM notes")
        .fetch_one(&pool)
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(format!("{count} notes\n"))
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
