//! Keys that are known to be over are refused without asking, and nobody is told something else by it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::{Connection, Executor, Row, SqliteConnection};
use tempfile::TempDir;
use tollgate::{Key, Limit, Limiter, Policy, SqliteStore};
use tower::Layer;

use crate::support::{CLIENT, LONG, clock, from, hello, login, send, sqlite, statuses};

fn user() -> Key {
    Key::new("user", 1)
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.db");
    (folder, path)
}

async fn open(path: &Path) -> SqliteStore {
    let store = SqliteStore::open(path).await.unwrap();
    store.deadline(Duration::from_mins(1))
}

fn api(policy: &Policy, store: &SqliteStore) -> Limiter {
    Limiter::new(policy.clone().name("api")).store(store)
}

async fn is_allowed(limiter: &Limiter) -> bool {
    limiter.check(&user()).await.unwrap().is_allowed()
}

/// A policy of each algorithm, with windows that no test crosses.
fn one_of_each(limit: u32) -> [Policy; 5] {
    [
        Policy::fixed(limit, LONG),
        Policy::sliding(limit, LONG),
        Policy::sliding_counter(limit, LONG),
        Policy::token_bucket(limit, LONG),
        Policy::monthly(limit),
    ]
}

/// Asks until a request is let in, which another process has made possible.
async fn let_in_after(limiter: &Limiter) {
    let asked = async { while !is_allowed(limiter).await {} };
    tokio::time::timeout(Duration::from_mins(1), asked)
        .await
        .unwrap();
}

/// The database's share of a flood: what a trigger has seen.
#[tokio::test]
async fn a_flood_of_refused_requests_hardly_reaches_the_database() {
    let (_folder, path) = folder();
    let store = open(&path).await;
    let limiter = api(&Policy::fixed(1, LONG), &store);
    assert!(is_allowed(&limiter).await);
    let url = format!("sqlite://{}", path.display());
    let mut other = SqliteConnection::connect(&url).await.unwrap();
    let count = "CREATE TABLE seen (n INTEGER);
        CREATE TRIGGER see AFTER UPDATE ON rate_limit_windows BEGIN INSERT INTO seen VALUES (1); END";
    other.execute(count).await.unwrap();
    for _ in 0..20_000 {
        assert!(!is_allowed(&limiter).await);
    }
    let attempts = limiter.peek(&user()).await.unwrap().attempts();
    assert_eq!(attempts, 20_001, "each is told");
    store.close().await.unwrap();
    let row = other.fetch_one("SELECT count(*), (SELECT denied FROM rate_limit_windows) FROM seen");
    let row = row.await.unwrap();
    let (seen, denied): (i64, i64) = (row.get(0), row.get(1));
    assert!(seen < 200, "{seen}");
    assert_eq!(denied, 20_000, "each is counted");
}

#[tokio::test]
async fn a_client_is_told_the_same_whether_the_store_is_asked_or_not() {
    for (policy, leases) in one_of_each(3)
        .iter()
        .flat_map(|policy| [(policy, true), (policy, false)])
    {
        let clock = clock();
        let limiter = api(&policy.clone().leases(leases), &sqlite(&clock));
        let asked = api(&policy.clone().leases(false), &sqlite(&clock));
        for seconds in 0..40 {
            let decisions = [&limiter, &asked].map(async |limiter| {
                let decision = limiter.check_n(&user(), 1 + seconds % 2).await.unwrap();
                let waits = (decision.retry_after(), decision.reset_after());
                (
                    decision.used(),
                    decision.attempts(),
                    decision.remaining(),
                    waits,
                )
            });
            let [one, other] = decisions;
            assert_eq!(one.await, other.await, "{policy} after {seconds}");
            clock.advance(Duration::from_millis(700));
        }
    }
}

