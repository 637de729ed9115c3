//! A cluster of three private servers for tests.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

/// Runs a node until the test process lets go of its input.
const RUN: &str = "
redis-server --port $2 --bind 127.0.0.1 --dir \"$1\" --save '' --cluster-enabled yes --cluster-node-timeout 1000 &
echo $!
read _
kill -9 $! 2> /dev/null
wait
rm -rf \"$1\"
";
/// The bus of a node has its port and this.
const BUS: u16 = 10_000;

/// A cluster of a test's own, on free ports.
pub(crate) struct Nodes {
    nodes: Vec<Node>,
}

struct Node {
    shell: Child,
    _output: BufReader<ChildStdout>,
    pid: String,
    port: u16,
}

impl Nodes {
    /// Starts three masters, which have a third of the slots each.
    pub(crate) fn start() -> Self {
        let nodes: Vec<_> = (0..3).map(|_| Node::start()).collect();
        let nodes = Self { nodes };
        for (place, slots) in ["0 5460", "5461 10922", "10923 16383"].iter().enumerate() {
            let mut arguments = vec!["CLUSTER", "ADDSLOTSRANGE"];
            arguments.extend(slots.split(' '));
            assert_eq!(nodes.cli(place, &arguments), "OK");
            let epoch = (place + 1).to_string();
            nodes.cli(place, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
        }
        for place in 1..3 {
            let port = nodes.nodes[0].port.to_string();
            assert_eq!(
                nodes.cli(place, &["CLUSTER", "MEET", "127.0.0.1", &port]),
                "OK"
            );
        }
        let is_known = |place| {
            nodes
                .cli(place, &["CLUSTER", "INFO"])
                .contains("cluster_state:ok")
                && nodes
                    .cli(place, &["CLUSTER", "SLOTS"])
                    .matches("127.0.0.1")
                    .count()
                    == 3
        };
        // Each look takes some milliseconds.
        let mut looks = 0..3_000;
        for place in 0..3 {
            assert!(
                looks.any(|_| is_known(place)),
                "the nodes do not find each other"
            );
        }
        nodes
    }

    /// Adds a replica of a master, which takes over when that is gone, and tells its place.
    pub(crate) fn add_replica(&mut self, of: usize) -> usize {
        self.nodes.push(Node::start());
        let place = self.nodes.len() - 1;
        self.cli(of, &["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
        let port = self.nodes[of].port.to_string();
        self.cli(place, &["CLUSTER", "MEET", "127.0.0.1", &port]);
        let (master, own) = (self.id(of), self.id(place));
        let mut looks = 0..3_000;
        // It is told of the master first.
        let replicates = || self.cli(place, &["CLUSTER", "REPLICATE", &master]) == "OK";
        assert!(looks.any(|_| replicates()), "the master is not found");
        let is_up = || {
            let told = self.cli(place, &["INFO", "replication"]);
            told.contains("master_link_status:up")
        };
        assert!(looks.any(|_| is_up()), "nothing is replicated");
        for place in 0..place {
            // A master that does not know it would not elect it.
            let is_known = || {
                let nodes = self.cli(place, &["CLUSTER", "NODES"]);
                let line = nodes.lines().find(|line| line.starts_with(&own));
                line.is_some_and(|line| line.contains("slave"))
            };
            assert!(looks.any(|_| is_known()), "the replica is not known");
        }
        place
    }

    /// The one that all tests of this process share, each in keys of its own.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Nodes> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    pub(crate) fn url(&self, place: usize) -> String {
        format!("redis://127.0.0.1:{}", self.nodes[place].port)
    }

    /// Asks a node something as an operator does.
    pub(crate) fn cli(&self, place: usize, arguments: &[&str]) -> String {
        let output = Command::new("redis-cli")
            .args(["-p", &self.nodes[place].port.to_string()])
            .args(arguments)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub(crate) fn id(&self, place: usize) -> String {
        self.cli(place, &["CLUSTER", "MYID"])
    }

    pub(crate) fn signal(&self, place: usize, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.nodes[place].pid])
            .status();
        assert!(sent.unwrap().success());
    }
}

impl Node {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap().keep();
        let mut shell = Command::new("sh")
            .args(["-c", RUN, "sh"])
            .arg(&folder)
            .arg(free_port().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(shell.stdout.take().unwrap());
        let mut pid = String::new();
        output.read_line(&mut pid).unwrap();
        let mut port = 0;
        loop {
            let mut line = String::new();
            let read = output.read_line(&mut line).unwrap();
            assert!(
                read > 0,
                "redis-server has ended instead of serving: is it installed?"
            );
            if let Some((_, rest)) = line.split_once("port=") {
                port = rest
                    .split(['.', ','])
                    .next()
                    .unwrap()
                    .trim()
                    .parse()
                    .unwrap();
            }
            if line.contains("eady to accept connections") {
                break;
            }
        }
        assert!(port > 0, "redis-server does not tell its port");
        Self {
            shell,
            _output: output,
            pid: pid.trim().to_owned(),
            port,
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shell.stdin.take();
        let _ = self.shell.wait();
    }
}

/// A port that is free now, and that of its bus.
pub(crate) fn free_port() -> u16 {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let mut ports = std::iter::repeat_with(|| fastrand::u16(12_000..22_000));
    let port = ports.find(|port| is_free(*port) && is_free(port + BUS));
    port.unwrap_or_default()
}
