//! What limiters tell in numbers. What the writer's thread tells is tested beside the engine.

use std::collections::BTreeMap;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tollgate::{FailureMode, Key, Limiter, Policy, RateLimitLayer};
use tower::Layer;

use crate::support::{clock, from, hello, login, memory, send, sqlite, statuses};

/// The counters, each with its labels, and how much they have risen since they were last asked for.
fn counters(snapshotter: &Snapshotter) -> BTreeMap<String, u64> {
    let snapshot = snapshotter.snapshot().into_vec();
    let counters = snapshot.into_iter().filter_map(|(key, _, _, value)| {
        let DebugValue::Counter(count) = value else {
            return None;
        };
        let labels = key.key().labels();
        let labels = labels.map(|label| format!(" {}={}", label.key(), label.value()));
        let name = format!("{}{}", key.key().name(), labels.collect::<String>());
        (count > 0).then_some((name, count))
    });
    counters.collect()
}

fn expected<const N: usize>(counters: [(&str, u64); N]) -> BTreeMap<String, u64> {
    counters
        .map(|(name, count)| (name.to_owned(), count))
        .into()
}

#[tokio::test]
async fn each_policy_of_a_decision_is_counted_with_what_it_said() {
    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let policies = [
        Policy::fixed(1, 60).name("strict"),
        Policy::fixed(9, 60).name("wide"),
    ];
    let limiter = Limiter::new(policies).store(&memory(&clock()));
    for _ in 0..3 {
        let _ = limiter.check(&Key::new("user", "alice")).await.unwrap();
    }
    let _ = limiter.peek(&Key::new("user", "alice")).await.unwrap();
    assert_eq!(
        counters(&recorder.snapshotter()),
        expected([
            ("tollgate_charges_total store=memory answered_by=memory", 3),
            (
                "tollgate_decisions_total policy=strict outcome=allowed degraded=false",
                1
            ),
            (
                "tollgate_decisions_total policy=strict outcome=denied degraded=false",
                2
            ),
            (
                "tollgate_decisions_total policy=wide outcome=allowed degraded=false",
                1
            ),
            (
                "tollgate_decisions_total policy=wide outcome=denied_by_other degraded=false",
                2
            ),
        ])
    );
}

#[tokio::test]
async fn what_a_limit_in_shadow_mode_would_do_is_counted_apart() {
    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let service = login(1, 60, &memory(&clock())).shadow(true).layer(hello());
    assert_eq!(statuses(&service, "alice", 3).await, [200; 3]);
    let counters = counters(&recorder.snapshotter());
    let of = |outcome: &str| {
        counters[&format!("tollgate_decisions_total policy=login outcome={outcome} degraded=false")]
    };
    assert_eq!([of("shadow_allowed"), of("shadow_denied")], [1, 2]);
}

#[tokio::test]
async fn what_is_decided_without_the_store_is_marked_and_what_is_not_decided_is_counted() {
    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = sqlite(&clock());
    store.close().await.unwrap();
    for mode in [FailureMode::Local, FailureMode::Open, FailureMode::Closed] {
        let layer = login(1, 60, &store).on_store_failure(mode);
        send(&layer.layer(hello()), from("alice")).await;
    }
    assert_eq!(
        counters(&recorder.snapshotter()),
        expected([
            ("tollgate_charges_total store=memory answered_by=local", 1),
            (
                "tollgate_decisions_total policy=login outcome=allowed degraded=true",
                2
            ),
            (
                "tollgate_decisions_total policy=login outcome=unanswered degraded=true",
                1
            ),
            ("tollgate_store_errors_total store=memory kind=closed", 3),
        ])
    );
}

#[tokio::test]
async fn charges_that_a_lease_has_answered_are_counted() {
    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let limit = RateLimitLayer::fixed(1_000_000, 60).store(&sqlite(&clock()));
    let limiter = limit.limiter();
    for _ in 0..500 {
        let _ = limiter.check(&Key::new("user", "alice")).await.unwrap();
    }
    let counters = counters(&recorder.snapshotter());
    let leased = counters["tollgate_charges_total store=memory answered_by=lease"];
    assert!((1..500).contains(&leased), "{leased}");
}

#[tokio::test]
async fn requests_that_are_not_recorded_are_counted() {
    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let log = sqlite(&clock());
    log.close().await.unwrap();
    let service = login(9, 60, &memory(&clock())).audit(&log).layer(hello());
    statuses(&service, "alice", 2).await;
    let counters = counters(&recorder.snapshotter());
    assert_eq!(counters["tollgate_audit_dropped_total store=memory"], 2);
}

#[tokio::test]
async fn no_label_has_a_key() {
    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let service = login(1, 60, &memory(&clock())).layer(hello());
    statuses(&service, "alice", 3).await;
    let names = counters(&recorder.snapshotter());
    assert!(!names.is_empty());
    assert!(
        names.keys().all(|name| !name.contains("alice")),
        "{names:?}"
    );
}
