//! How long questions about usage take, and what charges notice of them.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Row};
use tollgate::{Days, Key, Limiter, Policy, SqliteStore, StoreError};

use crate::Effort;
use crate::measured::Recorder;
use crate::report::median;

/// All rows of a key, as it would be asked without sums.
const RAW: &str = "SELECT count(*), sum(units) FROM api_calls WHERE key = $1";

pub(super) async fn run(database: &Path, effort: Effort) -> Result<String> {
    let store = SqliteStore::open(database)
        .await?
        // What is measured must stay, whatever the date.
        .audit_retention(Duration::MAX)
        .usage_retention(Duration::MAX);
    let usage = store.usage(Days::parse("2026-11-01", "2026-11-30")?);
    let week = store.usage(Days::parse("2026-11-09", "2026-11-15")?);
    let of_key = usage.clone().key(&Key::new("user", 42));
    let rounds = effort.rounds;

    let mut text = format!("{:46}  {:>10}", "questions, medians", "ms");
    let mut line = |what: &str, millis: f64| {
        let _ = write!(text, "\n{what:46}  {millis:>10.2}");
    };
    line(
        "a key, a month, total",
        timed(rounds, async || of_key.total().await).await?,
    );
    line(
        "a key, a month, by day",
        timed(rounds, async || of_key.by_day().await).await?,
    );
    line(
        "a key, a month, by route",
        timed(rounds, async || of_key.by_route().await).await?,
    );
    line(
        "all keys, a week, total",
        timed(rounds, async || week.total().await).await?,
    );
    line(
        "all keys, a month, total",
        timed(rounds, async || usage.total().await).await?,
    );
    line(
        "all keys, a month, by day",
        timed(rounds, async || usage.by_day().await).await?,
    );
    line(
        "all keys, a month, the ten busiest",
        timed(rounds, async || usage.by_key(10).await).await?,
    );

    let mut connection = SqliteConnectOptions::new()
        .filename(database)
        .connect()
        .await?;
    let start = Instant::now();
    let raw = sqlx::query(RAW)
        .bind("user:42")
        .fetch_all(&mut connection)
        .await?;
    line(
        "for scale: a key, total, from its rows",
        millis(start.elapsed()),
    );
    connection.close().await?;
    let total = of_key.total().await?;
    let counts: (i64, i64) = (raw[0].get(0), raw[0].get(1));
    ensure!(
        counts
            == (
                i64::try_from(total.requests())?,
                i64::try_from(total.units())?
            ),
        "the sums are not those of the rows"
    );

    let quiet = charges_beside(&store, async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
    })
    .await?;
    let asked = charges_beside(&store, async || {
        let _ = usage.by_key(10).await;
    })
    .await?;
    let _ = write!(
        text,
        "\n\ncharges one after another, p99: {quiet:.1} us; beside the question for the ten busiest: {asked:.1} us"
    );
    store.close().await?;
    Ok(text)
}

/// The median of the milliseconds that a question takes.
async fn timed<T>(rounds: usize, ask: impl AsyncFn() -> Result<T, StoreError>) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        ask().await?;
        times.push(millis(start.elapsed()));
    }
    Ok(median(&times))
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// What 99 of 100 charges take at most, in microseconds, while something else is done.
async fn charges_beside(store: &SqliteStore, other: impl AsyncFn()) -> Result<f64> {
    let policy = Policy::fixed(u32::MAX, 60).name("beside").leases(false);
    let limiter = Limiter::new(policy).store(store);
    let is_over = Arc::new(AtomicBool::new(false));
    let charging = tokio::spawn({
        let is_over = Arc::clone(&is_over);
        async move {
            let key = Key::new("user", 1);
            let mut recorder = Recorder::new()?;
            while !is_over.load(Ordering::Relaxed) {
                let start = Instant::now();
                let is_allowed = limiter.check(&key).await?.is_allowed();
                recorder.record(start.elapsed(), is_allowed);
            }
            Ok::<_, anyhow::Error>(recorder)
        }
    });
    other().await;
    is_over.store(true, Ordering::Relaxed);
    let measured = charging.await??.finish(Duration::from_secs(1));
    ensure!(measured.failed == 0, "a charge was refused");
    Ok(measured.p99_micros)
}
