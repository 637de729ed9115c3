//! The server process: one contestant in front of a hello-world handler.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
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

/// How a server is set up.
#[derive(Clone, clap::Args)]
pub(crate) struct SetUp {
    /// What those that count in a file count in.
    #[arg(long)]
    pub(crate) database: PathBuf,
    /// The connections of the upsert's pool.
    #[arg(long)]
    pub(crate) pool: u32,
    #[arg(long)]
    pub(crate) quota: Quota,
    /// So many keys have had a request before the first one comes.
    #[arg(long)]
    pub(crate) filled: u32,
    /// The port of the Redis that another server has started.
    #[arg(long)]
    pub(crate) redis: Option<u16>,
}

/// What the server prints when it is there, as a line of JSON.
#[derive(Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) address: SocketAddr,
    pub(crate) settings: String,
    /// Other processes that have a part in each request, and that this one has started.
    pub(crate) helpers: Vec<u32>,
    /// The port of the Redis that it uses.
    pub(crate) redis: Option<u16>,
}

/// Serves until standard input ends: also when whoever started it is gone.
pub(crate) fn run(contestant: Contestant, set_up: SetUp) -> Result<()> {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()?;
    // Spawned, so that accepting is done by a worker like all else.
    runtime.block_on(async move { tokio::spawn(serve(contestant, set_up)).await })?
}

async fn serve(contestant: Contestant, set_up: SetUp) -> Result<()> {
    let stopped = stopped();
    let entrant = contestant.enter(&set_up).await?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let hello = Hello {
        address: listener.local_addr()?,
        settings: entrant.settings.clone(),
        helpers: entrant.helpers(),
        redis: entrant.redis.as_ref().map(Redis::port),
    };
    println!("{}", serde_json::to_string(&hello)?);
    let listener = listener.tap_io(|stream| {
        // Without it a response may wait for an acknowledgement.
        let _ = stream.set_nodelay(true);
    });
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
