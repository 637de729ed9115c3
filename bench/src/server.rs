//! The server process: one contestant in front of a hello-world handler.

use std::io::{self, Read};
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};
use axum::serve::ListenerExt;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::oneshot;

use crate::contestant::{Contestant, Quota};
use crate::redis::Redis;

/// The runtime's threads, the same for every contestant.
pub(crate) const WORKERS: usize = 2;

/// What the server prints when it is there, as a line of JSON.
#[derive(Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) settings: String,
    /// Another process that has a part in each request.
    pub(crate) helper: Option<u32>,
}

/// Serves until standard input ends: also when whoever started it is gone.
pub(crate) fn run(contestant: Contestant, database: &Path, pool: u32, quota: Quota) -> Result<()> {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()?;
    // Spawned, so that accepting is done by a worker like all else.
    let database = database.to_owned();
    runtime.block_on(async move { tokio::spawn(serve(contestant, database, pool, quota)).await })?
}

async fn serve(
    contestant: Contestant,
    database: std::path::PathBuf,
    pool: u32,
    quota: Quota,
) -> Result<()> {
    let entrant = contestant.enter(&database, pool, quota).await?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let hello = Hello {
        address: listener.local_addr()?,
        settings: entrant.settings,
        helper: entrant.redis.as_ref().map(Redis::process),
    };
    println!("{}", serde_json::to_string(&hello)?);
    let listener = listener.tap_io(|stream| {
        // Without it a response may wait for an acknowledgement.
        let _ = stream.set_nodelay(true);
    });
    let stopped = stopped();
    let router = entrant.router;
    tokio::select! {
        result = async { axum::serve(listener, router).await } => result?,
        result = stopped => result.context("standard input is watched no more")?,
    }
    if let Some(store) = entrant.store {
        store.close().await?;
    }
    Ok(())
}

/// Completes when standard input ends.
fn stopped() -> oneshot::Receiver<()> {
    let (stop, stopped) = oneshot::channel();
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        let _ = stop.send(());
    });
    stopped
}
