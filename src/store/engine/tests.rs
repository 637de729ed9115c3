//! The engine on a backend that a test holds, breaks, and looks into.

mod afterwards;
mod calls;
mod fake;
mod jobs;
#[cfg(feature = "metrics")]
mod meters;
mod outages;
mod refunds;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{Notify, mpsc};

use self::fake::{Fake, failure};
use super::*;
use crate::clock::ServerClock;
use crate::limit::algorithm::State;
use crate::limit::few::Few;
use crate::limit::{Key, Policy};
use crate::store::{Outcome, Part, Rule};

/// What a test sees and does of the backend.
#[derive(Default)]
struct Remote {
    batches: Mutex<Vec<Vec<String>>>,
    looks: AtomicUsize,
    is_closed: AtomicBool,
    is_failing_calls: AtomicBool,
    /// Units go back where they could not before.
    is_mended: AtomicBool,
    /// Calls that gave nothing back.
    failed: AtomicUsize,
    release: Notify,
    /// It tells the time when it is opened.
    server: Option<ServerClock>,
    #[cfg(feature = "metrics")]
    recorder: meters::Recorder,
}

fn admitted(charge: &Charge, at: Timestamp) -> Outcome {
    let unused = charge.parts.map(|part| State::unused(part.policy(), at));
    Outcome {
        at,
        found: charge.decide(at, &unused),
    }
}

/// Pages of ten, so many of them.
fn page_of(pages: i64, after: Option<Cursor>) -> Page {
    let page = after.map_or(1, |after| after.at + 1);
    let next = (page < pages).then(|| Cursor {
        at: page,
        ..Cursor::default()
    });
    Page {
        count: 10,
        kept: 1,
        next,
    }
}

struct Bench {
    engine: Engine,
    remote: Arc<Remote>,
    events: mpsc::UnboundedReceiver<&'static str>,
}

impl Bench {
    fn new() -> Self {
        Self::with(Remote::default(), Clock::System)
    }

    fn with(remote: Remote, clock: Clock) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let remote = Arc::new(remote);
        let fake = Fake {
            remote: Arc::clone(&remote),
            events: sender,
        };
        let engine = Engine::new("fake".to_owned(), fake, clock);
        // A machine that is busy with other tests must not make a charge late.
        engine.set_deadline(Duration::from_secs(60));
        Self {
            engine,
            remote,
            events,
        }
    }

    fn charge(&self, key: &str) -> Reply {
        self.engine.charge(&charge(key))
    }

    /// Waits until the backend is in such a call.
    async fn until(&mut self, event: &str) {
        while self.events.recv().await != Some(event) {}
    }

    /// Has a charge hang in the backend. One whose deadline passes before it comes there is followed by another.
    async fn hang(&mut self) -> Reply {
        loop {
            let mut reply = self.charge("hang");
            tokio::select! {
                biased;
                () = self.until("charge") => return reply,
                _ = &mut reply => {}
            }
        }
    }

    fn batches(&self) -> Vec<Vec<String>> {
        self.remote.batches.lock().unwrap().clone()
    }
}

fn part(key: Key) -> Part {
    let policy = Policy::fixed(1, 1).name("p");
    let counter = policy.counter_name();
    let rule = Arc::new(Rule::new(counter, policy.as_name().to_owned(), policy));
    Part { rule, key }
}

fn charge(key: &str) -> Charge {
    Charge::new(Few::one(part(Key::new("do", key))), 1)
}

#[tokio::test]
async fn what_comes_while_a_batch_is_written_makes_the_next_one() {
    let mut bench = Bench::new();
    let first = bench.hang().await;
    let others: Vec<_> = ["a", "b", "c"].map(|key| bench.charge(key)).into();
    bench.remote.release.notify_one();
    first.await.unwrap();
    for other in others {
        other.await.unwrap();
    }
    assert_eq!(
        bench.batches(),
        [vec!["do:hang"], vec!["do:a", "do:b", "do:c"]]
    );
}

