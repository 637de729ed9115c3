//! The exact sliding window: what its rows are, and what a decision costs.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

pub(super) async fn charge_at(
    backend: &mut Sqlite,
    policy: &Policy,
    cost: u32,
    millis: i64,
) -> Outcome {
    let charge = charge_of(&[(policy, &Key::new("user", "a"))], cost);
    let clock = Clock::Manual(clock_at(millis));
    let mut answers = charge_by(backend, &[charge], &clock).await.unwrap();
    answers.remove(0).unwrap()
}

pub(super) async fn events(path: &Path) -> Vec<(i64, i64, i64)> {
    let rows = rows(
        path,
        "SELECT at, units, total FROM rate_limit_events ORDER BY at",
    )
    .await;
    rows.iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect()
}

/// One event a millisecond, the last of them at `NOW`.
pub(super) async fn fill(backend: &mut Sqlite, policy: &Policy) {
    let limit = i64::from(policy.limit());
    for millis in 1 - limit..=0 {
        assert!(
            charge_at(backend, policy, 1, NOW + millis)
                .await
                .is_admitted()
        );
    }
}

/// Counts from now on the steps of SQLite's virtual machine, which do not depend on the machine.
pub(super) async fn count_steps(backend: &mut Sqlite) -> Arc<AtomicU64> {
    let counted = Arc::new(AtomicU64::new(0));
    let of_handler = Arc::clone(&counted);
    let connection = backend.database.connection_mut();
    let mut handle = connection.lock_handle().await.unwrap();
    handle.set_progress_handler(1, move || {
        of_handler.fetch_add(1, Ordering::Relaxed);
        true
    });
    drop(handle);
    counted
}

#[tokio::test]
async fn a_decision_on_a_full_window_costs_the_same_whatever_the_limit() {
    let mut steps = Vec::new();
    for limit in [10, 10_000] {
        let (_folder, path) = folder();
        let mut backend = backend(&path);
        let policy = Policy::sliding(limit, 60);
        fill(&mut backend, &policy).await;
        let counted = count_steps(&mut backend).await;
        let mut of = Vec::new();
        // Refused, refused with a search, and admitted as the first event leaves.
        for (cost, millis) in [(1, 1), (5, 1), (1, 60_000 + 1 - i64::from(limit))] {
            counted.store(0, Ordering::Relaxed);
            let outcome = charge_at(&mut backend, &policy, cost, NOW + millis).await;
            assert_eq!(outcome.is_admitted(), millis > 1);
            of.push(counted.load(Ordering::Relaxed));
        }
        steps.push(of);
    }
    let ratio_in_tenths = |of: usize| 10 * steps[1][of] / steps[0][of];
    assert!(
        steps[0].iter().all(|steps| *steps > 20),
        "they are not counted: {steps:?}"
    );
    assert!(ratio_in_tenths(0) <= 15, "refused: {steps:?}");
    assert!(ratio_in_tenths(2) <= 15, "admitted: {steps:?}");
    // It halves ten seconds and not ten milliseconds: a thousand times the events take three times the steps.
    assert!(ratio_in_tenths(1) <= 40, "refused with a search: {steps:?}");
}

async fn steps_of(backend: &mut Sqlite, policy: &Policy, charges: usize, cost: u32) -> u64 {
    let counted = count_steps(backend).await;
    let charge = charge_of(&[(policy, &Key::new("user", "a"))], cost);
    let clock = Clock::Manual(clock_at(NOW + 1));
    let charges = vec![charge; charges];
    for answer in charge_by(backend, &charges, &clock).await.unwrap() {
        assert!(!answer.unwrap().is_admitted());
    }
    counted.load(Ordering::Relaxed)
}

#[tokio::test]
async fn refusals_of_one_batch_share_their_search() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    let policy = Policy::sliding(1_000, 60);
    fill(&mut backend, &policy).await;
    let one = steps_of(&mut backend, &policy, 1, 2).await;
    let many = steps_of(&mut backend, &policy, 512, 2).await;
    assert!(many < 2 * one, "{one} steps for one, {many} for 512");
}

#[tokio::test]
async fn what_has_left_the_window_is_deleted_by_the_charges_that_follow() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    let policy = Policy::sliding(300, 60);
    for n in 0..2_000 {
        let _ = charge_at(&mut backend, &policy, 1, NOW + n * 201).await;
    }
    let count = events(&path).await.len();
    assert!((299..300 + 64 + 1).contains(&count), "{count}");
}

#[tokio::test]
async fn events_ahead_of_a_clock_that_stepped_back_become_one_even_by_a_refusal() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    let policy = Policy::sliding(3, 60);
    for n in [0, 10, 20] {
        assert!(
            charge_at(&mut backend, &policy, 1, NOW + n)
                .await
                .is_admitted()
        );
    }
    let back = NOW - 3_600_000;
    assert!(
        !charge_at(&mut backend, &policy, 1, back)
            .await
            .is_admitted()
    );
    assert_eq!(events(&path).await, [(back, 3, 3)]);
    assert!(
        !charge_at(&mut backend, &policy, 1, back + 59_999)
            .await
            .is_admitted()
    );
    assert!(
        charge_at(&mut backend, &policy, 3, back + 60_000)
            .await
            .is_admitted()
    );
}

