//! Decisions one after the other, timed as a whole: nothing but the decisions is in the figure, as in what governor publishes.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tokio::task::coop;

use crate::Effort;
use crate::contestant::Contestant;
use crate::cpu;
use crate::decider::Decider;
use crate::keys::{Keys, Picker};
use crate::report::median;

/// What a decision in memory may take.
const TARGET_NANOS: f64 = 200.0;
/// All tasks ask for so long before each turn, so that keys have leases again: between turns they are idle.
const WARM_UP_SECONDS: f64 = 3.0;
/// Between two looks at the time.
const AT_A_TIME: usize = 10_000;

const ENTRANTS: [(Contestant, Keys); 4] = [
    (Contestant::Governor, Keys::One),
    (Contestant::Tollgate, Keys::One),
    (Contestant::Governor, Keys::Many),
    (Contestant::Tollgate, Keys::Many),
];

/// What a decision took in the rounds.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Whole {
    pub(crate) label: String,
    /// Nanoseconds, one for each round.
    nanos: Vec<f64>,
    /// The same of the process's CPU, the store's threads included.
    #[serde(default)]
    cpu_nanos: Vec<f64>,
    /// Decisions that were not as expected: with any of them the rest does not count.
    #[serde(default)]
    failed: u64,
    /// What they should be at most.
    pub(crate) target: Option<f64>,
}

impl Whole {
    /// The median; none where a decision failed.
    pub(crate) fn nanos(&self) -> Option<f64> {
        (self.failed == 0).then(|| median(&self.nanos))
    }

    /// The same as text.
    pub(crate) fn told(&self) -> String {
        self.nanos()
            .map_or_else(|| "-".to_owned(), |nanos| format!("{nanos:.0}"))
    }

    /// What is wrong with it, if anything is.
    pub(crate) fn warning(&self) -> Option<String> {
        let Self { label, failed, .. } = self;
        (*failed > 0).then(|| {
            format!("{label}, timed as a whole: {failed} ANSWERS WERE NOT AS EXPECTED, its numbers do not count")
        })
    }
}

/// Measures in one task, and prints what was found.
pub(crate) async fn run(effort: Effort, folder: &Path) -> Result<Vec<Whole>> {
    let mut deciders = Vec::new();
    for (index, (contestant, keys)) in ENTRANTS.into_iter().enumerate() {
        let database = folder.join(format!("whole-{index}.db"));
        deciders.push(Decider::open(contestant, keys, &database, 1).await?);
    }
    let mut rounds = [const { Vec::new() }; ENTRANTS.len()];
    for _ in 0..effort.rounds {
        for (decider, rounds) in deciders.iter().zip(&mut rounds) {
            decider.load(effort.connections, WARM_UP_SECONDS).await?;
            rounds.push(nanos_each(decider.clone(), effort.seconds).await?);
        }
    }
    println!(
        "\n{:30}  {:>8}  {:>8}  {:>8}",
        "1 task, timed as a whole", "ns", "CPU ns", "target"
    );
    let mut wholes = Vec::new();
    for ((contestant, keys), rounds) in ENTRANTS.into_iter().zip(rounds) {
        let failed = rounds.iter().map(|(_, failed)| failed).sum();
        let (nanos, cpu_nanos) = rounds
            .into_iter()
            .map(|([wall, cpu], _)| (wall, cpu))
            .unzip();
        let whole = Whole {
            label: label(contestant, keys),
            nanos,
            cpu_nanos,
            failed,
            target: (contestant == Contestant::Tollgate).then_some(TARGET_NANOS),
        };
        let target = whole.target.map(|target| format!("{target:.0}"));
        let target = target.as_deref().unwrap_or("-");
        println!(
            "{:30}  {:>8}  {:>8.0}  {target:>8}",
            whole.label,
            whole.told(),
            median(&whole.cpu_nanos)
        );
        if let Some(warning) = whole.warning() {
            println!("{warning}");
        }
        wholes.push(whole);
    }
    Ok(wholes)
}

/// What the row of one is called.
pub(crate) fn label(contestant: Contestant, keys: Keys) -> String {
    let name = match contestant {
        Contestant::Governor => "governor",
        other => other.label(),
    };
    format!("{name}, {}", keys.label())
}

/// Has a task ask for one decision after the other: by the clock, and by what the process used, which the writer's thread is in. With it,
/// how many were not allowed or not answered.
async fn nanos_each(decider: Decider, seconds: f64) -> Result<([f64; 2], u64)> {
    let asking = tokio::spawn(async move {
        let mut picker = Picker::new(0, decider.key_count());
        let cpu = cpu::Watch::this_process();
        let (start, mut count) = (Instant::now(), 0_usize);
        let (mut elapsed, mut failed) = (0.0, 0);
        while elapsed < seconds {
            for _ in 0..AT_A_TIME {
                let is_allowed = decider.is_allowed(picker.pick()).await?;
                failed += u64::from(!is_allowed);
            }
            count += AT_A_TIME;
            // One that never waits must let others run too.
            coop::consume_budget().await;
            elapsed = start.elapsed().as_secs_f64();
        }
        let used = cpu.used().by_processes.unwrap_or_default();
        let nanos = [elapsed, used.as_secs_f64()].map(|seconds| 1e9 * seconds / count as f64);
        Ok((nanos, failed))
    });
    asking.await?
}
