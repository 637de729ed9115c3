//! What the writer's thread tells in numbers.

use std::collections::BTreeMap;

use metrics_util::debugging::DebugValue;
pub(super) use metrics_util::debugging::DebuggingRecorder as Recorder;

use super::*;

/// Has the recorder of a test hear what this thread tells from now on: the writer's, which is of one store alone.
pub(super) fn record(remote: &Arc<Remote>) {
    let remote: &'static Arc<Remote> = Box::leak(Box::new(Arc::clone(remote)));
    std::mem::forget(metrics::set_default_local_recorder(&remote.recorder));
}

impl Bench {
    /// What was told since this was last asked: a counter's rise, a gauge's last value, all values of a histogram.
    fn told(&self) -> BTreeMap<String, Vec<f64>> {
        let snapshot = self.remote.recorder.snapshotter().snapshot().into_vec();
        let told = snapshot.into_iter().map(|(key, _, _, value)| {
            let labels = key.key().labels();
            let labels = labels.map(|label| format!(" {}={}", label.key(), label.value()));
            let name = format!("{}{}", key.key().name(), labels.collect::<String>());
            let values = match value {
                DebugValue::Counter(count) => vec![f64::from(u32::try_from(count).unwrap())],
                DebugValue::Gauge(value) => vec![value.into_inner()],
                DebugValue::Histogram(values) => values.iter().map(|value| value.0).collect(),
            };
            (name, values)
        });
        told.collect()
    }
}

#[tokio::test]
async fn a_batch_is_told_with_its_size_and_the_wait_of_each_charge() {
    let mut bench = Bench::new();
    bench.engine.open().await.unwrap();
    let first = bench.charge("hang");
    bench.until("charge").await;
    assert_eq!(bench.told()["tollgate_queue_depth store=fake"], [1.0]);
    let others = ["a", "b", "hang"].map(|key| bench.charge(key));
    bench.remote.release.notify_one();
    first.await.unwrap();
    bench.until("charge").await;
    let told = bench.told();
    assert_eq!(told["tollgate_queue_depth store=fake"], [3.0]);
    assert_eq!(told["tollgate_batch_size store=fake"], [1.0]);
    bench.remote.release.notify_one();
    for other in others {
        other.await.unwrap();
    }
    let told = bench.told();
    assert_eq!(told["tollgate_batch_size store=fake"], [3.0]);
    let waits = &told["tollgate_charge_duration_seconds store=fake"];
    assert_eq!(waits.len(), 3);
    assert!(
        waits.iter().all(|wait| (0.0..60.0).contains(wait)),
        "{waits:?}"
    );
    let answered = &told["tollgate_charges_total store=fake answered_by=database"];
    assert_eq!(answered, &[3.0]);
}

#[tokio::test]
async fn a_store_that_fails_is_degraded_until_it_answers() {
    let bench = Bench::new();
    bench.engine.open().await.unwrap();
    // Three calls open the breaker, and the probe that is answered closes it: that the failures are over is certain then.
    for _ in 0..3 {
        bench.charge("fail").await.unwrap_err();
    }
    let told = bench.told();
    let errors = "tollgate_store_errors_total store=fake kind=database_transient";
    assert_eq!(told[errors], [3.0]);
    assert_eq!(told["tollgate_store_degraded store=fake"], [1.0]);
    assert!(!told.contains_key("tollgate_batch_size store=fake"));
    while bench.charge("a").await.is_err() {
        tokio::task::yield_now().await;
    }
    bench.charge("a").await.unwrap();
    assert_eq!(bench.told()["tollgate_store_degraded store=fake"], [0.0]);
}

#[tokio::test]
async fn refusals_for_want_of_room_and_deadlines_are_told_by_their_kind() {
    let mut bench = Bench::new();
    bench.engine.open().await.unwrap();
    bench.charge("fill").await.unwrap_err();
    bench.engine.set_deadline(Duration::from_millis(1));
    let late = bench.charge("hang");
    bench.until("charge").await;
    late.await.unwrap_err();
    bench.remote.release.notify_one();
    let told = bench.told();
    for kind in ["full", "deadline_exceeded"] {
        let name = format!("tollgate_store_errors_total store=fake kind={kind}");
        assert_eq!(told[&name], [1.0]);
    }
}

#[tokio::test]
async fn the_rows_of_a_sweep_are_told() {
    let bench = Bench::new();
    bench
        .engine
        .set_clock(Clock::Manual(crate::clock::ManualClock::new(
            Timestamp::from_unix_millis(0),
        )));
    bench.engine.open().await.unwrap();
    bench.engine.sweep().await.unwrap();
    assert_eq!(bench.told()["tollgate_swept_rows_total store=fake"], [20.0]);
}
