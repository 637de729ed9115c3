//! A turn: tasks that ask for one decision after the other, for so long.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::{JoinSet, coop};

use crate::cpu;
use crate::measured::{Measured, Recorder};

/// A task that asks.
pub(crate) trait Asker: Send + 'static {
    /// Asks for a decision, and says whether it is the one that it should be.
    fn ask(&mut self) -> impl Future<Output = Result<bool>> + Send;
}

/// Has all of them ask at the same time.
pub(crate) async fn take(askers: Vec<impl Asker>, seconds: f64) -> Result<Measured> {
    let cpu = cpu::Watch::this_process();
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds);
    let mut asking = JoinSet::new();
    for asker in askers {
        asking.spawn(ask(asker, end));
    }
    let mut total = Recorder::new()?;
    while let Some(recorder) = asking.join_next().await {
        total.add(&recorder??)?;
    }
    let mut measured = total.finish(start.elapsed());
    let used = cpu.used();
    measured.cpu_micros = measured.micros_each(used.by_processes);
    measured.set_share_of_others(used.share_of_machine);
    Ok(measured)
}

async fn ask(mut asker: impl Asker, end: Instant) -> Result<Recorder> {
    let mut recorder = Recorder::new()?;
    let mut now = Instant::now();
    while now < end {
        let is_as_expected = asker.ask().await?;
        let before = std::mem::replace(&mut now, Instant::now());
        recorder.record(now - before, is_as_expected);
        // One that never waits must let the other tasks run too.
        coop::consume_budget().await;
    }
    Ok(recorder)
}
