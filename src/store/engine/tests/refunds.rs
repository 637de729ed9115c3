//! Units that go back to a backend that hangs, fails, and answers again.

use std::sync::atomic::AtomicU32;
use std::task::{Context, Wake, Waker};

use super::afterwards::back;
use super::*;

impl Remote {
    /// Takes units back, except for those whose keys tell it to do something else.
    pub(super) async fn give_back(
        &self,
        units: &[GiveBack],
        events: &mpsc::UnboundedSender<&'static str>,
    ) -> Result<Vec<GiveBack>, StoreError> {
        let has = |key: &str| units.iter().any(|back| back.part.key.as_str() == key);
        let keys = units.iter();
        let keys = keys.map(|back| format!("back {}", back.part.key.as_str()));
        self.batches.lock().unwrap().push(keys.collect());
        events.send("back").unwrap();
        if has("do:hang") {
            self.release.notified().await;
        }
        if (has("do:fail") || has("do:stuck")) && !self.is_mended.load(Ordering::SeqCst) {
            self.failed.fetch_add(1, Ordering::SeqCst);
            return Err(failure());
        }
        if has("do:left") && !self.is_mended.load(Ordering::SeqCst) {
            self.failed.fetch_add(1, Ordering::SeqCst);
            return Ok(units.to_vec());
        }
        // A page is one of them.
        let done = if has("do:page") { 1 } else { units.len() };
        Ok(units[done..].to_vec())
    }
}

impl Bench {
    /// Fails charges until they are answered at once.
    async fn open_breaker(&self) {
        while !matches!(self.charge("fail").await, Err(StoreError::BreakerOpen)) {}
    }

    /// Charges until that is answered.
    async fn close_breaker(&self) {
        while self.charge("a").await.is_err() {
            tokio::task::yield_now().await;
        }
    }

    /// What has gone back, call by call.
    fn given_back(&self) -> Vec<Vec<String>> {
        let batches = self.batches().into_iter();
        let is_back = |batch: &Vec<String>| batch.iter().all(|key| key.starts_with("back "));
        batches.filter(is_back).collect()
    }
}

#[tokio::test]
async fn a_refund_is_waited_for_no_longer_than_a_charge_and_goes_back_once_all_the_same() {
    let mut bench = Bench::new();
    let first = bench.charge("hang");
    bench.until("charge").await;
    // A job has a deadline of its own: it is asked for first, and would be late first.
    let mut swept = Box::pin(bench.engine.sweep());
    assert!(futures_poll(&mut swept).is_pending());
    let hanging = bench.engine.give_back(back("hang"));
    bench.engine.set_deadline(Duration::from_millis(200));
    bench.remote.release.notify_one();
    while bench.events.recv().await != Some("back") {}
    let waiting = bench.engine.give_back(back("b"));
    for answer in [hanging.await, waiting.await] {
        assert!(
            matches!(answer, Err(StoreError::DeadlineExceeded)),
            "{answer:?}"
        );
    }
    assert!(futures_poll(&mut swept).is_pending());
    drop(first);
    bench.remote.release.notify_one();
    swept.await.unwrap();
    bench.engine.close().await.unwrap();
    assert_eq!(bench.given_back(), [["back do:hang"], ["back do:b"]]);
}

#[tokio::test]
async fn charges_behind_a_refund_that_hangs_are_given_up_at_the_deadline() {
    let mut bench = Bench::new();
    let first = bench.charge("hang");
    bench.until("charge").await;
    drop(bench.engine.give_back(back("hang")));
    let behind = bench.charge("behind");
    let looked = bench.engine.peek(charge("look"));
    bench.engine.set_deadline(Duration::from_millis(200));
    bench.remote.release.notify_one();
    for reply in [behind, looked] {
        let answer = reply.await;
        assert!(
            matches!(answer, Err(StoreError::DeadlineExceeded)),
            "{answer:?}"
        );
    }
    drop(first);
    bench.remote.release.notify_one();
}

