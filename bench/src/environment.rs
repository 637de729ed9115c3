//! What the numbers depend on beside the contestants: the machine, the compiler, the versions.

use std::fmt::Write;
use std::fs;
use std::thread;

use anyhow::{Context, Result};
use sqlx::{Connection, Row, SqliteConnection};
use tokio::runtime;

/// As it was when this was built.
const LOCK_FILE: &str = include_str!("../Cargo.lock");
const CRATES: [&str; 11] = [
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
    "redis",
];

/// The same, where nothing waits.
pub(crate) fn of_run() -> Result<String> {
    let runtime = runtime::Builder::new_current_thread().build()?;
    runtime.block_on(describe())
}

/// Two lines that describe it.
pub(crate) async fn describe() -> Result<String> {
    let cpus = thread::available_parallelism().map_or(0, usize::from);
    let profile = if cfg!(debug_assertions) {
        "DEBUG BUILD: build with --release"
    } else {
        "release build"
    };
    let mut text = format!(
        "{cpus} CPUs ({}), {} {}, {profile}, {}, SQLite {}\n",
        cpu_model().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        std::env::consts::OS,
        kernel().unwrap_or_default(),
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

/// What the processor calls itself (Linux alone).
fn cpu_model() -> Option<String> {
    let processors = fs::read_to_string("/proc/cpuinfo").ok()?;
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name"))?;
    Some(model.trim_start_matches([':', ' ', '\t']).to_owned())
}

/// The kernel's release, without what its builder has added (Linux alone).
fn kernel() -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let is_of_a_number = |char: char| char.is_ascii_digit() || char == '.';
    Some(
        release
            .chars()
            .take_while(|char| is_of_a_number(*char))
            .collect(),
    )
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
