//! Records that fail, are lost, or are changed by several stores at once.

use futures_util::future::join_all;
use tollgate::{Algorithm, Key, Limiter, Policy};

use super::*;

#[tokio::test]
async fn a_batch_is_one_read_and_one_change() {
    let database = Database::default();
    let store = database.store().clock(&clock());
    let limiter = limiter(api(9).leases(false), &store);
    let asked = (0..50).map(|n| limiter.check(user(n % 20)));
    let answers = join_all(asked).await;
    assert!(
        answers
            .into_iter()
            .all(|answer| answer.unwrap().is_allowed())
    );
    let state = database.lock();
    let (reads, changes) = (state.reads, state.changes);
    // Before the first one it is read what others are told, and that is begun.
    assert!(reads < 25 && changes < 25, "{reads} and {changes}");
}

#[tokio::test]
async fn a_change_that_fails_is_an_error_to_its_own_charges_alone() {
    let database = Database::default();
    database.lock().fails = Some("user:2\t");
    let store = database.store().clock(&clock());
    let limiter = limiter(api(9), &store);
    let charges = (1..4).map(|n| limiter.check(user(n)));
    let answers = join_all(charges).await;
    let answers = answers.into_iter().map(|answer| answer.is_ok());
    assert_eq!(answers.collect::<Vec<_>>(), [true, false, true]);
    database.lock().fails = None;
    assert_eq!(passed(&limiter, &user(2), 10).await, 9);
}

#[tokio::test]
async fn records_that_cant_be_read_are_an_error_and_nothing_is_charged() {
    let database = Database::default();
    let store = database.store().clock(&clock());
    let limiter = limiter(api(2), &store);
    store.open().await.unwrap();
    database.lock().fails_reading = true;
    let error = limiter.check(user(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Database { .. }), "{error}");
    assert!(store.open().await.is_err());
    database.lock().fails_reading = false;
    assert_eq!(passed(&limiter, &user(1), 3).await, 2);
}

#[tokio::test]
async fn a_record_of_somebody_else_is_an_error_that_says_so() {
    let database = Database::default();
    let store = database.store().clock(&clock());
    let limiter = limiter(api(2), &store);
    let name = "count\tapi;fixed;60s\tuser:1\t0".to_owned();
    database.lock().records.insert(name, "not ours".to_owned());
    let error = format!("{:?}", limiter.check(user(1)).await.unwrap_err());
    assert!(error.contains("none of this version's"), "{error}");
}

/// Each of them has a clock of its own, and none decides.
#[tokio::test]
async fn the_clock_of_the_database_decides_when_it_has_one() {
    let database = Database::default();
    let start = 3_600_000_000;
    database.lock().now = Some(Timestamp::from_unix_millis(start));
    let stores = [database.store(), database.store()];
    let limiters = stores
        .each_ref()
        .map(|store| limiter(api(3).leases(false), store));
    let mut passed = [0, 0];
    for _ in 0..4 {
        for (passed, limiter) in passed.iter_mut().zip(&limiters) {
            let decision = limiter.check(user(1)).await.unwrap();
            assert_eq!(decision.decided_at().unix_millis(), start);
            *passed += u32::from(decision.is_allowed());
        }
    }
    assert_eq!(passed, [2, 1]);
    database.lock().now = Some(Timestamp::from_unix_millis(start + 60_000));
    assert!(limiters[1].check(user(1)).await.unwrap().is_allowed());
}

/// All of them share a counter, so they can't change apart.
#[tokio::test]
async fn a_change_has_no_more_records_than_databases_take() {
    let database = Database::default();
    let store = database.store().clock(&clock());
    let policies = [api(1_000), Policy::fixed(450, 60).name("all")];
    let limiter = Limiter::new(policies).store(&store);
    let asked = (0..500).map(|n| limiter.check([user(n), Key::constant("all")]));
    let answers = join_all(asked).await.into_iter();
    let admitted: Vec<_> = answers.map(|answer| answer.unwrap().is_allowed()).collect();
    let expected: Vec<_> = (0..500).map(|n| n < 450).collect();
    assert_eq!(admitted, expected, "in their order");
    assert!(database.lock().longest <= 100);
    store.close().await.unwrap();
    assert!(database.lock().longest <= 100);
}

