//! One subject: its requests, and what they have left.

use std::convert::Infallible;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Result, ensure};
use http::{Request, Response};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tollgate::{Key, MemoryStore, Policy, RateLimitLayer, SqliteStore, key};
use tower::{Layer, ServiceExt};

const LIMIT: u32 = 100;
const WINDOW_SECONDS: u64 = 3_600;
const TASKS: u32 = 64;

/// What is sized.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
pub(crate) enum Subject {
    Fixed,
    Sliding,
    Counter,
    Bucket,
    Memory,
    Recorded,
}

impl Subject {
    pub(super) const ALL: [Self; 6] = [
        Self::Fixed,
        Self::Sliding,
        Self::Counter,
        Self::Bucket,
        Self::Memory,
        Self::Recorded,
    ];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Fixed => "fixed window, in a file",
            Self::Sliding => "sliding window, in a file",
            Self::Counter => "sliding counter, in a file",
            Self::Bucket => "token bucket, in a file",
            Self::Memory => "fixed window, MemoryStore",
            Self::Recorded => "recorded in a file, MemoryStore",
        }
    }

    pub(super) fn argument(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Sliding => "sliding",
            Self::Counter => "counter",
            Self::Bucket => "bucket",
            Self::Memory => "memory",
            Self::Recorded => "recorded",
        }
    }

    fn policy(self) -> Policy {
        let policy = match self {
            Self::Sliding => Policy::sliding(LIMIT, WINDOW_SECONDS),
            Self::Counter => Policy::sliding_counter(LIMIT, WINDOW_SECONDS),
            Self::Bucket => Policy::token_bucket(LIMIT, WINDOW_SECONDS),
            Self::Fixed | Self::Memory | Self::Recorded => Policy::fixed(LIMIT, WINDOW_SECONDS),
        };
        policy.name("api")
    }
}

/// Bytes of the file when it is closed, and how much larger the process was then, where the system tells.
#[derive(Serialize, Deserialize)]
pub(super) struct Sizes {
    pub(super) file: u64,
    pub(super) memory: Option<u64>,
}

pub(super) async fn measure(subject: Subject, database: &Path, keys: u32) -> Result<Sizes> {
    let store = SqliteStore::open(database).await?;
    let layer = RateLimitLayer::new(subject.policy()).key(key::extension(|key: &Key| key.clone()));
    let layer = match subject {
        Subject::Memory => layer.store(&MemoryStore::new()),
        Subject::Recorded => layer.store(&MemoryStore::new()).audit(&store),
        _ => layer.store(&store),
    };
    let before = resident();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let service = layer.layer(tower::service_fn(answer));
        tasks.spawn(async move {
            for number in (task..keys).step_by(TASKS as usize) {
                let address = Ipv4Addr::from(0x0a00_0000 + number);
                let mut request = Request::new(());
                request.extensions_mut().insert(Key::ip(address.into()));
                let response = service.clone().oneshot(request).await?;
                ensure!(response.status() == 200, "a request was refused");
                // What records does so beside the requests, and drops what comes too fast.
                if subject == Subject::Recorded {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
            }
            Ok(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    let after = resident();
    store.close().await?;
    ensure!(store.audit_dropped() == 0, "requests were not recorded");
    Ok(Sizes {
        file: fs::metadata(database)?.len(),
        memory: before
            .zip(after)
            .map(|(before, after)| after.saturating_sub(before)),
    })
}

async fn answer(_: Request<()>) -> Result<Response<String>, Infallible> {
    Ok(Response::default())
}

/// The memory of this process that is in use.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1_024)
}
