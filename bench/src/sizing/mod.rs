//! What keys and recorded requests take: bytes in the file, and memory of the process.

mod measured;

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use tokio::runtime;

pub(crate) use self::measured::Subject;
use self::measured::{Sizes, measure};
use crate::environment;

/// Measures each subject in a process of its own, and prints a table.
pub(crate) fn run(keys: u32) -> Result<()> {
    let runtime = runtime::Builder::new_current_thread().build()?;
    println!("{}\n", runtime.block_on(environment::describe())?);
    println!(
        "{:40}  {:>12}  {:>14}  {:>16}",
        format!("{keys} keys, one request each"),
        "file, MB",
        "bytes each",
        "process, MB more"
    );
    for subject in Subject::ALL {
        let sizes = in_a_process(subject, keys)?;
        println!(
            "{:40}  {:>12.1}  {:>14.1}  {:>16}",
            subject.label(),
            sizes.file as f64 / 1e6,
            sizes.file as f64 / f64::from(keys),
            match sizes.memory {
                Some(memory) => format!("{:.1}", memory as f64 / 1e6),
                None => "?".to_owned(),
            },
        );
    }
    Ok(())
}

fn in_a_process(subject: Subject, keys: u32) -> Result<Sizes> {
    let output = Command::new(env::current_exe()?)
        .args(["sized", subject.argument(), "--keys", &keys.to_string()])
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "{} failed", subject.label());
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The process of one subject: prints what it measured.
pub(crate) fn run_one(subject: Subject, keys: u32) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let database: &Path = &directory.path().join("sized.db");
    let runtime = runtime::Builder::new_multi_thread().enable_all().build()?;
    let sizes = runtime.block_on(measure(subject, database, keys))?;
    println!("{}", serde_json::to_string(&sizes)?);
    Ok(())
}
