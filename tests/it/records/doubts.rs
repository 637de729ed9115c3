//! Changes that fail, or of which the answer is lost, while units go back and refusals are counted.

use futures_util::future::join_all;
use tollgate::{Decision, Verdict};

use super::*;

/// Of two counters one can't be changed for a moment: the other one gets its units back once, and this one none.
#[tokio::test]
async fn a_refund_that_is_made_in_part_is_not_made_twice() {
    let database = Database::default();
    let store = database.store().clock(&clock());
    let quota = Policy::hourly(9).name("quota").leases(false);
    let policies = [api(9).leases(false), quota];
    let limiter = limiter(policies.clone(), &store);
    let charged = charged(&limiter, 4).await;
    database.lock().fails = Some("quota");
    assert!(limiter.refund(&charged).await.is_err());
    database.lock().fails = None;
    assert_eq!(
        used_after_closing(&store, &database, policies).await,
        [3, 4]
    );
}

/// It was made, and its answer was lost, with an error that says the same call may succeed later.
#[tokio::test]
async fn a_refund_in_doubt_is_not_made_twice() {
    let database = Database::default();
    let store = database.store().clock(&clock());
    let limiter = limiter(api(9).leases(false), &store);
    let charged = charged(&limiter, 4).await;
    database.lock().fails = Some("api");
    database.lock().is_made_unheard = true;
    assert!(limiter.refund(&charged).await.is_err());
    database.lock().fails = None;
    assert_eq!(used_after_closing(&store, &database, api(9)).await, [3]);
}

/// Nothing has happened then.
#[tokio::test]
async fn a_refund_is_made_later_when_nothing_could_be_read() {
    let database = Database::default();
    let store = database.store().clock(&clock());
    let limiter = limiter(api(9).leases(false), &store);
    let charged = charged(&limiter, 4).await;
    database.lock().fails_reading = true;
    assert!(limiter.refund(&charged).await.is_err());
    database.lock().fails_reading = false;
    assert_eq!(used_after_closing(&store, &database, api(9)).await, [3]);
}

/// What one of the leases has given back is not spent again since another could not be.
#[tokio::test]
async fn leases_that_went_back_in_part_are_not_spent_again() {
    for is_made_unheard in [false, true] {
        let database = Database::default();
        let clock = clock();
        let stores = [0, 1].map(|_| database.store().clock(&clock));
        let [one, other] = stores.each_ref().map(|store| limiter(api(1_000), store));
        for n in [1, 2] {
            assert_eq!(passed(&one, &user(n), 300).await, 300);
        }
        database.lock().fails = Some("user:2\t");
        database.lock().is_made_unheard = is_made_unheard;
        // Idle leases go back; one of the two can't.
        clock.advance(Duration::from_secs(5));
        let _ = one.sweep().await;
        assert!(database.lock().failed > 0);
        database.lock().fails = None;
        for n in [1, 2] {
            let mut sum = 300;
            for limiter in [&other, &one, &other] {
                sum += passed(limiter, &user(n), 1_200).await;
            }
            assert!(sum <= 1_000, "user {n}: {sum}");
        }
    }
}

/// It only tells, so what is in doubt is not counted again.
#[tokio::test]
async fn attempts_that_are_counted_in_part_are_not_counted_twice() {
    let database = Database::default();
    let clock = clock();
    let store = database.store().clock(&clock);
    let one = limiter(api(1), &store);
    for (times, fails) in [(2, None), (9, Some("user:2\t"))] {
        database.lock().fails = fails;
        for n in [1, 2] {
            passed(&one, &user(n), times).await;
        }
    }
    let was_counted = async {
        while database.lock().failed == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), was_counted)
        .await
        .unwrap();
    database.lock().fails = None;
    store.close().await.unwrap();
    let other = limiter(api(1), &database.store().clock(&clock));
    let attempts = [1, 2].map(async |n| other.peek(user(n)).await.unwrap().attempts());
    let [of_one, of_two] = <[u64; 2]>::try_from(join_all(attempts).await).unwrap();
    assert_eq!(of_one, 11);
    assert!(of_two <= 11, "{of_two}");
}

/// Charges some units, and returns the last decision.
async fn charged(limiter: &Limiter, times: usize) -> Decision {
    assert_eq!(passed(limiter, &user(1), times - 1).await, times - 1);
    limiter.check(user(1)).await.unwrap()
}

/// What another store finds once all has gone back that was to.
async fn used_after_closing(
    store: &RecordStore,
    database: &Database,
    policies: impl Into<Policies>,
) -> Vec<u64> {
    store.close().await.unwrap();
    let other = limiter(policies, &database.store().clock(&clock()));
    let decision = other.peek(user(1)).await.unwrap();
    decision.verdicts().map(Verdict::used).collect()
}