#[tokio::test]
async fn what_this_process_frees_is_let_in_at_once() {
    for policy in one_of_each(1) {
        let (_folder, path) = folder();
        let limiter = api(&policy, &open(&path).await);
        let first = limiter.check(&user()).await.unwrap();
        let refused = async || {
            for _ in 0..5 {
                assert!(!is_allowed(&limiter).await, "{policy}");
            }
        };
        refused().await;
        limiter.refund(&first).await.unwrap();
        assert!(is_allowed(&limiter).await, "{policy}");
        refused().await;
        assert_eq!(limiter.reset(&user()).await.unwrap(), 1);
        assert!(is_allowed(&limiter).await, "{policy}");
        refused().await;
        limiter.set_limit("api", &user(), 2).await.unwrap();
        assert!(is_allowed(&limiter).await, "{policy}");
        refused().await;
        limiter.set_limit("api", None, Limit::EXEMPT).await.unwrap();
        limiter.remove_limit("api", &user()).await.unwrap();
        assert!(is_allowed(&limiter).await, "{policy}");
        limiter.remove_limit("api", None).await.unwrap();
        refused().await;
        limiter.reset_under(&Key::new("user", 1)).await.unwrap();
        assert!(is_allowed(&limiter).await, "{policy}");
    }
}

/// A refund that nobody waits for comes before what is charged after it.
#[tokio::test]
async fn a_refunded_unit_is_had_by_the_next_request() {
    let layer = login(1, 60, &sqlite(&clock()));
    let service = layer.clone().layer(hello());
    let refunding = layer.refund_if(|_| true).layer(hello());
    for _ in 0..50 {
        assert_eq!(statuses(&refunding, "alice", 1).await, [200]);
    }
    assert_eq!(statuses(&service, "alice", 3).await, [200, 429, 429]);
}

#[tokio::test]
async fn what_another_process_frees_is_seen_soon() {
    for policy in one_of_each(1) {
        let (_folder, path) = folder();
        let (ours, theirs) = (open(&path).await, open(&path).await);
        let (ours, theirs) = (api(&policy, &ours), api(&policy, &theirs));
        let first = theirs.check(&user()).await.unwrap();
        assert!(first.is_allowed());
        let refused = async || {
            for _ in 0..5 {
                assert!(!is_allowed(&ours).await, "{policy}");
            }
        };
        refused().await;
        theirs.refund(&first).await.unwrap();
        let_in_after(&ours).await;
        refused().await;
        theirs.reset(&user()).await.unwrap();
        let_in_after(&ours).await;
        refused().await;
        theirs.reset_under(&user()).await.unwrap();
        let_in_after(&ours).await;
        refused().await;
        theirs.set_limit("api", &user(), 2).await.unwrap();
        let_in_after(&ours).await;
        refused().await;
        theirs.set_limit("api", None, 3).await.unwrap();
        theirs.remove_limit("api", &user()).await.unwrap();
        let_in_after(&ours).await;
    }
}

/// What it gives back when it closes, or when it is idle.
#[tokio::test]
async fn what_another_process_has_charged_ahead_and_gives_back_is_seen_soon() {
    let (_folder, path) = folder();
    let (ours, theirs) = (open(&path).await, open(&path).await);
    let policy = Policy::fixed(1_000, LONG);
    let limiter = api(&policy, &theirs);
    for _ in 0..500 {
        assert!(is_allowed(&limiter).await);
    }
    let ours = api(&policy, &ours);
    while is_allowed(&ours).await {}
    theirs.close().await.unwrap();
    let_in_after(&ours).await;
}

#[tokio::test]
async fn a_blocked_key_is_refused_until_its_block_is_over() {
    let clock = clock();
    let layer = login(1, 60, &sqlite(&clock)).block_after(3, Duration::from_mins(10));
    let service = layer.layer(hello());
    assert_eq!(statuses(&service, "alice", 2).await, [200, 429]);
    let told = async || send(&service, from("alice")).await.header("retry-after");
    let waits = [told().await, told().await, told().await];
    assert_eq!(waits, ["60", "600", "600"]);
    clock.advance(Duration::from_millis(599_999));
    assert_eq!(told().await, "1");
    clock.advance(Duration::from_millis(1));
    assert_eq!(statuses(&service, "alice", 2).await, [200, 429]);
}