#[tokio::test]
async fn what_could_not_go_back_is_tried_again_until_it_can_and_goes_back_once() {
    let mut bench = Bench::new();
    for key in ["fail", "b"] {
        let error = bench.engine.give_back(back(key)).await.unwrap_err();
        assert!(error.is_transient(), "{error:?}");
    }
    bench.remote.is_mended.store(true, Ordering::SeqCst);
    while bench.given_back().len() == bench.remote.failed.load(Ordering::SeqCst) {
        bench.until("back").await;
    }
    bench.engine.close().await.unwrap();
    let failed = bench.remote.failed.load(Ordering::SeqCst);
    assert_eq!(
        bench.given_back()[failed..],
        [["back do:fail", "back do:b"]]
    );
}

#[tokio::test]
async fn a_store_that_is_not_asked_takes_refunds_back_when_a_charge_has_found_it_again() {
    let mut bench = Bench::new();
    bench.open_breaker().await;
    for _ in 0..3 {
        let error = bench.engine.give_back(back("b")).await.unwrap_err();
        assert!(matches!(error, StoreError::BreakerOpen), "{error:?}");
    }
    assert!(bench.given_back().is_empty());
    bench.close_breaker().await;
    bench.until("back").await;
    bench.engine.close().await.unwrap();
    assert_eq!(bench.given_back(), [["back do:b"; 3]]);
}

#[tokio::test]
async fn no_more_refunds_are_kept_than_charges_may_wait() {
    let bench = Bench::new();
    bench.open_breaker().await;
    for units in [QUEUE_LENGTH - 1, 3, 1] {
        let units = vec![back("b").remove(0); units];
        bench.engine.give_back(units).await.unwrap_err();
    }
    bench.engine.close().await.unwrap();
    let given_back = bench.given_back();
    assert_eq!(given_back.len(), 1);
    assert_eq!(given_back[0].len(), QUEUE_LENGTH);
}

#[tokio::test]
async fn charges_go_between_the_pages_of_what_goes_back() {
    let mut bench = Bench::new();
    let first = bench.charge("hang");
    bench.until("charge").await;
    drop(
        bench
            .engine
            .give_back([back("page"), back("hang")].concat()),
    );
    let between = bench.charge("between");
    bench.remote.release.notify_one();
    first.await.unwrap();
    bench.until("back").await;
    bench.remote.release.notify_one();
    between.await.unwrap();
    bench.remote.release.notify_one();
    bench.until("back").await;
    bench.engine.close().await.unwrap();
    assert_eq!(
        bench.batches(),
        [
            vec!["do:hang"],
            vec!["back do:page", "back do:hang"],
            vec!["do:between"],
            vec!["back do:hang"],
        ]
    );
}

#[tokio::test]
async fn every_page_goes_back_before_the_store_closes() {
    let mut bench = Bench::new();
    let first = bench.charge("hang");
    bench.until("charge").await;
    drop(bench.engine.give_back(vec![back("page").remove(0); 5]));
    let mut closed = Box::pin(bench.engine.close());
    assert!(futures_poll(&mut closed).is_pending());
    bench.remote.release.notify_one();
    closed.await.unwrap();
    first.await.unwrap();
    let pages: Vec<_> = bench.given_back().iter().map(Vec::len).collect();
    assert_eq!(pages, [5, 4, 3, 2, 1]);
}

#[tokio::test]
async fn the_first_charge_of_what_was_used_already_is_the_probe_and_others_do_not_wait() {
    let mut bench = Bench::new();
    bench.open_breaker().await;
    let forced = |key: &str| bench.engine.charge(&Charge::forced(charge(key).parts, 5));
    let refused = |reply: &mut Reply| {
        let answer = reply.take_ready();
        answer.is_some_and(|answer| matches!(answer, Err(StoreError::BreakerOpen)))
    };
    let probe = loop {
        let mut reply = forced("hang");
        if !refused(&mut reply) {
            break reply;
        }
    };
    assert!(refused(&mut forced("b")) && refused(&mut bench.charge("c")));
    while bench.events.recv().await != Some("charge")
        || !bench.batches().concat().contains(&"do:hang".to_owned())
    {}
    bench.remote.release.notify_one();
    probe.await.unwrap();
    for _ in 0..3 {
        let mut reply = bench.charge("after");
        assert!(!refused(&mut reply), "the breaker is closed");
        reply.await.unwrap();
    }
    let batches = bench.batches().concat();
    assert!(!batches.iter().any(|key| key == "do:b" || key == "do:c"));
}

