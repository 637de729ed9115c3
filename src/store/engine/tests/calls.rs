//! Allowed requests are recorded beside the charges.

use super::*;

impl Fake {
    /// Notes a page, and fails if it is to.
    pub(super) fn note(&self, calls: &Calls) -> Result<(), StoreError> {
        // Before the test is told, which may change it.
        let is_failing = self.remote.is_failing_calls.load(Ordering::SeqCst);
        let calls: serde_json::Value = serde_json::from_str(&calls.json()).unwrap();
        let keys = calls.as_array().unwrap().iter();
        let keys = keys.map(|call| format!("call {}", call[3].as_str().unwrap()));
        self.remote.batches.lock().unwrap().push(keys.collect());
        self.events.send("record").unwrap();
        if is_failing {
            return Err(failure());
        }
        Ok(())
    }
}

impl Bench {
    fn record(&self, key: &str) {
        let key = Key::new("do", key);
        self.engine.record(&Call {
            policy: "p",
            key: key.as_str(),
            method: "GET",
            route: "/",
            status: Some(200),
            units: 1,
            at: Timestamp::from_unix_millis(0),
        });
    }

    fn fail_calls(&self, is_failing: bool) {
        let flag = &self.remote.is_failing_calls;
        flag.store(is_failing, Ordering::SeqCst);
    }

    /// The keys of the pages of requests that were to be recorded.
    fn pages(&self) -> Vec<Vec<String>> {
        let batches = self.batches().into_iter();
        batches
            .filter(|batch| batch[0].starts_with("call "))
            .collect()
    }
}

#[tokio::test]
async fn requests_are_recorded_in_pages_and_charges_go_between_them() {
    let mut bench = Bench::new();
    let hanging = bench.charge("hang");
    bench.until("charge").await;
    for _ in 0..600 {
        bench.record("a");
    }
    let first = bench.charge("first");
    bench.remote.release.notify_one();
    hanging.await.unwrap();
    first.await.unwrap();
    bench.engine.close().await.unwrap();
    let lengths: Vec<_> = bench.pages().iter().map(Vec::len).collect();
    assert_eq!(lengths[0], 32, "charges come");
    assert!(lengths.iter().all(|length| *length <= 256), "{lengths:?}");
    assert_eq!(lengths.iter().sum::<usize>(), 600);
    let batches = bench.batches();
    let place = |key: &str| batches.iter().position(|batch| batch[0] == key);
    // It was there before the second page.
    assert!(place("do:first").unwrap() <= place("call do:a").unwrap() + 1);
}

#[tokio::test]
async fn other_work_is_not_kept_waiting_by_pages() {
    let mut bench = Bench::new();
    let hanging = bench.charge("hang");
    bench.until("charge").await;
    for _ in 0..600 {
        bench.record("a");
    }
    let mut swept = std::pin::pin!(bench.engine.sweep());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(swept.as_mut().poll(&mut context).is_pending());
    bench.remote.release.notify_one();
    hanging.await.unwrap();
    swept.await.unwrap();
    let (mut pages, mut sweeps) = (0, 0);
    while sweeps < 2 {
        match bench.events.recv().await {
            Some("sweep") => sweeps += 1,
            Some("record") => pages += 1,
            _ => {}
        }
    }
    assert!(pages < 6, "{pages} of 19 pages");
}

#[tokio::test]
async fn a_page_that_fails_is_written_once_more_as_it_was() {
    let mut bench = Bench::new();
    bench.fail_calls(true);
    bench.record("a");
    bench.until("record").await;
    bench.record("b");
    bench.fail_calls(false);
    bench.engine.close().await.unwrap();
    assert_eq!(
        bench.pages(),
        [vec!["call do:a"], vec!["call do:a"], vec!["call do:b"]]
    );
    assert_eq!(bench.engine.unrecorded(), 0);
}

#[tokio::test]
async fn a_store_that_closes_gives_up_what_can_not_be_written() {
    let bench = Bench::new();
    bench.fail_calls(true);
    bench.record("a");
    bench.record("b");
    bench.engine.close().await.unwrap();
    assert_eq!(bench.engine.unrecorded(), 2);
    bench.record("c");
    assert_eq!(bench.engine.unrecorded(), 3);
}

#[tokio::test]
async fn a_failing_page_holds_up_no_charge_and_opens_no_breaker() {
    let mut bench = Bench::new();
    bench.fail_calls(true);
    for _ in 0..3 {
        bench.record("a");
        bench.until("record").await;
        bench.charge("b").await.unwrap();
    }
}
