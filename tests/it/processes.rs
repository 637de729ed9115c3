//! Several processes on one file, and processes that are killed.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use tollgate::{
    Decision, Key, Limiter, ManualClock, Policies, Policy, SqliteStore, Timestamp, Verdict,
};

/// The start of a minute, an hour; 8 hours into a day.
pub(crate) const NOON: i64 = 3_567_225_600_000;

/// A process that charges the key `user:alice`; see `bin/charger.rs`.
pub(crate) struct Charger {
    pub(crate) child: Child,
    out: Option<BufReader<ChildStdout>>,
}

impl Charger {
    /// Starts a process at an instant, and waits until it has opened the file.
    pub(crate) fn start(path: &Path, policies: &str, at: i64, tasks: u32, charges: u32) -> Self {
        Self::start_with(path, policies, at, (tasks, charges), &[])
    }

    /// The same with options.
    pub(crate) fn start_with(
        path: &Path,
        policies: &str,
        at: i64,
        (tasks, charges): (u32, u32),
        options: &[&str],
    ) -> Self {
        let mut child = Command::new(example("charger"))
            .arg(path)
            .args([policies, &at.to_string()])
            .args([tasks.to_string(), charges.to_string()])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut started = Self {
            child,
            out: Some(out),
        };
        assert_eq!(started.line(), "ready\n");
        started
    }

    pub(crate) fn go(&mut self) {
        self.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let out = self.out.as_mut().unwrap();
        out.read_line(&mut line).unwrap();
        line
    }

    /// What it says from now on.
    pub(crate) fn take_out(&mut self) -> BufReader<ChildStdout> {
        self.out.take().unwrap()
    }

    /// How many charges were admitted until the process ended.
    pub(crate) fn admitted(mut self) -> usize {
        let lines = self.take_out().lines().map(Result::unwrap);
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

/// The limiter of the same policies in this process, at an instant.
async fn limiter(path: &Path, policies: impl Into<Policies>, at: i64) -> Limiter {
    let clock = ManualClock::new(Timestamp::from_unix_millis(at));
    let store = SqliteStore::open(path).await.unwrap();
    let store = store.clock(&clock).deadline(Duration::from_secs(10));
    Limiter::new(policies).store(&store)
}

pub(crate) fn alice() -> Key {
    Key::new("user", "alice")
}

/// What each policy says that was used.
fn used(seen: &Decision) -> Vec<u64> {
    seen.verdicts().map(Verdict::used).collect()
}

/// How many of 640 charges are admitted, by eight processes of 16 tasks that begin together. Their clocks are a
/// millisecond apart, and they take turns with the texts of policies.
fn admitted_of_eight(path: &Path, policies: &[&str], at: i64) -> usize {
    let mut chargers: Vec<_> = (0..8)
        .zip(policies.iter().cycle())
        .map(|(place, policies)| Charger::start(path, policies, at + place, 16, 5))
        .collect();
    for charger in &mut chargers {
        charger.go();
    }
    let admitted: usize = chargers.into_iter().map(Charger::admitted).sum();
    admitted + rest(path, policies[0], at + 7)
}

/// What a process gets that comes when the others have closed their stores, which gives back what they have charged ahead and not
/// spent. Until then the others are refused it.
pub(crate) fn rest(path: &Path, policies: &str, at: i64) -> usize {
    let mut last = Charger::start(path, policies, at, 1, 500);
    last.go();
    last.admitted()
}

/// Eight processes together get exactly the limit of 200, and it is stored.
async fn assert_exactly_200_pass(text: &str, policy: Policy) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    assert_eq!(admitted_of_eight(&path, &[text], NOON), 200);
    let limiter = limiter(&path, policy, NOON + 8).await;
    let seen = limiter.peek(&alice()).await.unwrap();
    assert_eq!((seen.is_allowed(), used(&seen)), (false, vec![200]));
}

#[cfg(unix)]
#[tokio::test]
async fn a_process_that_starts_on_a_full_disk_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let limiter = limiter(&path, Policy::fixed(10, 60).name("p"), NOON).await;
    let _ = limiter.check(&alice()).await.unwrap();
    drop(limiter);
    while path.with_extension("db-wal").exists() {
        tokio::task::yield_now().await;
    }
    // No file may become larger than this, which stands for a disk without room: writes fail, and reads do not.
    let shell = "trap '' XFSZ; ulimit -f 4; exec \"$@\"";
    let output = Command::new("sh")
        .args(["-c", shell, "sh"])
        .arg(example("charger"))
        .arg(&path)
        .args(["fixed:10:60", &NOON.to_string(), "1", "1"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("has no room"), "{said}");
    assert!(said.contains("[disk-full]"), "{said}");
}

#[tokio::test]
async fn exactly_the_limit_of_a_fixed_window_passes_of_eight_processes() {
    let policy = Policy::fixed(200, 60).name("fixed");
    assert_exactly_200_pass("fixed:200:60", policy).await;
}

#[tokio::test]
async fn exactly_the_limit_of_a_sliding_window_passes_of_eight_processes() {
    let policy = Policy::sliding(200, 60).name("sliding");
    assert_exactly_200_pass("sliding:200:60", policy).await;
}

#[tokio::test]
async fn exactly_the_burst_of_a_token_bucket_passes_of_eight_processes() {
    let policy = Policy::token_bucket(10, 3_600).burst(200);
    assert_exactly_200_pass("token-bucket:10:3600:200", policy.name("token-bucket")).await;
}

#[tokio::test]
async fn exactly_the_limit_of_a_calendar_quota_passes_of_eight_processes() {
    for (text, policy) in [
        ("hourly:200", Policy::hourly(200).name("hourly")),
        ("daily:200", Policy::daily(200).name("daily")),
        ("monthly:200", Policy::monthly(200).name("monthly")),
    ] {
        assert_exactly_200_pass(text, policy).await;
    }
}

#[tokio::test]
async fn exactly_what_the_window_before_leaves_of_a_sliding_counter_passes_of_eight_processes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let policy = Policy::sliding_counter(200, 60).name("sliding-counter");
    let before = limiter(&path, policy.clone(), NOON - 1).await;
    let charged = before.check_n(&alice(), 100).await.unwrap();
    assert!(charged.is_allowed());
    // Three quarters of the 100 still count.
    let at = NOON + 15_000;
    let admitted = admitted_of_eight(&path, &["sliding-counter:200:60"], at);
    assert_eq!(admitted, 125);
    let seen = limiter(&path, policy, at).await.peek(&alice()).await;
    assert_eq!(used(&seen.unwrap()), [200]);
}

