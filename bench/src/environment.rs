//! What the numbers depend on beside the contestants: the machine, the compiler, the versions.

use std::fmt::Write;
use std::thread;

use anyhow::{Context, Result};
use sqlx::{Connection, Row, SqliteConnection};

/// As it was when this was built.
const LOCK_FILE: &str = include_str!("../Cargo.lock");
const CRATES: [&str; 10] = [
    "tollgate",
    "tower_governor",
    "governor",
    "sqlx",
    "libsqlite3-sys",
    "axum",
    "hyper",
    "tokio",
    "tower",
    "mio",
];

/// Two lines that describe it.
pub(crate) async fn describe() -> Result<String> {
    let cpus = thread::available_parallelism().map_or(0, usize::from);
    let profile = if cfg!(debug_assertions) {
        "DEBUG BUILD: build with --release"
    } else {
        "release build"
    };
    let mut text = format!(
        "{cpus} CPUs, {}, {profile}, {}, SQLite {}\n",
        std::env::consts::OS,
        env!("RUSTC_VERSION"),
        sqlite_version().await?,
    );
    for (index, name) in CRATES.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        write!(
            text,
            "{separator}{name} {}",
            locked_version(name).unwrap_or("?")
        )?;
    }
    Ok(text)
}

async fn sqlite_version() -> Result<String> {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
    let rows = sqlx::query("SELECT sqlite_version()")
        .fetch_all(&mut connection)
        .await?;
    let row = rows.first().context("SQLite has no version")?;
    Ok(row.try_get(0)?)
}

/// The version of a crate: in the lock file it is on the line after its name.
fn locked_version(name: &str) -> Option<&'static str> {
    let name_line = format!("name = \"{name}\"");
    let mut lines = LOCK_FILE.lines();
    lines.find(|line| *line == name_line)?;
    let version = lines.next()?.strip_prefix("version = \"")?;
    version.strip_suffix('"')
}
