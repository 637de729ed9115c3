//! Sliding counters, of which a decision reads two windows and writes to one.

use std::sync::mpsc::channel;

use super::*;

/// What was decided just before the end of a window, and is written just after it, counts for the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_sliding_counter_counts_what_is_written_late() {
    let database = Database::default();
    let set = |millis| database.lock().now = Some(Timestamp::from_unix_millis(millis));
    set(59_990);
    let policy = Policy::sliding_counter(10, 60).name("counter");
    let [slow, fast] = [0, 1].map(|_| limiter(policy.clone().leases(false), &database.store()));
    assert_eq!(passed(&slow, &user(1), 9).await, 9);
    assert_eq!(fast.peek(user(1)).await.unwrap().used(), 9);
    let (came, has_come) = channel();
    let (go, gone) = channel();
    database.lock().gate = Some((came, gone));
    let late = tokio::spawn(async move { slow.check(user(1)).await.unwrap().is_allowed() });
    has_come.recv().unwrap();
    set(60_000);
    assert!(fast.check(user(1)).await.unwrap().is_allowed());
    go.send(()).unwrap();
    assert!(!late.await.unwrap());
    assert_eq!(fast.peek(user(1)).await.unwrap().used(), 10);
}

/// What is used of the window before becomes more while the next one is charged.
#[tokio::test(flavor = "multi_thread")]
async fn a_sliding_counter_counts_what_others_write_to_the_window_before() {
    let database = Database::default();
    let set = |millis| database.lock().now = Some(Timestamp::from_unix_millis(millis));
    set(59_990);
    let policy = Policy::sliding_counter(10, 60).name("counter");
    let [one, late] = [0, 1].map(|_| limiter(policy.clone().leases(false), &database.store()));
    assert_eq!(passed(&one, &user(1), 9).await, 9);
    let (came, has_come) = channel();
    let (go, gone) = channel();
    set(60_000);
    database.lock().gate = Some((came, gone));
    let next = tokio::spawn(async move { one.check(user(1)).await.unwrap().is_allowed() });
    has_come.recv().unwrap();
    set(59_990);
    assert!(late.check(user(1)).await.unwrap().is_allowed());
    set(60_000);
    go.send(()).unwrap();
    assert!(!next.await.unwrap());
}

/// Of a sliding counter it is the window before that refuses: others are told when units go back to that.
#[tokio::test]
async fn others_are_told_of_units_that_go_back_to_the_window_before() {
    let database = Database::default();
    let clock = clock();
    let policy = Policy::sliding_counter(10, 60).name("counter");
    // It asks each time by itself; the other one refuses from memory.
    let stores = [0, 1].map(|_| database.store().clock(&clock));
    let one = limiter(policy.clone().leases(false), &stores[0]);
    let other = limiter(policy, &stores[1]);
    clock.advance(Duration::from_secs(30));
    let mut charged = Vec::new();
    for _ in 0..10 {
        charged.push(one.check(user(1)).await.unwrap());
    }
    clock.advance(Duration::from_secs(30));
    assert_eq!(passed(&other, &user(1), 3).await, 0);
    for decision in &charged {
        one.refund(decision).await.unwrap();
    }
    assert_eq!(one.peek(user(1)).await.unwrap().used(), 0);
    let told = async {
        while other.check(user(1)).await.unwrap().is_denied() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), told)
        .await
        .unwrap();
}