#[tokio::test]
async fn exactly_the_strictest_of_three_policies_passes_of_eight_processes_and_is_charged_to_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    // Whatever the order in which a process names them.
    let texts = [
        "sliding:150:60,daily:100,token-bucket:10:3600:120",
        "token-bucket:10:3600:120,daily:100,sliding:150:60",
    ];
    assert_eq!(admitted_of_eight(&path, &texts, NOON), 100);
    let policies = [
        Policy::sliding(150, 60).name("sliding"),
        Policy::daily(100).name("daily"),
        Policy::token_bucket(10, 3_600)
            .burst(120)
            .name("token-bucket"),
    ];
    let limiter = limiter(&path, policies, NOON + 8).await;
    let seen = limiter.peek(&alice()).await.unwrap();
    assert_eq!(used(&seen), [100, 100, 100]);
}

#[tokio::test]
async fn exactly_the_limit_passes_of_four_processes_on_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let mut chargers: Vec<_> = (0..4)
        .map(|_| Charger::start(&path, "fixed:1000:60", NOON, 16, 50))
        .collect();
    for charger in &mut chargers {
        charger.go();
    }
    let admitted: usize = chargers.into_iter().map(Charger::admitted).sum();
    assert_eq!(admitted + rest(&path, "fixed:1000:60", NOON), 1_000);
    let policy = Policy::fixed(1_000, 60).name("fixed");
    let limiter = limiter(&path, policy, NOON).await;
    let seen = limiter.peek(&alice()).await.unwrap();
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
            std::thread::spawn(move || Charger::start(&path, "fixed:3:60", NOON, 1, 1))
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

/// How many charges three processes were told to be admitted, each killed in the midst of them.
fn told_before_kills(path: &Path, policies: &str) -> u64 {
    let mut told = 0;
    for _ in 0..3 {
        let mut charger = Charger::start(path, policies, NOON, 8, u32::MAX);
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
    told
}

/// Each kill may lose the answers of what was in flight, never a charge that was answered.
fn assert_is_stored(told: u64, used: u64) {
    assert!(
        (told..=told + 3 * 8).contains(&used),
        "told {told}, stored {used}"
    );
}

#[tokio::test]
async fn what_a_killed_process_was_told_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let told = told_before_kills(&path, &format!("unleased:{}:60", u32::MAX));
    let policy = Policy::fixed(u32::MAX, 60).name("unleased");
    let limiter = limiter(&path, policy, NOON).await;
    let seen = limiter.peek(&alice()).await.unwrap();
    assert_is_stored(told, seen.used());
}

/// What a killed process has leased and not spent is lost until the window ends: three sixteenths of what was left, at most.
#[tokio::test]
async fn kills_lose_no_more_than_leases_and_let_nothing_through_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    // So many that what the pipe of a process holds when it is killed leaves enough for the next one.
    let told = told_before_kills(&path, "fixed:100000:60");
    let mut last = Charger::start(&path, "fixed:100000:60", NOON, 8, 15_000);
    last.go();
    let admitted = told + last.admitted() as u64;
    let (lost_at_most, in_flight) = (3 * 18_750, 3 * 8);
    assert!(
        (100_000 - lost_at_most - in_flight..=100_000).contains(&admitted),
        "{admitted}"
    );
    let limiter = limiter(&path, Policy::fixed(100_000, 60).name("fixed"), NOON).await;
    assert_eq!(limiter.peek(&alice()).await.unwrap().used(), 100_000);
}

#[tokio::test]
async fn a_killed_process_leaves_all_policies_of_a_charge_charged_alike() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    let most = u32::MAX;
    let texts = format!("sliding:{most}:60,token-bucket:1:60:5000000,daily:{most}");
    let told = told_before_kills(&path, &texts);
    let policies = [
        Policy::sliding(most, 60).name("sliding"),
        Policy::token_bucket(1, 60)
            .burst(5_000_000)
            .name("token-bucket"),
        Policy::daily(most).name("daily"),
    ];
    let limiter = limiter(&path, policies, NOON).await;
    let used = used(&limiter.peek(&alice()).await.unwrap());
    assert_is_stored(told, used[0]);
    assert!(used.iter().all(|one| *one == used[0]), "{used:?}");
}

#[tokio::test]
async fn a_restart_keeps_the_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    for admitted in [3, 0] {
        let mut charger = Charger::start(&path, "fixed:3:60", NOON, 1, 3);
        charger.go();
        assert_eq!(charger.admitted(), admitted);
    }
}