#[tokio::test]
async fn a_clock_that_steps_locks_nobody_out() {
    let clock = clock();
    let service = login(1, 60, &sqlite(&clock)).layer(hello());
    clock.advance(Duration::from_mins(60));
    assert_eq!(statuses(&service, "alice", 3).await, [200, 429, 429]);
    clock.set(crate::support::START);
    assert_eq!(statuses(&service, "alice", 3).await, [200, 429, 429]);
    clock.advance(Duration::from_mins(1));
    assert_eq!(statuses(&service, "alice", 3).await, [200, 429, 429]);
}

#[tokio::test]
async fn refusals_of_several_policies_use_nothing_and_end_with_the_one_that_refuses() {
    let clock = clock();
    let policies = [
        Policy::sliding(1, 60).name("minute"),
        Policy::daily(3).name("day"),
    ];
    let limiter = Limiter::new(policies).store(&sqlite(&clock));
    let mut allowed = Vec::new();
    for _ in 0..5 {
        for _ in 0..3 {
            allowed.push(limiter.check(&user()).await.unwrap().is_allowed());
        }
        clock.advance(Duration::from_mins(1));
    }
    let passed = |place: &usize| place.is_multiple_of(3) && *place < 9;
    let expected: Vec<_> = (0..15).map(|place| passed(&place)).collect();
    assert_eq!(allowed, expected);
    let decision = limiter.peek(&user()).await.unwrap();
    let used: Vec<_> = decision.verdicts().map(tollgate::Verdict::used).collect();
    assert_eq!(used, [0, 3]);
}

#[tokio::test]
async fn a_file_that_was_replaced_is_asked_again() {
    let (_folder, path) = folder();
    let limiter = api(&Policy::fixed(1, LONG), &open(&path).await);
    assert!(is_allowed(&limiter).await);
    assert!(!is_allowed(&limiter).await);
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", path.display()));
    }
    let_in_after(&limiter).await;
    let of_alice = Key::header(CLIENT, "alice");
    assert!(limiter.check(&of_alice).await.unwrap().is_allowed());
}

/// A limit of another policy of the same layer, which holds when `set_limit` has returned.
#[tokio::test]
async fn a_refusal_tells_the_limits_that_are_set_now() {
    let policies = [
        Policy::sliding(1, 3_600).name("hour"),
        Policy::daily(3).name("day"),
    ];
    let limiter = Limiter::new(policies).store(&sqlite(&clock()));
    assert!(is_allowed(&limiter).await);
    assert!(!is_allowed(&limiter).await);
    limiter
        .set_limit("day", &user(), Limit::BLOCKED)
        .await
        .unwrap();
    let looked = limiter.peek(&user()).await.unwrap();
    let refused = limiter.check(&user()).await.unwrap();
    assert_eq!(looked.retry_after(), None, "no wait helps");
    let denied: Vec<_> = refused
        .verdicts()
        .map(tollgate::Verdict::is_denied)
        .collect();
    assert_eq!(denied, [true, true]);
    assert_eq!(refused.retry_after(), None);
}

/// What another policy of the layer has used, when its counter was reset by a limiter of its own.
#[tokio::test]
async fn a_refusal_tells_what_other_policies_have_now() {
    let store = sqlite(&clock());
    let (hour, day) = (
        Policy::sliding(1, 3_600).name("hour"),
        Policy::daily(3).name("day"),
    );
    let limiter = Limiter::new([hour, day.clone()]).store(&store);
    assert!(is_allowed(&limiter).await);
    assert!(!is_allowed(&limiter).await);
    let of_day = Limiter::new(day).store(&store);
    assert_eq!(of_day.reset(&user()).await.unwrap(), 1);
    let used = |decision: &tollgate::Decision| {
        decision
            .verdicts()
            .map(tollgate::Verdict::used)
            .collect::<Vec<_>>()
    };
    let looked = limiter.peek(&user()).await.unwrap();
    assert_eq!(used(&looked), [1, 0]);
    let refused = limiter.check(&user()).await.unwrap();
    assert_eq!(used(&refused), [1, 0]);
}

