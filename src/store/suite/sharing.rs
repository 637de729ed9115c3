//! Several stores on one database.

use super::*;
use crate::limit::{Algorithm, Limit};
use crate::store::records::Records;
use crate::store::{NewLimit, SetLimit};

pub fn stores_that_share_a_database_let_the_limit_pass_and_no_more<R: Records, F: Fn() -> R>(
    shared: &Shared<F>,
) {
    const LIMIT: u32 = 60;
    let clock = ManualClock::new(Timestamp::from_unix_millis(NOON));
    let stores = [shared.store(&clock), shared.store(&clock)];
    for has_leases in [false, true] {
        for policy in one_of_each(LIMIT) {
            let policy = policy.leases(has_leases);
            let key = Key::new("leases", has_leases);
            let admitted = shared.runtime.block_on(async {
                let tasks = stores.iter().map(|store| {
                    let (store, charge) = (store.clone(), charge_of(&[(&policy, &key)], 1));
                    tokio::spawn(async move {
                        let mut admitted = 0;
                        for _ in 0..LIMIT {
                            // Others may have been first too often.
                            let answer = store.charge(&charge).await;
                            admitted +=
                                u32::from(answer.is_ok_and(|outcome| outcome.is_admitted()));
                        }
                        admitted
                    })
                });
                let mut admitted = 0;
                for task in tasks.collect::<Vec<_>>() {
                    admitted += task.await.unwrap();
                }
                admitted
            });
            assert!(admitted <= LIMIT, "{policy}: {admitted}");
            let is_exact = !has_leases || policy.algorithm() == Algorithm::SlidingWindow;
            let least = if is_exact { LIMIT } else { LIMIT / 2 };
            assert!(admitted >= least, "{policy}: {admitted}");
        }
    }
}

pub fn a_store_sees_what_another_one_resets_and_sets<R: Records, F: Fn() -> R>(shared: &Shared<F>) {
    let clock = ManualClock::new(Timestamp::from_unix_millis(NOON));
    let [one, other] = [shared.store(&clock), shared.store(&clock)];
    let is_admitted = |policy: &Policy| {
        let charge = charge_of(&[(policy, &alice())], 2);
        shared
            .runtime
            .block_on(one.charge(&charge))
            .unwrap()
            .is_admitted()
    };
    for policy in one_of_each(2) {
        let policy = policy.leases(false);
        assert_eq!([is_admitted(&policy), is_admitted(&policy)], [true, false]);
        let reset = Reset {
            part: part_of(&policy, &alice()),
            with_keys_under: false,
            at: clock.now(),
        };
        assert_eq!(
            shared.runtime.block_on(other.reset(reset)).unwrap(),
            2,
            "{policy}"
        );
        assert!(is_admitted(&policy), "{policy}");
        let set = SetLimit {
            filed_under: policy.as_name().to_owned(),
            key: Some(alice()),
            limit: Some(NewLimit {
                units: Limit::of(4).units(),
                ends_at: None,
            }),
            now: clock.now(),
        };
        shared.runtime.block_on(other.set_limit(set)).unwrap();
        assert_eq!(
            [is_admitted(&policy), is_admitted(&policy)],
            [true, false],
            "{policy}"
        );
    }
}