#[tokio::test]
async fn a_batch_moves_the_events_of_each_of_its_keys_and_of_no_other() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    let policy = Policy::sliding(3, 60);
    let batch =
        |keys: &[&str]| -> Vec<_> { keys.iter().map(|key| charge_under(&policy, key)).collect() };
    for millis in [0, 7] {
        let clock = Clock::Manual(clock_at(NOW + millis));
        charge_by(&mut backend, &batch(&["a", "b", "c"]), &clock)
            .await
            .unwrap();
    }
    let back = NOW - 5_000;
    let clock = Clock::Manual(clock_at(back));
    let answers = charge_by(&mut backend, &batch(&["a", "b", "b"]), &clock)
        .await
        .unwrap();
    let admitted = answers
        .iter()
        .map(|answer| answer.as_ref().unwrap().is_admitted());
    assert_eq!(admitted.collect::<Vec<_>>(), [true, true, false]);
    let query = "SELECT key, at, units, total FROM rate_limit_events ORDER BY key, at";
    let rows = rows(&path, query).await;
    let rows: Vec<(String, i64, i64, i64)> = rows
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2), row.get(3)))
        .collect();
    let expected = [
        ("user:a", back, 3, 3),
        ("user:b", back, 3, 3),
        ("user:c", NOW, 1, 1),
        ("user:c", NOW + 7, 1, 2),
    ];
    let expected = expected.map(|(key, at, units, total)| (key.to_owned(), at, units, total));
    assert_eq!(rows, expected);
}

#[tokio::test]
async fn a_total_begins_anew_before_it_overflows() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    let policy = Policy::sliding(5, 60);
    assert!(charge_at(&mut backend, &policy, 2, NOW).await.is_admitted());
    assert!(
        charge_at(&mut backend, &policy, 2, NOW + 1)
            .await
            .is_admitted()
    );
    let mut other = other_connection(&path).await;
    let near_the_end = "UPDATE rate_limit_events SET total = total + 9223372036854775803";
    other.execute(near_the_end).await.unwrap();
    let refused = charge_at(&mut backend, &policy, 2, NOW + 2).await;
    assert!(!refused.is_admitted());
    assert!(
        charge_at(&mut backend, &policy, 1, NOW + 2)
            .await
            .is_admitted()
    );
    assert_eq!(
        events(&path).await,
        [(NOW, 2, -2), (NOW + 1, 2, 0), (NOW + 2, 1, 1)]
    );
    assert!(
        charge_at(&mut backend, &policy, 2, NOW + 60_000)
            .await
            .is_admitted()
    );
}

#[tokio::test]
async fn a_refused_charge_writes_nothing() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    let policy = Policy::sliding(2, 60);
    fill(&mut backend, &policy).await;
    let before = events(&path).await;
    let wal = || {
        std::fs::metadata(path.with_extension("db-wal"))
            .unwrap()
            .len()
    };
    let length = wal();
    for n in 1..100 {
        assert!(
            !charge_at(&mut backend, &policy, 1, NOW + n)
                .await
                .is_admitted()
        );
    }
    assert_eq!(events(&path).await, before);
    assert_eq!(wal(), length);
}

#[tokio::test]
async fn what_fails_in_the_second_call_is_undone_as_a_whole_and_holds_no_lock() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    backend.open().await.unwrap();
    let mut other = other_connection(&path).await;
    let trigger = "CREATE TRIGGER fails BEFORE INSERT ON rate_limit_buckets
        BEGIN SELECT RAISE(FAIL, 'as the test wants it'); END";
    other.execute(trigger).await.unwrap();
    let key = Key::new("user", "a");
    let [window, events, bucket] = [
        Policy::fixed(9, 60),
        Policy::sliding(9, 60),
        Policy::token_bucket(9, 60),
    ];
    let charge = charge_of(&[(&window, &key), (&events, &key), (&bucket, &key)], 1);
    let clock = Clock::Manual(clock_at(NOW));
    assert!(
        charge_by(&mut backend, std::slice::from_ref(&charge), &clock)
            .await
            .is_err()
    );
    other
        .execute("BEGIN IMMEDIATE; DROP TRIGGER fails; COMMIT")
        .await
        .unwrap();
    let counts = "SELECT (SELECT count(*) FROM rate_limit_windows) + (SELECT count(*) FROM rate_limit_events)";
    assert_eq!(rows(&path, counts).await[0].get::<i64, _>(0), 0);
    let answers = charge_by(&mut backend, &[charge], &clock).await.unwrap();
    assert!(answers[0].as_ref().unwrap().is_admitted());
}

#[tokio::test]
async fn what_a_panic_left_open_is_ended_also_without_traffic() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    let begin = sqlx::query("BEGIN IMMEDIATE; SELECT 1");
    backend.database.begin(begin).await.unwrap();
    backend.maintain().await.unwrap();
    let mut other = other_connection(&path).await;
    other.execute("BEGIN IMMEDIATE; COMMIT").await.unwrap();
}

/// A batch whose rows can't be read leaves no transaction behind.
#[tokio::test]
async fn a_failure_between_the_two_calls_is_rolled_back() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    let policy = Policy::sliding(2, 60);
    fill(&mut backend, &policy).await;
    let rows = backend
        .database
        .begin(sqlx::query("BEGIN IMMEDIATE; SELECT 1"))
        .await;
    assert_eq!(rows.unwrap().len(), 1);
    // As a panic in between would: the next call finds the transaction open.
    assert!(
        !charge_at(&mut backend, &policy, 1, NOW + 1)
            .await
            .is_admitted()
    );
    let mut other = other_connection(&path).await;
    other.execute("BEGIN IMMEDIATE; COMMIT").await.unwrap();
}
