//! The benchmark of audit and metering: what recording costs the requests, and how long questions about usage take.

mod file;
mod questions;
mod requests;

use anyhow::Result;
use tokio::runtime;

use crate::server::WORKERS;
use crate::{Effort, environment};

/// Measures, and prints what was found. `calls` is how many requests the file holds that is asked.
pub(crate) fn run(effort: Effort, calls: u64) -> Result<()> {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()?;
    runtime.block_on(measure(effort, calls))
}

async fn measure(effort: Effort, calls: u64) -> Result<()> {
    let directory = tempfile::tempdir()?;
    println!("{}", environment::describe().await?);
    println!("\n{}", requests::run(directory.path(), effort).await?);
    let database = directory.path().join("recorded.db");
    println!("\n{}", file::make(&database, calls).await?);
    println!("\n{}", questions::run(&database, effort).await?);
    Ok(())
}
