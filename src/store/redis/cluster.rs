//! The nodes of a cluster: who has which slots, and calls that go to several of them at once.
//!
//! A call is of one slot. Those of one node go out together, and what is redirected was not done and goes to the other node.

use std::time::Instant;

use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, ConnectionAddr, ConnectionInfo, RedisError, Value};
use tokio::task::JoinSet;

use super::failure::{certain, failure, fault, is_no_script};
use super::scripts::Script;
use super::server::{Answer, Server, Timeout};
use super::slots::SLOTS;
use crate::limit::Timestamp;
use crate::store::StoreError;

/// So often a call is redirected at the most: by a map that is old, by a slot that moves, and by a script that was forgotten.
const ATTEMPTS: usize = 4;
const NOBODY: usize = usize::MAX;

/// The nodes of a cluster.
pub(super) struct Cluster {
    seeds: Vec<ConnectionInfo>,
    timeout: Timeout,
    nodes: Vec<Node>,
    owners: Vec<usize>,
    /// How often these were others than before.
    moves: u64,
    is_known: bool,
}

/// A node that was found. It keeps its place, also when it is no master any more, or gone.
struct Node {
    address: (String, u16),
    server: Server,
    /// Whether it has slots, as far as is known.
    is_master: bool,
    /// What its clock has shown, and when it was asked.
    heard: Option<(Instant, Timestamp)>,
}

/// What is asked of one slot.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) slot: u16,
    pub(super) keys: Vec<String>,
    pub(super) arguments: Vec<Vec<u8>>,
}

impl Call {
    fn cmd(&self, sha: &str) -> Cmd {
        let arguments = self.keys.len() + self.arguments.len();
        let mut cmd = Cmd::with_capacity(3 + arguments, 512);
        cmd.arg("EVALSHA").arg(sha).arg(self.keys.len());
        cmd.arg(&self.keys);
        for argument in &self.arguments {
            cmd.arg(&**argument);
        }
        cmd
    }
}

/// What became of a call.
type Result<T, E = StoreError> = std::result::Result<T, E>;
/// The place of a call, its node, when it was sent, and what came back.
type Returned = (usize, usize, Instant, Result<Value, RedisError>);

impl Cluster {
    pub(super) fn new(seeds: Vec<ConnectionInfo>, timeout: Timeout) -> Self {
        Self {
            seeds,
            timeout,
            nodes: Vec::new(),
            owners: vec![NOBODY; SLOTS],
            moves: 0,
            is_known: false,
        }
    }

    /// Runs a script for each call, and answers each in its place.
    pub(super) async fn run(&mut self, script: Script, calls: &[Call]) -> Vec<Result<Answer>> {
        let mut answers: Vec<Option<Result<Answer>>> = calls.iter().map(|_| None).collect();
        let mut open: Vec<usize> = (0..calls.len()).collect();
        for _ in 0..ATTEMPTS {
            if open.is_empty() {
                break;
            }
            if let Err(error) = self.know().await {
                for place in &open {
                    answers[*place] = Some(Err(error.clone()));
                }
                break;
            }
            let mut tasks = self.send(script, calls, &open, &mut answers).await;
            open.clear();
            while let Some(returned) = tasks.join_next().await {
                let Ok((place, node, sent, value)) = returned else {
                    continue;
                };
                match value.and_then(Value::extract_error) {
                    Ok(value) => answers[place] = Some(Ok(Answer { sent, value })),
                    Err(error) => {
                        let answer = self.failed(script, &calls[place], node, error).await;
                        match answer {
                            Some(answer) => answers[place] = Some(answer),
                            None => open.push(place),
                        }
                    }
                }
            }
        }
        let answered = |answer: Option<_>| answer.unwrap_or_else(|| Err(certain(Redirected)));
        answers.into_iter().map(answered).collect()
    }

