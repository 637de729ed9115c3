//! Instructions of one decision, counted by callgrind: unlike times, they do not hang on what else the machine does.

mod subject;

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tokio::runtime;

pub(crate) use self::subject::Subject;
use crate::keys::Keys;
use crate::{environment, results};

/// What its results are kept under.
pub(crate) const NAME: &str = "instructions";

/// What is counted begins and ends with this function, so that neither the set-up nor other threads are in it.
const COUNTED: &str = "*count_these*";
const DECISIONS: u64 = 20_000;

/// What was counted.
#[derive(Serialize, Deserialize)]
pub(crate) struct Counts {
    environment: String,
    pub(crate) rows: Vec<Count>,
}

/// Instructions of one decision, of one key and of many.
#[derive(Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) label: String,
    pub(crate) one: f64,
    pub(crate) many: f64,
}

/// Counts each subject in a process of its own, and prints a table.
pub(crate) fn run(is_saved: bool) -> Result<()> {
    let runtime = runtime::Builder::new_current_thread().build()?;
    let environment = runtime.block_on(environment::describe())?;
    println!("{environment}");
    println!("callgrind, {DECISIONS} decisions on one thread, without the system's clock\n");
    let width = Subject::ALL.map(|subject| subject.label().len());
    let width = width.into_iter().max().unwrap_or(0);
    println!(
        "{:width$}  {:>12}  {:>12}",
        "instructions of each",
        Keys::One.label(),
        Keys::Many.label()
    );
    let mut rows = Vec::new();
    for subject in Subject::ALL {
        let label = subject.label();
        let [one, many] = [Keys::One, Keys::Many].map(|keys| in_a_process(subject, keys));
        let [one, many] = [one?, many?].map(|count| count as f64 / DECISIONS as f64);
        println!("{label:width$}  {one:>12.0}  {many:>12.0}");
        let label = label.to_owned();
        rows.push(Count { label, one, many });
    }
    if is_saved {
        results::save(NAME, &Counts { environment, rows })?;
    }
    Ok(())
}

fn in_a_process(subject: Subject, keys: Keys) -> Result<u64> {
    let folder = tempfile::tempdir()?;
    let counts = folder.path().join("callgrind.out");
    let status = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .arg(env::current_exe()?)
        .args(["counted", &subject.argument(), &keys.count().to_string()])
        .stdin(Stdio::null())
        .status()
        .context("valgrind is not here: install it, it counts the instructions")?;
    ensure!(status.success(), "{} failed", subject.label());
    total(&fs::read_to_string(counts)?).with_context(|| subject.label())
}

/// The sum that callgrind has written at the end of its file.
fn total(counts: &str) -> Result<u64> {
    let line = counts.lines().rev();
    let mut line = line.filter_map(|line| line.strip_prefix("totals: "));
    let total = line.next().context("callgrind has counted nothing")?;
    Ok(total.trim().parse()?)
}

/// The process of one subject.
pub(crate) fn run_one(subject: Subject, keys: Keys) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let database: &Path = &directory.path().join("counted.db");
    // The callers' thread is this one: what is counted waits for nothing.
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(subject::count(subject, keys, database, DECISIONS))
}
