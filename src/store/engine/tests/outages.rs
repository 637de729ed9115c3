//! A backend that stops to answer, and answers again.

use super::*;

impl Bench {
    /// Charges a key until charges are answered at once, and says how many were not.
    async fn until_open(&self, key: &str) -> usize {
        for asked in 0.. {
            let mut reply = self.charge(key);
            match reply.take_ready() {
                Some(Err(StoreError::BreakerOpen)) => return asked,
                Some(other) => panic!("{other:?}"),
                None => drop(reply.await.unwrap_err()),
            }
        }
        unreachable!()
    }

    /// Charges until that is answered.
    async fn until_closed(&self) {
        while let Err(error) = self.charge("a").await {
            let is_expected = matches!(
                error,
                StoreError::BreakerOpen | StoreError::DeadlineExceeded
            );
            assert!(is_expected, "{error:?}");
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn after_failures_in_a_row_charges_are_answered_at_once_until_the_store_is_back() {
    let bench = Bench::new();
    assert!(bench.until_open("fail").await >= 3);
    let asked = bench.batches().len();
    bench.until_closed().await;
    assert_eq!(
        bench.batches().len(),
        asked + 1,
        "the probe alone went through"
    );
    bench.charge("a").await.unwrap();
}

#[tokio::test]
async fn a_store_that_never_answers_is_not_waited_for_again_and_again() {
    let mut bench = Bench::new();
    bench.engine.set_deadline(Duration::from_millis(10));
    let first = bench.hang().await;
    assert!(bench.until_open("late").await >= 2);
    first.await.unwrap_err();
    bench.remote.release.notify_one();
    bench.engine.set_deadline(Duration::from_secs(60));
    bench.until_closed().await;
    let batches = bench.batches().concat();
    assert!(!batches.iter().any(|key| key == "do:late"), "{batches:?}");
}

#[tokio::test]
async fn a_failed_batch_is_told_to_all_of_it_and_ends_nothing() {
    let bench = Bench::new();
    let error = bench.charge("fail").await.unwrap_err();
    assert!(error.is_transient());
    bench.charge("a").await.unwrap();
}

#[tokio::test]
async fn one_failure_between_answers_opens_nothing() {
    let bench = Bench::new();
    for _ in 0..9 {
        for key in ["fail", "fail", "a"] {
            let answer = bench.charge(key).await;
            assert_eq!(answer.is_ok(), key == "a", "{answer:?}");
        }
    }
}

#[tokio::test]
async fn a_full_store_is_one_that_answers() {
    let bench = Bench::new();
    for _ in 0..9 {
        let full = bench.charge("fill").await;
        assert!(matches!(full, Err(StoreError::Full)), "{full:?}");
    }
    bench.charge("a").await.unwrap();
}

#[tokio::test]
async fn operators_look_and_reset_past_an_open_breaker() {
    let bench = Bench::new();
    bench.until_open("fail").await;
    bench.engine.peek(charge("a")).await.unwrap();
    let reset = Reset {
        part: part(Key::new("do", "a")),
        with_keys_under: false,
        at: Timestamp::from_unix_millis(0),
    };
    bench.engine.reset(reset).await.unwrap();
    bench.engine.sweep().await.unwrap();
}

#[tokio::test]
async fn a_probe_that_is_given_up_by_its_caller_is_followed_by_another() {
    let bench = Bench::new();
    bench.until_open("fail").await;
    let mut dropped = 0;
    while dropped < 3 {
        let mut reply = bench.charge("a");
        dropped += usize::from(reply.take_ready().is_none());
        tokio::task::yield_now().await;
    }
    bench.until_closed().await;
}

#[tokio::test]
async fn a_closed_store_says_so_also_when_it_had_failed_before() {
    let bench = Bench::new();
    bench.until_open("fail").await;
    bench.engine.close().await.unwrap();
    let late = bench.charge("a").await;
    assert!(matches!(late, Err(StoreError::Closed)), "{late:?}");
}

#[tokio::test]
async fn a_reset_forgets_what_was_counted_without_the_store() {
    let bench = Bench::new();
    let is_admitted = || {
        let outcome = bench.engine.local().charge(&charge("a")).unwrap();
        outcome.is_admitted()
    };
    bench
        .engine
        .set_clock(Clock::Manual(crate::clock::ManualClock::new(
            Timestamp::from_unix_millis(0),
        )));
    assert_eq!([is_admitted(), is_admitted()], [true, false]);
    let reset = Reset {
        part: part(Key::new("do", "a")),
        with_keys_under: false,
        at: Timestamp::from_unix_millis(0),
    };
    bench.engine.reset(reset).await.unwrap();
    assert!(is_admitted());
}
