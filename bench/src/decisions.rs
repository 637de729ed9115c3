//! The benchmark without HTTP: tasks that ask for one decision after the other.

use std::path::Path;

use anyhow::Result;
use tokio::runtime;

use crate::contestant::{Contestant, Quota};
use crate::decider::Decider;
use crate::keys::Keys;
use crate::report::{self, Comparison, Figure, Ratio, Row, Wording};
use crate::results::{self, Results};
use crate::server::WORKERS;
use crate::{Effort, environment, governed, pool, whole};

/// The name of its results.
pub(crate) const NAME: &str = "decisions";

const WARM_UP_SECONDS: f64 = 0.5;
const TRIAL_SECONDS: f64 = 0.5;

const WORDING: Wording = Wording {
    rate: "decisions/s",
    cpu: "process us",
    has_loader: false,
};

/// Whether all tasks ask, or one.
#[derive(Clone, Copy)]
enum Tasks {
    All,
    Single,
}

/// The rows of the table.
const ENTRANTS: [(Contestant, Keys, Tasks); 9] = [
    (Contestant::Governor, Keys::One, Tasks::All),
    (Contestant::Tollgate, Keys::One, Tasks::All),
    (Contestant::Upsert, Keys::One, Tasks::All),
    (Contestant::Governor, Keys::Many, Tasks::All),
    (Contestant::Tollgate, Keys::Many, Tasks::All),
    (Contestant::Upsert, Keys::Many, Tasks::All),
    (Contestant::Governor, Keys::One, Tasks::Single),
    (Contestant::Tollgate, Keys::One, Tasks::Single),
    (Contestant::Upsert, Keys::One, Tasks::Single),
];

const TOLLGATE: usize = 1;
const UPSERT: usize = 2;

/// Of each three rows, this crate to both others.
const RATIOS: [Ratio; 6] = [
    ratio(1, 0),
    ratio(1, 2),
    ratio(4, 3),
    ratio(4, 5),
    ratio(7, 6),
    ratio(7, 8),
];

const fn ratio(of: usize, to: usize) -> Ratio {
    let target = None;
    Ratio { of, to, target }
}

/// Measures, and prints what was found.
pub(crate) fn run(effort: Effort) -> Result<()> {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()?;
    runtime.block_on(measure(effort))
}

async fn measure(effort: Effort) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let environment = environment::describe().await?;
    println!("{environment}");
    let (pool, trial) = best_pool(directory.path(), effort.connections).await?;
    let mut deciders = Vec::new();
    for (index, (contestant, keys, _)) in ENTRANTS.iter().enumerate() {
        let database = directory.path().join(format!("{index}.db"));
        deciders.push(Decider::open(*contestant, *keys, &database, pool).await?);
    }
    let settings = format!(
        "{} tasks on {WORKERS} workers; {} interleaved rounds of {} s each; databases in the temporary folder\n\
         Each decision is timed, which is a good part of governor's own time.\n\
         {trial}\n\
         tollgate: {}\ngovernor: {}\nupsert: {}",
        effort.connections,
        effort.rounds,
        effort.seconds,
        deciders[TOLLGATE].settings().await?,
        governed::settings(Quota::Endless),
        deciders[UPSERT].settings().await?,
    );
    println!("{settings}");

    let mut rows = ENTRANTS.map(|(contestant, keys, tasks)| Row {
        label: label(contestant, keys, tasks, effort.connections),
        turns: Vec::new(),
    });
    for (decider, (_, _, tasks)) in deciders.iter().zip(ENTRANTS) {
        decider.load(tasks.count(effort), WARM_UP_SECONDS).await?;
    }
    for round in 0..effort.rounds {
        eprintln!("round {} of {}", round + 1, effort.rounds);
        let mut order: Vec<_> = (0..ENTRANTS.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let tasks = ENTRANTS[index].2.count(effort);
            let measured = deciders[index].load(tasks, effort.seconds).await?;
            rows[index].turns.push(measured);
        }
    }
    println!("\n{}", report::table(&rows, WORDING));
    println!("\n{}", report::ratios(&rows, &RATIOS));
    let wholes = whole::run(effort, directory.path()).await?;
    if effort.save {
        let results = Results {
            wholes,
            ..kept(environment, &settings, &rows)
        };
        results::save(NAME, &results)?;
    }
    Ok(())
}

fn kept(environment: String, settings: &str, rows: &[Row]) -> Results {
    Results {
        environment,
        settings: settings.lines().map(str::to_owned).collect(),
        rows: rows.to_vec(),
        comparisons: vec![Comparison {
            figure: Figure::Rate,
            ratios: RATIOS.to_vec(),
        }],
        remarks: Vec::new(),
        wholes: Vec::new(),
    }
}

impl Tasks {
    fn count(self, effort: Effort) -> usize {
        match self {
            Self::All => effort.connections,
            Self::Single => 1,
        }
    }
}

fn label(contestant: Contestant, keys: Keys, tasks: Tasks, all: usize) -> String {
    let name = match contestant {
        Contestant::Governor => "governor",
        Contestant::Upsert => "upsert",
        other => other.label(),
    };
    let tasks = match tasks {
        Tasks::All => format!("{all} tasks"),
        Tasks::Single => "1 task".to_owned(),
    };
    format!("{name}, {}, {tasks}", keys.label())
}

/// Finds the size of the pool with which the upsert is fastest, and tells what was tried.
async fn best_pool(directory: &Path, tasks: usize) -> Result<(u32, String)> {
    let mut deciders = Vec::new();
    for pool in pool::SIZES {
        let database = directory.join(format!("pool-{pool}.db"));
        deciders.push(Decider::open(Contestant::Upsert, Keys::One, &database, pool).await?);
    }
    let mut rates = pool::SIZES.map(|_| Vec::new());
    for _ in 0..pool::TRIES {
        for (decider, rates) in deciders.iter().zip(&mut rates) {
            rates.push(decider.load(tasks, TRIAL_SECONDS).await?.per_second);
        }
    }
    let (best, tried) = pool::best(&rates);
    Ok((
        best,
        format!("upsert, decisions/s by size of the pool: {tried}"),
    ))
}
