//! Sweeps, resets, and questions about usage.

use super::*;
use crate::limit::Day;

#[tokio::test]
async fn a_store_sweeps_without_traffic() {
    let mut bench = Bench::new();
    bench.engine.open().await.unwrap();
    bench.until("sweep").await;
    bench.until("sweep").await;
    assert!(bench.batches().is_empty());
}

#[tokio::test]
async fn a_long_job_goes_on_page_by_page() {
    let bench = Bench::new();
    assert_eq!(bench.engine.reset(reset()).await.unwrap(), 30);
    assert_eq!(bench.engine.sweep().await.unwrap(), 20);
}

#[tokio::test]
async fn a_server_is_asked_for_the_time_before_it_is_told() {
    let server = ServerClock::new();
    let remote = Remote {
        server: Some(server.clone()),
        ..Remote::default()
    };
    let bench = Bench::with(remote, Clock::Server(server));
    assert!(bench.engine.now() > fake::SERVERS.saturating_add(DAY));
    let told = bench.engine.told_time().await.unwrap();
    assert!(told < fake::SERVERS.saturating_add(DAY), "{told:?}");
}

const DAY: Duration = Duration::from_secs(86_400);

fn reset() -> Reset {
    Reset {
        part: part(Key::new("user", 42)),
        with_keys_under: true,
        at: Timestamp::from_unix_millis(0),
    }
}

fn question() -> UsageAsk {
    UsageAsk {
        days: Day::of(Timestamp::from_unix_millis(0)).into(),
        key: None,
        policy: None,
        route: None,
        by: By::Nothing,
    }
}

#[tokio::test]
async fn a_question_that_nobody_waits_for_is_not_gone_on_with() {
    let mut bench = Bench::new();
    let mut asked = Box::pin(bench.engine.usage(question()));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(asked.as_mut().poll(&mut context).is_pending());
    let seen = async { while bench.events.recv().await.unwrap() != "usage" {} };
    seen.await;
    drop(asked);
    // Questions are answered one after the other.
    let short = UsageAsk {
        policy: Some("login".to_owned()),
        ..question()
    };
    assert!(bench.engine.usage(short).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_reset_and_a_limit_do_not_wait_for_the_end_of_a_question() {
    let mut bench = Bench::new();
    let mut asked = Box::pin(bench.engine.usage(question()));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(asked.as_mut().poll(&mut context).is_pending());
    let seen = async { while bench.events.recv().await.unwrap() != "usage" {} };
    seen.await;
    let set = SetLimit {
        filed_under: "login".to_owned(),
        key: None,
        limit: None,
        now: Timestamp::from_unix_millis(0),
    };
    let changed = async {
        assert_eq!(bench.engine.reset(reset()).await.unwrap(), 30);
        assert!(!bench.engine.set_limit(set).await.unwrap());
    };
    tokio::time::timeout(Duration::from_secs(5), changed)
        .await
        .unwrap();
    // It goes on, and is not answered yet.
    while bench.events.try_recv().is_ok() {}
    while bench.events.recv().await.unwrap() != "usage" {}
    assert!(asked.as_mut().poll(&mut context).is_pending());
}

#[tokio::test]
async fn a_store_that_closes_answers_no_more_questions() {
    let mut bench = Bench::new();
    let mut asked = Box::pin(bench.engine.usage(question()));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(asked.as_mut().poll(&mut context).is_pending());
    let seen = async { while bench.events.recv().await.unwrap() != "usage" {} };
    seen.await;
    bench.engine.close().await.unwrap();
    assert!(matches!(asked.await, Err(StoreError::Closed)));
}

#[tokio::test]
async fn a_sweep_that_is_due_does_not_wait_for_the_end_of_a_question() {
    let mut bench = Bench::new();
    let mut asked = Box::pin(bench.engine.usage(question()));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(asked.as_mut().poll(&mut context).is_pending());
    let seen = async { while bench.events.recv().await.unwrap() != "sweep" {} };
    tokio::time::timeout(Duration::from_secs(5), seen)
        .await
        .unwrap();
}
