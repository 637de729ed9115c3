//! This program's other processes: servers for each contestant, and the one that loads.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::contestant::Contestant;
use crate::load::Load;
use crate::measured::Measured;
use crate::server::{Hello, SetUp};
use crate::trips;

/// Servers of one contestant that run until they are dropped, and share what they can share.
pub(crate) struct Servers {
    /// The first one last, which has what the others use.
    servers: Vec<Server>,
}

impl Servers {
    /// Starts one.
    pub(crate) fn start(contestant: Contestant, set_up: SetUp) -> Result<Self> {
        Self::start_several(contestant, set_up, 1)
    }

    pub(crate) fn start_several(
        contestant: Contestant,
        mut set_up: SetUp,
        processes: u32,
    ) -> Result<Self> {
        let mut servers = Vec::new();
        for _ in 0..processes {
            let server = Server::start(contestant, &set_up)?;
            set_up.redis = server.hello.redis;
            if contestant.is_shared() {
                set_up.filled = 0;
            }
            servers.insert(0, server);
        }
        Ok(Self { servers })
    }

    /// What the contestant is set to.
    pub(crate) fn settings(&self) -> &str {
        self.servers
            .last()
            .map_or("", |server| &server.hello.settings)
    }

    /// How often the server behind the first one was asked for a decision.
    pub(crate) fn trips(&self) -> Result<u64> {
        let server = self.servers.last().context("no server")?;
        trips::of(server.hello.address)
    }

    /// Loads them from another process, which ends with the turn.
    pub(crate) fn load(&self, load: Load) -> Result<Measured> {
        let mut command = Command::new(env::current_exe()?);
        command
            .args(["load", "--keys", &load.keys.to_string()])
            .args(["--connections", &load.connections.to_string()])
            .args(["--lead-in", &load.lead_in.to_string()])
            .args(["--seconds", &load.seconds.to_string()])
            .args(["--expected", &load.expected.to_string()]);
        for server in &self.servers {
            command.args(["--address", &server.hello.address.to_string()]);
            let helpers = server.hello.helpers.iter().copied();
            for process in [server.process.id()].into_iter().chain(helpers) {
                command.args(["--process", &process.to_string()]);
            }
        }
        let output = command.stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "the loading process failed");
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

struct Server {
    process: Child,
    hello: Hello,
}

impl Server {
    fn start(contestant: Contestant, set_up: &SetUp) -> Result<Self> {
        let mut process = Command::new(env::current_exe()?)
            .args(["server", &contestant.argument()])
            .arg("--database")
            .arg(&set_up.database)
            .args(["--pool", &set_up.pool.to_string()])
            .args(["--quota", &set_up.quota.argument()])
            .args(["--filled", &set_up.filled.to_string()])
            .args(set_up.redis.map(|port| format!("--redis={port}")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().context("no output of a server")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let hello: Hello = serde_json::from_str(&line)
            .with_context(|| format!("the server of {} did not start", contestant.label()))?;
        Ok(Self { process, hello })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The end of its input stops it, and it closes its database.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