    /// Sends the open calls, each to the node of its slot.
    async fn send(
        &mut self,
        script: Script,
        calls: &[Call],
        open: &[usize],
        answers: &mut [Option<Result<Answer>>],
    ) -> JoinSet<Returned> {
        let mut ready: Vec<Option<Result<(MultiplexedConnection, String)>>> =
            self.nodes.iter().map(|_| None).collect();
        let mut tasks = JoinSet::new();
        for &place in open {
            let node = self.owners[usize::from(calls[place].slot)];
            let Some(slot) = ready.get_mut(node) else {
                self.is_known = false;
                answers[place] = Some(Err(certain(Unserved)));
                continue;
            };
            if slot.is_none() {
                *slot = Some(self.nodes[node].server.ready(script).await);
            }
            match slot.clone() {
                Some(Ok((mut connection, sha))) => {
                    let cmd = calls[place].cmd(&sha);
                    tasks.spawn(async move {
                        let sent = crate::clock::monotonic();
                        let value = connection.send_packed_command(&cmd).await;
                        (place, node, sent, value)
                    });
                }
                Some(Err(error)) => {
                    // Another one may have taken its place.
                    self.is_known = false;
                    answers[place] = Some(Err(error));
                }
                None => {}
            }
        }
        tasks
    }

    /// What an error comes to; `None` when the call was not done and is to be sent again.
    async fn failed(
        &mut self,
        script: Script,
        call: &Call,
        node: usize,
        error: RedisError,
    ) -> Option<Result<Answer>> {
        let server = self.nodes.get_mut(node).map(|node| &mut node.server);
        if is_no_script(&error) {
            server?.forget(script);
            return None;
        }
        match error.code() {
            Some("MOVED") => {
                self.is_known = false;
                None
            }
            Some("ASK") => Some(self.ask_at(script, call, &error).await),
            Some("READONLY" | "MASTERDOWN" | "CLUSTERDOWN") => {
                self.is_known = false;
                Some(Err(failure(error)))
            }
            Some(_) => Some(Err(failure(error))),
            None => {
                // The connection is gone, or the node is.
                if let Some(server) = server {
                    server.close();
                }
                self.is_known = false;
                Some(Err(failure(error)))
            }
        }
    }