async fn shell(path: &Path) -> SqliteConnection {
    let url = format!("sqlite://{}", path.display());
    SqliteConnection::connect(&url).await.unwrap()
}

/// At a shell, or by a version that tells nothing of what it frees.
#[tokio::test]
async fn what_was_freed_without_a_word_is_found_after_some_seconds() {
    let (_folder, path) = folder();
    let clock = clock();
    let limiter = api(&Policy::monthly(10), &open(&path).await.clock(&clock));
    let mut shell = shell(&path).await;
    for freed in [
        "UPDATE rate_limit_windows SET used = used - 8",
        "INSERT INTO rate_limit_limits VALUES ('api', 'user:1', 5000, NULL)",
    ] {
        while is_allowed(&limiter).await {}
        assert!(!is_allowed(&limiter).await);
        shell.execute(freed).await.unwrap();
        clock.advance(Duration::from_millis(4_999));
        assert!(!is_allowed(&limiter).await, "{freed}");
        clock.advance(Duration::from_millis(1));
        assert!(is_allowed(&limiter).await, "{freed}");
    }
}

/// More changes than a look reads: anything may have become free, and nothing was counted by it.
#[tokio::test]
async fn attempts_are_told_and_counted_though_others_free_much() {
    let (_folder, path) = folder();
    let store = open(&path).await;
    let limiter = api(&Policy::fixed(1, LONG), &store);
    let mut shell = shell(&path).await;
    assert!(is_allowed(&limiter).await);
    for _ in 0..1_000 {
        assert!(!is_allowed(&limiter).await);
    }
    let much = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1100)
        INSERT INTO rate_limit_changes (kind, policy, first_key, last_key)
        SELECT 0, 'other;fixed;60s', 'user:' || n, 'user:' || n FROM n";
    shell.execute(much).await.unwrap();
    let mut told = limiter.check(&user()).await.unwrap().attempts();
    for _ in 0..20_000 {
        told += 1;
        assert_eq!(limiter.check(&user()).await.unwrap().attempts(), told);
    }
    assert_eq!(limiter.peek(&user()).await.unwrap().attempts(), told);
    store.close().await.unwrap();
    let row = shell.fetch_one("SELECT used + denied FROM rate_limit_windows");
    let stored: i64 = row.await.unwrap().get(0);
    assert_eq!(stored.unsigned_abs(), told);
}

/// Attempts that can't be counted for now are told all the same.
#[tokio::test]
async fn a_locked_file_takes_no_attempts_back() {
    let (_folder, path) = folder();
    let store = open(&path).await;
    let limiter = api(&Policy::fixed(1, LONG), &store);
    let mut shell = shell(&path).await;
    assert!(is_allowed(&limiter).await);
    assert!(!is_allowed(&limiter).await);
    shell.execute("BEGIN IMMEDIATE").await.unwrap();
    let mut told = limiter.check(&user()).await.unwrap().attempts();
    // A second and more, in which it is tried.
    for _ in 0..200 {
        for _ in 0..500 {
            told += 1;
            assert!(!is_allowed(&limiter).await);
        }
        assert_eq!(limiter.peek(&user()).await.unwrap().attempts(), told);
    }
    shell.execute("COMMIT").await.unwrap();
    store.close().await.unwrap();
    let row = shell.fetch_one("SELECT used + denied FROM rate_limit_windows");
    let stored: i64 = row.await.unwrap().get(0);
    assert_eq!(stored.unsigned_abs(), told);
}