/// Notes what the breaker is at the very moment of an answer, before the writer does anything else.
struct AtAnswer {
    inbox: Arc<Inbox>,
    answers: AtomicU32,
    is_open: AtomicBool,
}

impl Wake for AtAnswer {
    fn wake(self: Arc<Self>) {
        self.is_open
            .store(self.inbox.breaker.is_open(), Ordering::SeqCst);
        self.answers.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn whoever_is_told_that_the_third_deadline_has_passed_finds_that_the_store_is_not_asked() {
    let mut bench = Bench::new();
    bench.engine.set_deadline(Duration::from_millis(10));
    let noted = Arc::new(AtAnswer {
        inbox: Arc::clone(&bench.engine.inbox),
        answers: AtomicU32::new(0),
        is_open: AtomicBool::new(false),
    });
    let waker = Waker::from(Arc::clone(&noted));
    let mut was_open = Vec::new();
    for asked in 1..=3 {
        let mut reply = Box::pin(bench.charge("hang"));
        let mut cx = Context::from_waker(&waker);
        assert!(reply.as_mut().poll(&mut cx).is_pending());
        while noted.answers.load(Ordering::SeqCst) < asked {
            tokio::task::yield_now().await;
        }
        let answer = reply.await;
        assert!(
            matches!(answer, Err(StoreError::DeadlineExceeded)),
            "{answer:?}"
        );
        was_open.push(noted.is_open.load(Ordering::SeqCst));
    }
    assert_eq!(was_open, [false, false, true]);
    bench.until("charge").await;
    bench.remote.release.notify_one();
}

#[tokio::test]
async fn what_is_leased_goes_back_when_the_store_closes_though_not_at_the_first_attempt() {
    let mut bench = Bench::new();
    for _ in 0..2 {
        bench.charge("stuck").await.unwrap();
    }
    let (remote, events) = (Arc::clone(&bench.remote), &mut bench.events);
    let mend = async {
        while remote.failed.load(Ordering::SeqCst) < 2 {
            events.recv().await.unwrap();
        }
        remote.is_mended.store(true, Ordering::SeqCst);
    };
    let (closed, ()) = tokio::join!(bench.engine.close(), mend);
    closed.unwrap();
    let given_back = bench.given_back();
    assert!(given_back.len() >= 3, "{given_back:?}");
    assert!(given_back.iter().all(|keys| *keys == ["back do:stuck"]));
}

#[tokio::test]
async fn what_is_left_as_it_was_is_tried_again_after_a_pause_and_given_up_at_the_close() {
    let bench = Bench::new();
    bench.engine.give_back(back("left")).await.unwrap();
    for _ in 0..200 {
        bench.charge("a").await.unwrap();
    }
    let tries = bench.remote.failed.load(Ordering::SeqCst);
    let closed = tokio::time::timeout(Duration::from_secs(10), bench.engine.close());
    closed.await.expect("the store closes").unwrap();
    assert!(tries < 20, "{tries} attempts");
    let tries = bench.remote.failed.load(Ordering::SeqCst);
    assert!(tries < 200, "{tries} attempts");
}

#[tokio::test]
async fn what_is_left_of_leases_goes_back_later() {
    let mut bench = Bench::new();
    for _ in 0..2 {
        bench.charge("left").await.unwrap();
    }
    let (remote, events) = (Arc::clone(&bench.remote), &mut bench.events);
    let mend = async {
        while remote.failed.load(Ordering::SeqCst) < 2 {
            events.recv().await.unwrap();
        }
        remote.is_mended.store(true, Ordering::SeqCst);
    };
    let both = async { tokio::join!(bench.engine.close(), mend) };
    let (closed, ()) = tokio::time::timeout(Duration::from_secs(10), both)
        .await
        .expect("it is tried again");
    closed.unwrap();
    let given_back = bench.given_back();
    assert!(given_back.len() >= 3, "{given_back:?}");
}