    /// Asks the node that a slot moves to.
    async fn ask_at(&mut self, script: Script, call: &Call, error: &RedisError) -> Result<Answer> {
        let (host, port) = error
            .redirect_node()
            .and_then(|(address, _)| address.rsplit_once(':'))
            .and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)))
            .ok_or_else(|| fault("a node redirects to no address"))?;
        let place = self.node(host, port)?;
        let server = &mut self.nodes[place].server;
        // It may have forgotten the script, and be made to once more in between.
        for _ in 0..2 {
            let (mut connection, sha) = server.ready(script).await?;
            let mut pipeline = redis::pipe();
            pipeline.cmd("ASKING").ignore();
            pipeline.add_command(call.cmd(&sha));
            let sent = crate::clock::monotonic();
            let values = connection.send_packed_commands(&pipeline, 1, 1).await;
            let value = values.map(|mut values| values.pop().unwrap_or_default());
            match value.and_then(Value::extract_error) {
                Ok(value) => return Ok(Answer { sent, value }),
                Err(error) if is_no_script(&error) => server.forget(script),
                Err(error) => return Err(failure(error)),
            }
        }
        Err(certain(Redirected))
    }

    /// The first master that has this place or one behind it.
    pub(super) async fn next(&mut self, place: usize) -> Result<Option<usize>> {
        self.know().await?;
        let mut places = place..self.nodes.len();
        Ok(places.find(|place| self.nodes[*place].is_master))
    }

    /// What is another one when slots have moved, or masters.
    pub(super) fn moves(&self) -> u64 {
        self.moves
    }

    /// Asks a master something. When it can't be asked, another one may have taken its place.
    pub(super) async fn ask(&mut self, place: usize, cmd: &Cmd) -> Result<Answer> {
        let Some(node) = self.nodes.get_mut(place) else {
            return Err(fault("the cluster has fewer nodes by now"));
        };
        let answer = node.server.ask(cmd).await;
        self.is_known &= answer.is_ok();
        answer
    }

    /// Notes what the clock of a slot's node has shown, and tells what the clock of the node shows that is furthest ahead.
    pub(super) fn heard(&mut self, slot: u16, sent: Instant, at: Timestamp) -> Timestamp {
        if let Some(node) = self.nodes.get_mut(self.owners[usize::from(slot)]) {
            node.heard = Some((sent, at));
        }
        let heard = self.nodes.iter().filter_map(|node| node.heard);
        let shown =
            heard.map(|(asked, shown)| shown.saturating_add(sent.saturating_duration_since(asked)));
        shown.fold(at, Timestamp::max)
    }

    pub(super) fn close(&mut self) {
        for node in &mut self.nodes {
            node.server.close();
        }
    }

    /// Asks who has which slots, unless that is known.
    async fn know(&mut self) -> Result<()> {
        if self.is_known {
            return Ok(());
        }
        let mut cmd = Cmd::new();
        cmd.arg("CLUSTER").arg("SLOTS");
        let mut last = StoreError::Closed;
        for place in 0..self.nodes.len() {
            match self.nodes[place].server.ask(&cmd).await {
                Ok(answer) => return self.learn(answer.value),
                Err(error) => last = error,
            }
        }
        for seed in self.seeds.clone() {
            let mut server = self.server(seed)?;
            match server.ask(&cmd).await {
                Ok(answer) => return self.learn(answer.value),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Takes in the answer to `CLUSTER SLOTS`.
    fn learn(&mut self, value: Value) -> Result<()> {
        let no_map = || fault("a node has answered no map of the slots");
        let Value::Array(ranges) = value else {
            return Err(no_map());
        };
        let mut owners = vec![NOBODY; SLOTS];
        let mut masters = Vec::new();
        for range in ranges {
            let Value::Array(range) = range else {
                return Err(no_map());
            };
            let [
                Value::Int(first),
                Value::Int(last),
                Value::Array(master),
                ..,
            ] = &*range
            else {
                return Err(no_map());
            };
            let (host, port) = match &**master {
                [Value::BulkString(host), Value::Int(port), ..] => (&**host, port),
                // It does not know what it is called.
                [Value::Nil, Value::Int(port), ..] => (&b""[..], port),
                _ => return Err(no_map()),
            };
            let host = String::from_utf8_lossy(host).into_owned();
            let port = u16::try_from(*port).map_err(|_| no_map())?;
            let place = self.node(host, port)?;
            masters.push(place);
            let [first, last] = [first, last].map(|slot| usize::try_from(*slot));
            let (first, last) = first.ok().zip(last.ok()).ok_or_else(no_map)?;
            let slots = owners.get_mut(first..=last).ok_or_else(no_map)?;
            slots.fill(place);
        }
        self.moves += u64::from(self.owners != owners);
        self.owners = owners;
        self.is_known = true;
        // Of one that is no master any more the clock says nothing.
        for (place, node) in self.nodes.iter_mut().enumerate() {
            node.is_master = masters.contains(&place);
            if !node.is_master {
                node.server.close();
                node.heard = None;
            }
        }
        Ok(())
    }

    /// The place of a node.
    fn node(&mut self, host: String, port: u16) -> Result<usize> {
        let address = (host, port);
        let known = self.nodes.iter().position(|node| node.address == address);
        if let Some(place) = known {
            return Ok(place);
        }
        let Some(seed) = self.seeds.first().cloned() else {
            return Err(fault("a cluster without an address"));
        };
        let info = info_of(seed, &address);
        let server = self.server(info)?;
        self.nodes.push(Node {
            address,
            server,
            is_master: false,
            heard: None,
        });
        Ok(self.nodes.len() - 1)
    }

    fn server(&self, info: ConnectionInfo) -> Result<Server> {
        let client = Client::open(info).map_err(certain)?;
        Ok(Server::new(client, self.timeout.clone()))
    }
}

/// A node is spoken to as the seed is. One that does not know its own address is where the seed is.
fn info_of(seed: ConnectionInfo, (host, port): &(String, u16)) -> ConnectionInfo {
    let is_unknown = host.is_empty() || host == "?";
    let of = |own: &str| if is_unknown { own } else { host }.to_owned();
    let address = match seed.addr() {
        ConnectionAddr::TcpTls {
            host: own,
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host: of(own),
            port: *port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        ConnectionAddr::Tcp(own, _) => ConnectionAddr::Tcp(of(own), *port),
        _ => ConnectionAddr::Tcp(host.clone(), *port),
    };
    seed.set_addr(address)
}

macro_rules! reason {
    ($name:ident, $text:literal) => {
        #[doc = $text]
        #[derive(Debug)]
        struct $name;

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($text)
            }
        }

        impl std::error::Error for $name {}
    };
}

reason!(Redirected, "a call was redirected again and again");
reason!(Unserved, "no node of the cluster serves the slot");
