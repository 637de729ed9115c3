//! Private servers for tests, from the installed package.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs a server until the test process lets go of its input, however that ends: then it is killed, and its folder deleted.
const RUN: &str = "
redis-server --port 0 --unixsocket \"$1/socket\" --dir \"$1\" --save '' --databases 2 $2 &
echo $!
read _
kill -9 $! 2> /dev/null
wait
rm -rf \"$1\"
";

/// A server of a test's own. Dropping it kills it.
pub(crate) struct RedisServer {
    shell: Child,
    _output: BufReader<ChildStdout>,
    pid: String,
    folder: PathBuf,
    options: &'static str,
    is_stopped: bool,
}

impl RedisServer {
    /// Starts a server, with more of its options.
    pub(crate) fn start(options: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap().keep();
        Self::start_in(folder, options)
    }

    fn start_in(folder: PathBuf, options: &'static str) -> Self {
        let is_there = Command::new("redis-server").arg("--version").output();
        assert!(
            is_there.is_ok_and(|output| output.status.success()),
            "redis-server is not installed: install the package redis-server, or valkey with its Redis names"
        );
        let mut shell = Command::new("sh")
            .args(["-c", RUN, "sh"])
            .arg(&folder)
            .arg(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(shell.stdout.take().unwrap());
        let mut pid = String::new();
        output.read_line(&mut pid).unwrap();
        loop {
            let mut line = String::new();
            let read = output.read_line(&mut line).unwrap();
            assert!(read > 0, "redis-server has ended instead of serving");
            if line.contains("eady to accept connections") {
                break;
            }
        }
        Self {
            shell,
            _output: output,
            pid: pid.trim().to_owned(),
            folder,
            options,
            is_stopped: false,
        }
    }

    /// The one that all tests of this process share, each in keys of its own.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<RedisServer> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(""))
    }

    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// A prefix that no other test has.
    pub(crate) fn prefix() -> String {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        format!("test-{}:", NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends the process a signal.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.pid]).status();
        assert!(sent.unwrap().success());
    }

    /// Kills the server and starts another one on the same files.
    pub(crate) fn restart(&mut self) {
        if !self.is_stopped {
            self.stop();
        }
        let folder = self.folder.clone();
        let next = Self::start_in(folder, self.options);
        let before = std::mem::replace(self, next);
        std::mem::forget(before);
    }

    /// Kills the server, and leaves its files.
    pub(crate) fn stop(&mut self) {
        self.signal("KILL");
        self.is_stopped = true;
        // The shell goes on to its end without the folder being deleted when that is in use again.
        let parked = self.folder.with_extension("parked");
        std::fs::rename(&self.folder, &parked).unwrap();
        self.shell.stdin.take();
        self.shell.wait().unwrap();
        std::fs::rename(&parked, &self.folder).unwrap();
    }

    /// Asks the server something as an operator does.
    pub(crate) fn cli(&self, arguments: &[&str]) -> String {
        let output = Command::new("redis-cli")
            .arg("-s")
            .arg(self.socket())
            .args(arguments)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.shell.stdin.take();
        let _ = self.shell.wait();
    }
}
