//! Several processes on one file, and processes that are killed.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use tollgate::{Key, Limiter, ManualClock, Policy, SqliteStore, Timestamp};

const NOON: i64 = 1_800_000_000_000;

/// A process that charges the key `user:alice`; see `bin/charger.rs`.
struct Charger {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Charger {
    /// Starts a process, and waits until it has opened the file.
    fn start(path: &Path, limit: u32, tasks: u32, charges: u32) -> Self {
        let numbers = [limit.to_string(), "60".into(), NOON.to_string()];
        let mut child = Command::new(example("charger"))
            .arg(path)
            .args(numbers)
            .args([tasks.to_string(), charges.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut started = Self { child, out };
        assert_eq!(started.line(), "ready\n");
        started
    }

    fn go(&mut self) {
        self.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    /// How many charges were admitted until the process ended.
    fn admitted(mut self) -> usize {
        let lines = (&mut self.out).lines().map(Result::unwrap);
        let admitted = lines.filter(|line| line == "admitted").count();
        assert!(self.child.wait().unwrap().success());
        admitted
    }
}

impl Drop for Charger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of an example that was built together with this test.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let path = profile
        .join("examples")
        .join(name)
        .with_extension(env::consts::EXE_EXTENSION);
    assert!(
        path.exists(),
        "{} is missing: build it with cargo build --examples",
        path.display()
    );
    path
}

async fn limiter(path: &Path, limit: u32) -> Limiter {
    let clock = ManualClock::new(Timestamp::from_unix_millis(NOON));
    let store = SqliteStore::open(path).await.unwrap().clock(&clock);
    Limiter::new(Policy::fixed(limit, 60).name("shared")).store(&store)
}

#[tokio::test]
async fn exactly_the_limit_passes_of_four_processes_on_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let mut chargers: Vec<_> = (0..4)
        .map(|_| Charger::start(&path, 1_000, 16, 50))
        .collect();
    for charger in &mut chargers {
        charger.go();
    }
    let admitted: usize = chargers.into_iter().map(Charger::admitted).sum();
    assert_eq!(admitted, 1_000);
    let alice = Key::new("user", "alice");
    let seen = limiter(&path, 1_000).await.peek(&alice).await.unwrap();
    assert_eq!(seen.used(), 1_000);
    assert!(seen.attempts() >= 4 * 16 * 50);
}

#[tokio::test]
async fn eight_processes_that_create_the_file_at_once_all_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || Charger::start(&path, 3, 1, 1))
        })
        .collect();
    let mut chargers: Vec<_> = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    for charger in &mut chargers {
        charger.go();
    }
    let admitted: usize = chargers.into_iter().map(Charger::admitted).sum();
    assert_eq!(admitted, 3);
}

#[tokio::test]
async fn what_a_killed_process_was_told_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let mut told = 0;
    for _ in 0..3 {
        let mut charger = Charger::start(&path, u32::MAX, 8, u32::MAX);
        charger.go();
        for _ in 0..200 {
            assert_eq!(charger.line(), "admitted\n");
        }
        charger.child.kill().unwrap();
        charger.child.wait().unwrap();
        let mut line = charger.line();
        told += 200;
        while line == "admitted\n" {
            told += 1;
            line = charger.line();
        }
    }
    let alice = Key::new("user", "alice");
    let used = limiter(&path, u32::MAX)
        .await
        .peek(&alice)
        .await
        .unwrap()
        .used();
    // Each kill may lose the answers of what was in flight, never a charge that was answered.
    assert!(
        (told..=told + 3 * 8).contains(&used),
        "told {told}, stored {used}"
    );
}

#[tokio::test]
async fn a_restart_keeps_the_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    for admitted in [3, 0] {
        let mut charger = Charger::start(&path, 3, 1, 3);
        charger.go();
        assert_eq!(charger.admitted(), admitted);
    }
}
