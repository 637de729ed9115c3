//! A private Postgres for tests: in a folder of its own, on a free port, gone with the process that started it.
//!
//! The tests of the library and those through its public API each have this file as a module of theirs.

use std::env;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

/// Starts the server, and ends it when the test process does, however that ends: then its standard input is closed.
const WATCH: &str = r#"
trap '' INT TERM HUP
start() {
    $AS_POSTGRES "$BIN/postgres" -D "$DATA" -p "$PORT" >>"$DATA/log" 2>&1 </dev/null &
    server=$!
}
start
while read -r line; do start; done
kill -QUIT "$server" 2>/dev/null
wait
rm -rf "${DATA%/data}"
"#;

/// Kept small, and without a wait for the disk: nothing of it is to outlive a power failure.
const SETTINGS: &str = "
listen_addresses = '127.0.0.1'
max_connections = 60
shared_buffers = 32MB
fsync = off
full_page_writes = off
autovacuum_naptime = 1s
log_lock_waits = on
";

/// A server that runs.
pub(crate) struct PostgresServer {
    port: u16,
    data: PathBuf,
    watch: Child,
    _folder: TempDir,
}

static SHARED: OnceLock<PostgresServer> = OnceLock::new();
static SCHEMAS: AtomicU32 = AtomicU32::new(0);

impl PostgresServer {
    /// The server that all tests of this process share.
    pub(crate) fn shared() -> &'static Self {
        SHARED.get_or_init(Self::start)
    }

    /// The name of a schema that no other test has.
    pub(crate) fn new_schema() -> String {
        format!("test_{}", SCHEMAS.fetch_add(1, Ordering::Relaxed))
    }

    /// A server of one's own, to be killed.
    pub(crate) fn start() -> Self {
        let bin = programs();
        let folder = tempfile::Builder::new()
            .prefix("tollgate-postgres-")
            .tempdir()
            .unwrap();
        let data = folder.path().join("data");
        let user = postgres_user(&folder);
        make_cluster(&bin, &data, &user);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let sockets = folder.path().display();
        append(
            &data.join("postgresql.conf"),
            &format!("{SETTINGS}unix_socket_directories = '{sockets}'\n"),
        );
        let watch = Command::new("sh")
            .arg("-c")
            .arg(WATCH)
            .env("AS_POSTGRES", user.join(" "))
            .env("BIN", &bin)
            .env("DATA", &data)
            .env("PORT", port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = Self {
            port,
            data,
            watch,
            _folder: folder,
        };
        server.wait_until_it_answers(true);
        server
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Kills the server as a crash of its machine would, all of its processes at once, and waits until it is gone.
    pub(crate) fn kill(&self) {
        let processes = self.processes();
        signal("KILL", &processes);
        while processes.iter().any(|process| is_alive(process)) {
            std::thread::yield_now();
        }
        fs::remove_file(self.data.join("postmaster.pid")).ok();
    }

    /// Starts it again, after it was killed.
    pub(crate) fn restart(&mut self) {
        let watch = self.watch.stdin.as_mut().unwrap();
        watch.write_all(b"start\n").unwrap();
        self.wait_until_it_answers(false);
    }

    /// Has all of its processes stand still.
    pub(crate) fn pause(&self) {
        signal("STOP", &self.processes());
    }

    /// Has them go on.
    pub(crate) fn resume(&self) {
        signal("CONT", &self.processes());
    }

    fn wait_until_it_answers(&mut self, is_first: bool) {
        // The server writes into this file how far it is.
        let is_ready = |file: String| {
            file.lines()
                .nth(7)
                .is_some_and(|state| state.trim() == "ready")
        };
        let file = self.data.join("postmaster.pid");
        while !fs::read_to_string(&file).is_ok_and(is_ready) {
            if let Ok(Some(_)) | Err(_) = self.watch.try_wait() {
                break;
            }
            let log = fs::read_to_string(self.data.join("log")).unwrap_or_default();
            // Later on clients that come too early are told so.
            assert!(
                !is_first || !log.contains("FATAL"),
                "the private Postgres does not start:\n{log}"
            );
            std::thread::yield_now();
        }
    }

    /// The server and those that it has started, by their numbers.
    fn processes(&self) -> Vec<String> {
        let file = fs::read_to_string(self.data.join("postmaster.pid"));
        let file = file.unwrap_or_default();
        let Some(own) = file.lines().next().map(str::to_owned) else {
            return Vec::new();
        };
        let children = Command::new("ps")
            .args(["-o", "pid=", "--ppid", &own])
            .output()
            .unwrap();
        let children = String::from_utf8(children.stdout).unwrap();
        let children = children.split_whitespace().map(str::to_owned);
        std::iter::once(own.clone()).chain(children).collect()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // One that stands still would not end.
        self.resume();
        drop(self.watch.stdin.take());
        self.watch.wait().ok();
    }
}

fn signal(name: &str, processes: &[String]) {
    if processes.is_empty() {
        return;
    }
    // One that has ended by now needs none.
    let kill = Command::new("kill")
        .arg(format!("-{name}"))
        .args(processes)
        .stderr(Stdio::null())
        .status();
    kill.unwrap();
}

fn is_alive(process: &str) -> bool {
    // What nobody has waited for is dead all the same.
    let state = fs::read_to_string(format!("/proc/{process}/stat"));
    state.is_ok_and(|state| !state.contains(") Z "))
}

/// The folder of the server's programs, of the latest version that is installed.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let versions = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    let elsewhere = env::var_os("PATH").unwrap_or_default();
    let mut found = versions
        .chain(env::split_paths(&elsewhere))
        .filter(|folder| folder.join("initdb").exists() && folder.join("postgres").exists());
    found.next().unwrap_or_else(|| {
        panic!("tests of the feature `postgres` start a server of their own: install the package `postgresql`")
    })
}