#[tokio::test]
async fn a_panic_is_told_to_its_batch_and_ends_nothing() {
    let mut bench = Bench::new();
    let first = bench.hang().await;
    let batch = ["a", "panic"].map(|key| bench.charge(key));
    bench.remote.release.notify_one();
    first.await.unwrap();
    for reply in batch {
        let answer = reply.await;
        assert!(matches!(answer, Err(StoreError::Panicked)), "{answer:?}");
    }
    bench.charge("b").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_given_up_at_the_deadline_also_in_paused_time() {
    let mut bench = Bench::new();
    bench.engine.set_deadline(Duration::from_millis(20));
    let first = bench.hang().await;
    let second = bench.charge("late");
    let looked = bench.engine.peek(charge("look"));
    for reply in [first, second, looked] {
        let answer = reply.await;
        assert!(
            matches!(answer, Err(StoreError::DeadlineExceeded)),
            "{answer:?}"
        );
    }
    bench.remote.release.notify_one();
    bench.engine.set_deadline(Duration::from_secs(10));
    bench.charge("after").await.unwrap();
    assert_eq!(
        bench.batches(),
        [["do:hang"], ["do:after"]],
        "what was late was not charged"
    );
    assert_eq!(bench.remote.looks.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn what_was_taken_together_with_a_charge_that_hangs_is_not_late_either() {
    let mut bench = Bench::new();
    let first = bench.hang().await;
    let second = bench.charge("hang");
    let looked = bench.engine.peek(charge("look"));
    let mut swept = Box::pin(bench.engine.sweep());
    assert!(futures_poll(&mut swept).is_pending());
    bench.engine.set_deadline(Duration::from_millis(200));
    bench.remote.release.notify_one();
    first.await.unwrap();
    assert!(looked.await.is_ok(), "looks come before charges");
    let answer = second.await;
    assert!(
        matches!(answer, Err(StoreError::DeadlineExceeded)),
        "{answer:?}"
    );
    bench.remote.release.notify_one();
    assert_eq!(swept.await.unwrap(), 20);
}

fn futures_poll<F: Future>(future: &mut std::pin::Pin<Box<F>>) -> std::task::Poll<F::Output> {
    future
        .as_mut()
        .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn paused_time_makes_no_charge_late() {
    let bench = Bench::new();
    for _ in 0..200 {
        bench.charge("a").await.unwrap();
    }
}

#[tokio::test]
async fn what_is_cancelled_before_its_batch_is_not_charged() {
    let mut bench = Bench::new();
    let first = bench.hang().await;
    let kept = bench.charge("kept");
    drop(bench.charge("cancelled"));
    let last = bench.charge("last");
    bench.remote.release.notify_one();
    for reply in [first, kept, last] {
        reply.await.unwrap();
    }
    assert_eq!(bench.batches()[1..], [["do:kept", "do:last"]]);
}

#[tokio::test]
async fn a_full_queue_answers_at_once() {
    let mut bench = Bench::new();
    let first = bench.hang().await;
    let waiting: Vec<_> = (0..QUEUE_LENGTH).map(|_| bench.charge("a")).collect();
    let mut beyond = bench.charge("beyond");
    let answer = beyond.take_ready();
    assert!(
        matches!(answer, Some(Err(StoreError::Overloaded))),
        "{answer:?}"
    );
    bench.remote.release.notify_one();
    first.await.unwrap();
    for reply in waiting {
        reply.await.unwrap();
    }
}

#[tokio::test]
async fn closing_writes_what_waits_and_ends_the_store() {
    let mut bench = Bench::new();
    let first = bench.hang().await;
    let waiting = bench.charge("a");
    let release = Arc::clone(&bench.remote);
    let (closed, ()) = tokio::join!(bench.engine.close(), async {
        release.release.notify_one();
    });
    closed.unwrap();
    first.await.unwrap();
    waiting.await.unwrap();
    assert!(bench.remote.is_closed.load(Ordering::SeqCst));
    let late = bench.charge("late").await;
    assert!(matches!(late, Err(StoreError::Closed)), "{late:?}");
    assert!(matches!(
        bench.engine.sweep().await,
        Err(StoreError::Closed)
    ));
    bench.engine.close().await.unwrap();
}

#[tokio::test]
async fn the_last_handle_closes_the_store() {
    let Bench {
        engine,
        remote,
        mut events,
    } = Bench::new();
    engine.charge(&charge("a")).await.unwrap();
    drop(engine);
    while events.recv().await.is_some() {}
    assert!(remote.is_closed.load(Ordering::SeqCst));
}

#[test]
fn a_store_outlives_the_runtime_that_first_used_it() {
    let bench = Bench::new();
    for _ in 0..3 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(bench.charge("a")).unwrap();
    }
}