/// Who knows them to be over is told of each.
#[tokio::test]
async fn what_goes_back_of_many_refused_keys_is_told_to_others() {
    const KEYS: usize = 150;
    let database = Database::default();
    let clock = clock();
    let stores = [0, 1].map(|_| database.store().clock(&clock));
    let [one, other] = stores.each_ref().map(|store| limiter(api(1), store));
    let mut charged = Vec::new();
    for n in 0..KEYS {
        charged.push(one.check(user(n)).await.unwrap());
        for _ in 0..2 {
            assert!(other.check(user(n)).await.unwrap().is_denied());
        }
    }
    let refunds = charged.iter().map(|decision| one.refund(decision));
    assert!(
        join_all(refunds)
            .await
            .into_iter()
            .all(|refund| refund.is_ok())
    );
    assert!(database.lock().longest <= 100);
    let had = async {
        for n in 0..KEYS {
            while other.check(user(n)).await.unwrap().is_denied() {
                tokio::task::yield_now().await;
            }
        }
    };
    // The clock stands still: without a word they would be known to be over for ever.
    tokio::time::timeout(Duration::from_secs(60), had)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn several_stores_on_the_same_records_let_the_limit_pass_and_no_more() {
    const LIMIT: u32 = 500;
    for (has_leases, is_contended) in [(false, false), (false, true), (true, true)] {
        let database = Database::default();
        database.lock().is_contended = is_contended;
        let clock = clock();
        let policies = [
            api(LIMIT).leases(has_leases),
            Policy::sliding(LIMIT, 60).name("sliding"),
            Policy::sliding_counter(LIMIT, 60)
                .name("counter")
                .leases(has_leases),
        ];
        let tasks = (0..16).map(|n| {
            let store = database.store().clock(&clock);
            let policy = policies[n % 3].clone();
            let limiter = limiter(policy, &store);
            tokio::spawn(async move {
                let passed = passed(&limiter, &user(1), 200).await;
                (n % 3, passed, store)
            })
        });
        let mut sums = [0; 3];
        for task in join_all(tasks).await {
            let (place, passed, _store) = task.unwrap();
            sums[place] += passed;
        }
        for (sum, policy) in sums.into_iter().zip(&policies) {
            let most = LIMIT as usize;
            let is_exact = !has_leases || policy.algorithm() == Algorithm::SlidingWindow;
            let least = if is_exact { most } else { most * 9 / 10 };
            assert!((least..=most).contains(&sum), "{policy}: {sum}");
        }
    }
}

/// What was charged ahead before a reset, by another store, is not spent after it.
#[tokio::test]
async fn another_store_sees_a_reset_and_a_limit_within_a_moment() {
    let database = Database::default();
    let clock = clock();
    let [one, other] = [0, 1].map(|_| limiter(api(1_000), &database.store().clock(&clock)));
    assert_eq!(passed(&one, &user(1), 100).await, 100);
    assert!(other.reset(&user(1)).await.unwrap() >= 100);
    let seen = async {
        loop {
            let decision = one.check(user(1)).await.unwrap();
            if decision.used() < 100 {
                return decision.used();
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), seen)
        .await
        .unwrap();
    other.set_limit("api", &user(1), 0).await.unwrap();
    let blocked = async {
        while one.check(user(1)).await.unwrap().is_allowed() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), blocked)
        .await
        .unwrap();
    other.remove_limit("api", &user(1)).await.unwrap();
    let free = async {
        while one.check(user(1)).await.unwrap().is_denied() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), free)
        .await
        .unwrap();
}

/// Nothing goes back to the counters that take the place of lost ones.
#[tokio::test]
async fn records_that_are_lost_take_what_was_charged_ahead_with_them() {
    let database = Database::default();
    let clock = clock();
    let store = database.store().clock(&clock);
    let limiter = limiter(api(1_000), &store);
    assert_eq!(passed(&limiter, &user(1), 100).await, 100);
    database.lock().records.clear();
    let other = self::limiter(api(1_000), &database.store().clock(&clock));
    assert_eq!(passed(&other, &user(1), 200).await, 200);
    store.close().await.unwrap();
    let used = other.peek(&user(1)).await.unwrap().used();
    assert_eq!(used, 200);
}

/// Nobody would tell a store that has found them lost what becomes of the new ones, until it has asked once more.
#[tokio::test]
async fn nothing_is_charged_ahead_by_the_batch_that_finds_records_lost() {
    for is_lost in [false, true] {
        let database = Database::default();
        let clock = clock();
        let store = database.store().clock(&clock);
        let limiter = limiter(api(1_000), &store);
        assert_eq!(passed(&limiter, &user(1), 1).await, 1);
        if is_lost {
            database.lock().records.clear();
        }
        assert_eq!(passed(&limiter, &user(1), 1).await, 1);
        let other = self::limiter(api(1_000), &database.store().clock(&clock));
        let used = other.peek(&user(1)).await.unwrap().used();
        assert_eq!(used == 1, is_lost, "{used}");
        assert_eq!(used > 2, !is_lost, "{used}");
    }
}

#[tokio::test]
async fn what_is_opened_is_closed() {
    let store = Database::default().store();
    store.open().await.unwrap();
    assert!(store.health().is_answering());
    store.close().await.unwrap();
    store.close().await.unwrap();
    let error = limiter(api(1), &store).check(user(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Closed));
}

