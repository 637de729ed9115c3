//! This program's other processes: a server for each contestant, and the one that loads.

use std::env;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::contestant::{Contestant, Quota};
use crate::cpu;
use crate::keys::Keys;
use crate::load::Load;
use crate::measured::Measured;
use crate::server::Hello;

/// A server that runs, until it is dropped.
pub(crate) struct Server {
    process: Child,
    address: SocketAddr,
    settings: String,
    helper: Option<u32>,
}

impl Server {
    pub(crate) fn start(
        contestant: Contestant,
        database: &Path,
        pool: u32,
        quota: Quota,
    ) -> Result<Self> {
        let mut process = Command::new(env::current_exe()?)
            .arg("server")
            .arg(contestant.argument())
            .arg("--database")
            .arg(database)
            .args(["--pool", &pool.to_string()])
            .args(["--quota", &quota.argument()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().context("no output of a server")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let hello: Hello = serde_json::from_str(&line)
            .with_context(|| format!("the server of {} did not start", contestant.label()))?;
        Ok(Self {
            process,
            address: hello.address,
            settings: hello.settings,
            helper: hello.helper,
        })
    }

    /// What its contestant is set to.
    pub(crate) fn settings(&self) -> &str {
        &self.settings
    }

    /// Loads it for so long from another process, which ends with it.
    pub(crate) fn load(&self, keys: Keys, load: Load) -> Result<Measured> {
        let cpu = cpu::Watch::processes(self.process.id(), self.helper);
        let output = Command::new(env::current_exe()?)
            .args(["load", &self.address.to_string(), keys.argument()])
            .args(["--connections", &load.connections.to_string()])
            .args(["--seconds", &load.seconds.to_string()])
            .args(["--expected", &load.expected.to_string()])
            .args(load.uses_up.then_some("--uses-up"))
            .stderr(Stdio::inherit())
            .output()?;
        let used = cpu.used();
        ensure!(output.status.success(), "the loading process failed");
        let mut measured: Measured = serde_json::from_slice(&output.stdout)?;
        measured.cpu_micros = measured.micros_each(used.by_process);
        measured.set_share_of_others(used.share_of_machine);
        Ok(measured)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The end of its input stops it, and it closes its database.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