/// What runs a program as somebody else than root, who may run no server: the user `postgres`, who gets the folder.
fn postgres_user(folder: &TempDir) -> Vec<String> {
    let own = Command::new("id").arg("-u").output().unwrap();
    if String::from_utf8_lossy(&own.stdout).trim() != "0" {
        return Vec::new();
    }
    let given = Command::new("chown")
        .arg("postgres")
        .arg(folder.path())
        .status();
    assert!(
        given.unwrap().success(),
        "root may not run Postgres, and there is no user `postgres`: install the package `postgresql`"
    );
    let words = "setpriv --reuid=postgres --regid=postgres --init-groups --";
    words.split(' ').map(str::to_owned).collect()
}

/// The collation is one that sorts `a` before `B`, as those of most databases do, where the server has it: from version 15 on.
const COLLATIONS: [&str; 2] = [
    "--locale=C --locale-provider=icu --icu-locale=en-US",
    "--locale=C",
];

fn make_cluster(bin: &Path, data: &Path, user: &[String]) {
    let mut error = String::new();
    for collation in COLLATIONS {
        match try_make_cluster(bin, data, user, collation) {
            Ok(()) => return,
            Err(said) => error = said,
        }
    }
    panic!("initdb failed: {error}");
}

/// A cluster that can't be made leaves no folder.
fn try_make_cluster(
    bin: &Path,
    data: &Path,
    user: &[String],
    collation: &str,
) -> Result<(), String> {
    let initdb = bin.join("initdb").display().to_string();
    let options = format!("-A trust -U postgres -E UTF8 --no-sync {collation}");
    let mut words = user.to_vec();
    words.push(initdb);
    words.extend(options.split(' ').map(str::to_owned));
    let made = Command::new(&words[0])
        .args(&words[1..])
        .arg("-D")
        .arg(data)
        .output()
        .unwrap();
    if made.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&made.stderr).into_owned())
}

fn append(path: &Path, text: &str) {
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}