/// Records that can be read and not written: the breaker opens.
#[tokio::test]
async fn records_that_cant_be_changed_are_not_asked_for_ever() {
    let database = Database::default();
    let store = database.store().clock(&clock());
    let limiter = limiter(api(9).leases(false), &store);
    assert!(limiter.check(user(0)).await.unwrap().is_allowed());
    database.lock().fails = Some("count");
    let before = database.lock().changes;
    for n in 1..30 {
        assert!(limiter.check(user(n)).await.is_err());
    }
    let asked = database.lock().changes - before;
    assert!(asked < 10, "asked {asked} times of 29");
}

/// Nor of a limit that all of them share.
#[tokio::test]
async fn a_record_that_cant_be_read_harms_no_other_key() {
    let database = Database::default();
    let store = database.store().clock(&clock());
    let all = Policy::fixed(100, 60).name("all");
    let limiter = limiter([api(9), all], &store);
    let check = |n| limiter.check([user(n), Key::constant("all")]);
    assert!(check(0).await.unwrap().is_allowed());
    let name = "count\tapi;fixed;60s\tuser:2\t0".to_owned();
    let garbage = "not ours".to_owned();
    database
        .lock()
        .records
        .insert(name.clone(), garbage.clone());
    let answers = join_all((0..9).map(check)).await;
    let failed = answers.iter().map(Result::is_err);
    let expected = (0..9).map(|n| n == 2);
    assert!(failed.eq(expected), "{answers:?}");
    // It goes on by itself, and is not deleted.
    for _ in 0..9 {
        assert!(check(2).await.is_err());
    }
    assert!(check(3).await.is_ok());
    limiter.sweep().await.unwrap();
    assert_eq!(database.lock().records.get(&name), Some(&garbage));
}

/// The store goes on, whatever its database holds.
#[tokio::test]
async fn records_that_hold_the_largest_numbers_are_answered() {
    let log = Policy::sliding(9, 60).name("log");
    let bucket = Policy::token_bucket(9, 60).name("bucket");
    let blocking = api(9).block_after(3, Duration::from_secs(60));
    let values = [
        (&api(9), "window MAX MAX MAX"),
        (&api(9), "window MAX 0 0"),
        (&log, "events 0 MAX 1 MAX 2 MAX"),
        (&bucket, "bucket LAST MAX MAX FIRST"),
        (&bucket, "bucket FIRST MAX MAX LAST"),
        (&blocking, "block MAX LAST"),
    ];
    for (policy, value) in values {
        let database = Database::default();
        let clock = clock();
        let store = database.store().clock(&clock);
        let limiter = limiter(policy.clone().leases(false), &store);
        let charged = limiter.check(user(1)).await.unwrap();
        let value = value
            .replace("MAX", &u64::MAX.to_string())
            .replace("LAST", &i64::MAX.to_string())
            .replace("FIRST", &i64::MIN.to_string());
        let name = database
            .lock()
            .records
            .keys()
            .find(|name| name.starts_with("count"))
            .cloned();
        let mut name = name.unwrap();
        if value.starts_with("block") {
            name = name.replace("\tuser", ";block\tuser");
        }
        let value = format!("{} {value}", i64::MAX);
        database.lock().records.insert(name, value);
        for millis in [0, 59_000, -3_600_000] {
            clock.set(Timestamp::from_unix_millis(millis));
            let _ = limiter.check(user(1)).await.unwrap();
            let _ = limiter.peek(user(1)).await.unwrap();
        }
        limiter.refund(&charged).await.unwrap();
        limiter.reset(user(1)).await.unwrap();
        let _ = limiter.check(user(1)).await.unwrap();
    }
}

/// A node whose clock is ahead of the database's sweeps before it has heard that one.
#[tokio::test]
async fn a_sweep_by_a_clock_that_is_ahead_deletes_nothing_that_is_in_force() {
    let database = Database::default();
    database.lock().now = Some(Timestamp::from_unix_millis(3_600_000_000));
    let store = database.store();
    let one = limiter(api(2).leases(false), &store);
    assert_eq!(passed(&one, &user(1), 2).await, 2);
    let other = limiter(api(2), &database.store());
    assert_eq!(other.sweep().await.unwrap(), 0);
    assert!(one.check(user(1)).await.unwrap().is_denied());
}

/// Who has seen more than there is now knows that what it knows is gone.
#[tokio::test]
async fn no_range_is_asked_for_that_ends_before_it_begins() {
    let database = Database::default();
    let clock = clock();
    let one = limiter(api(1_000), &database.store().clock(&clock));
    assert_eq!(passed(&one, &user(1), 50).await, 50);
    let backup = database.lock().records.clone();
    for n in 5..9 {
        one.reset(user(n)).await.unwrap();
    }
    let other = limiter(api(1_000), &database.store().clock(&clock));
    assert_eq!(passed(&other, &user(2), 100).await, 100);
    database.lock().records = backup;
    let looks = database.lock().looks;
    let has_looked = async {
        while database.lock().looks < looks + 3 {
            let _ = other.check(user(2)).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), has_looked)
        .await
        .unwrap();
    assert_eq!(database.lock().odd_ranges, 0);
}
