//! Charges after the fact, and units that go back.

use super::*;
use crate::limit::algorithm::Taken;

/// A unit of a window.
pub(super) fn back(key: &str) -> Vec<GiveBack> {
    vec![GiveBack {
        part: part(Key::new("do", key)),
        units: 1,
        taken_at: Timestamp::from_unix_millis(0),
        from: Taken::Window {
            start: Timestamp::from_unix_millis(0),
            epoch: 0,
        },
    }]
}

#[tokio::test]
async fn what_goes_back_comes_before_the_charges_that_wait_whoever_waits_for_it() {
    let mut bench = Bench::new();
    let first = bench.charge("hang");
    bench.until("charge").await;
    let charged = bench.charge("a");
    drop(bench.engine.give_back(back("b")));
    bench.remote.release.notify_one();
    first.await.unwrap();
    charged.await.unwrap();
    assert_eq!(bench.batches(), [["do:hang"], ["back do:b"], ["do:a"]]);
}

#[tokio::test]
async fn what_was_used_already_is_charged_though_nobody_waits_and_it_is_late() {
    let mut bench = Bench::new();
    bench.engine.set_deadline(Duration::from_millis(20));
    let first = bench.charge("hang");
    bench.until("charge").await;
    let forced = |key: &str| Charge::forced(charge(key).parts, 5);
    drop(bench.engine.charge(&forced("dropped")));
    let late = bench.engine.charge(&forced("late"));
    let answer = late.await;
    assert!(
        matches!(answer, Err(StoreError::DeadlineExceeded)),
        "{answer:?}"
    );
    assert!(first.await.is_err());
    bench.engine.set_deadline(Duration::from_secs(60));
    let after = bench.charge("after");
    bench.remote.release.notify_one();
    after.await.unwrap();
    assert_eq!(
        bench.batches().concat(),
        ["do:hang", "do:dropped", "do:late", "do:after"]
    );
}

#[tokio::test]
async fn what_goes_back_is_done_before_the_store_closes() {
    let bench = Bench::new();
    bench.charge("a").await.unwrap();
    drop(bench.engine.give_back(back("b")));
    bench.engine.close().await.unwrap();
    assert_eq!(bench.batches().concat(), ["do:a", "back do:b"]);
    assert!(bench.engine.give_back(back("c")).await.is_err());
}
