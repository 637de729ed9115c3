//! The benchmark of the exact sliding window: what a decision costs at several limits, beside a window that counts its
//! events, and how many both let pass.

mod classic;
mod race;
mod table;
mod window;

use std::path::Path;

use anyhow::{Result, ensure};
use tokio::runtime;

use self::window::{Asked, Method, Window};
use crate::report::Row;
use crate::server::WORKERS;
use crate::sqlite_work::{Counting, Work};
use crate::{Effort, environment, pool};

const WINDOW_SECONDS: u64 = 60;
/// A full window holds as many events, of as many different milliseconds.
const LIMITS: [u32; 4] = [10, 100, 1_000, 10_000];
const METHODS: [Method; 2] = [Method::Tollgate, Method::Classic];

const WARM_UP_SECONDS: f64 = 0.2;
const TRIAL_SECONDS: f64 = 1.0;
/// The limit at which sizes of the pool are tried.
const TRIAL_LIMIT: u32 = 1_000;
/// Decisions whose work is counted. This crate deletes events once in 64 admitted ones at most: a multiple of that.
const COUNTED: u32 = 640;

/// What is timed.
#[derive(Clone, Copy)]
struct Case {
    asked: Asked,
    has_all_tasks: bool,
}

const CASES: [Case; 3] = [
    case(Asked::Refused, false),
    case(Asked::Admitted, false),
    // Not admitted ones by all tasks: those of one batch become one event, and the window would not stay what it is.
    case(Asked::Refused, true),
];

const fn case(asked: Asked, has_all_tasks: bool) -> Case {
    Case {
        asked,
        has_all_tasks,
    }
}

impl Case {
    fn tasks(self, effort: Effort) -> usize {
        if self.has_all_tasks {
            effort.connections
        } else {
            1
        }
    }

    fn label(self, effort: Effort) -> String {
        match self.tasks(effort) {
            1 => format!("{}, 1 task", self.asked.label()),
            tasks => format!("{}, {tasks} tasks", self.asked.label()),
        }
    }
}

/// A method at a limit: its window, and what was found out about it.
struct Entrant {
    method: Method,
    limit: u32,
    window: Window,
    /// For a refused and an admitted decision.
    work: [Work; 2],
    /// A row for each case.
    rows: [Row; CASES.len()],
}

/// Measures, and prints what was found.
pub(crate) fn run(effort: Effort) -> Result<()> {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()?;
    // Spawned, so that asking is done by a worker like all else.
    runtime.block_on(async move { tokio::spawn(measure(effort)).await })?
}

async fn measure(effort: Effort) -> Result<()> {
    let directory = tempfile::tempdir()?;
    println!("{}", environment::describe().await?);
    let pool = best_pool(directory.path(), effort.connections).await?;
    let mut entrants = Vec::new();
    for method in METHODS {
        for limit in LIMITS {
            eprintln!("filling the window of {}, limit {limit}", method.label());
            entrants.push(Entrant::enter(method, limit, directory.path(), pool, effort).await?);
        }
    }
    print_settings(&entrants, effort).await?;
    for round in 0..effort.rounds {
        eprintln!("round {} of {}", round + 1, effort.rounds);
        let mut order: Vec<_> = (0..entrants.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for (index, case) in CASES.iter().enumerate() {
            for entrant in &order {
                entrants[*entrant].take_turn(index, *case, effort).await?;
            }
        }
    }
    println!("\n{}", table::of(&entrants));
    println!(
        "\n{}",
        race::run(directory.path(), pool, effort.connections).await?
    );
    Ok(())
}

impl Entrant {
    /// Fills a window and counts the work of its decisions, then opens it again to be timed without being watched.
    async fn enter(
        method: Method,
        limit: u32,
        directory: &Path,
        pool: u32,
        effort: Effort,
    ) -> Result<Self> {
        let database = directory.join(format!("{method:?}-{limit}.db"));
        let clock = window::start();
        let counting = Counting::begin()?;
        let watched = Window::open(method, limit, &clock, &database, pool).await?;
        watched.fill().await?;
        let mut work = Vec::new();
        for asked in [Asked::Refused, Asked::Admitted] {
            counting.take();
            for _ in 0..COUNTED {
                ensure!(
                    watched.ask(asked).await?,
                    "a window decided otherwise than it should"
                );
            }
            work.push(counting.take());
        }
        watched.close().await?;
        drop(counting);

        let window = Window::open(method, limit, &clock, &database, pool).await?;
        for case in CASES {
            let tasks = case.tasks(effort);
            window.load(case.asked, tasks, WARM_UP_SECONDS).await?;
        }
        let row = |case: Case| Row {
            label: format!("{}, limit {limit}, {}", method.label(), case.label(effort)),
            turns: Vec::new(),
        };
        Ok(Self {
            method,
            limit,
            window,
            work: [work[0], work[1]],
            rows: CASES.map(row),
        })
    }

    async fn take_turn(&mut self, index: usize, case: Case, effort: Effort) -> Result<()> {
        let tasks = case.tasks(effort);
        let measured = self.window.load(case.asked, tasks, effort.seconds).await?;
        self.rows[index].turns.push(measured);
        Ok(())
    }
}

async fn print_settings(entrants: &[Entrant], effort: Effort) -> Result<()> {
    println!(
        "Full windows of {WINDOW_SECONDS} s, an event each {WINDOW_SECONDS} s / limit, decided by a clock that is set\n\
         {} interleaved rounds of {} s each; {WORKERS} workers; databases in the temporary folder\n\
         {}: Policy::sliding on SqliteStore::open, a deadline of {:?}, all else by default",
        effort.rounds,
        effort.seconds,
        Method::Tollgate.label(),
        window::PATIENCE,
    );
    let classic = entrants
        .iter()
        .find(|entrant| entrant.method == Method::Classic);
    if let Some(classic) = classic {
        let settings = classic.window.settings().await?;
        println!("{}: {settings}", Method::Classic.label());
    }
    Ok(())
}

/// Finds the size of the pool with which counting is fastest.
async fn best_pool(directory: &Path, tasks: usize) -> Result<u32> {
    let mut best = (0, 0.0);
    let method = Method::Classic;
    print!(
        "{}, decisions/s at limit {TRIAL_LIMIT} by size of the pool:",
        method.label()
    );
    for pool in pool::SIZES {
        let database = directory.join(format!("pool-{pool}.db"));
        let window = Window::open(method, TRIAL_LIMIT, &window::start(), &database, pool).await?;
        window.fill().await?;
        let rate = window
            .load(Asked::Refused, tasks, TRIAL_SECONDS)
            .await?
            .per_second;
        print!(" {pool}: {rate:.0}");
        if rate > best.1 {
            best = (pool, rate);
        }
    }
    println!();
    Ok(best.0)
}
