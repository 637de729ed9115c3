//! All or nothing: what a refused request has used.

use std::time::Duration;

use tollgate::{Key, Limiter, Policy, RateLimitLayer, Store, Verdict, key};
use tower::Layer;

use super::{burst_and_quota, by_client};
use crate::algorithms::{each_algorithm, stores};
use crate::support::{CLIENT, clock, from, hello, memory, send, sqlite, statuses};

fn alice() -> Key {
    Key::header(CLIENT, "alice")
}

/// What each policy of the layer says that [`alice`] has used.
async fn used(layer: &RateLimitLayer) -> Vec<u64> {
    let seen = layer.limiter().peek(&alice()).await.unwrap();
    seen.verdicts().map(Verdict::used).collect()
}

fn ten_and_thirty(store: &dyn Store) -> RateLimitLayer {
    let policies = [
        Policy::sliding(10, 60).name("minute"),
        Policy::fixed(30, 1_800).name("half-hour"),
    ];
    by_client(policies, store)
}

async fn assert_that_31_hits_charge_10_to_both(layer: RateLimitLayer) {
    let mut expected = vec![200; 10];
    expected.extend([429; 21]);
    assert_eq!(statuses(&layer.layer(hello()), "alice", 31).await, expected);
    assert_eq!(used(&layer).await, [10, 10], "{layer:?}");
}

#[tokio::test]
async fn of_31_hits_the_10_that_were_served_are_charged_to_both_policies() {
    for store in stores(&clock()) {
        assert_that_31_hits_charge_10_to_both(ten_and_thirty(&*store)).await;
    }
}

#[tokio::test]
async fn a_refusal_by_any_algorithm_uses_nothing_of_any_other() {
    for strict in each_algorithm(10) {
        for wide in each_algorithm(30) {
            let (strict, wide) = (strict.clone().name("strict"), wide.name("wide"));
            let pair = [strict.clone(), wide.clone()];
            assert_that_31_hits_charge_10_to_both(by_client(pair, &memory(&clock()))).await;
            let pair = [wide, strict];
            assert_that_31_hits_charge_10_to_both(by_client(pair, &sqlite(&clock()))).await;
        }
    }
}

#[tokio::test]
async fn what_the_burst_refuses_leaves_the_whole_quota_to_later_requests() {
    let clock = clock();
    let service = burst_and_quota(&sqlite(&clock)).layer(hello());
    assert_eq!(
        statuses(&service, "alice", 9).await,
        [200, 200, 429, 429, 429, 429, 429, 429, 429]
    );
    clock.advance(Duration::from_secs(10));
    assert_eq!(statuses(&service, "alice", 3).await, [200, 429, 429]);
}

#[tokio::test]
async fn an_attempt_is_counted_by_the_policy_that_refused_it_alone() {
    for store in stores(&clock()) {
        let policies = [
            Policy::fixed(1, 60).name("strict"),
            Policy::fixed(9, 60).name("wide"),
        ];
        let layer = by_client(policies, &*store);
        statuses(&layer.layer(hello()), "alice", 4).await;
        let seen = layer.limiter().peek(&alice()).await.unwrap();
        let attempts: Vec<_> = seen.verdicts().map(Verdict::attempts).collect();
        assert_eq!(attempts, [4, 1]);
    }
}

#[tokio::test]
async fn a_client_over_its_limits_does_not_limit_others() {
    let service = burst_and_quota(&memory(&clock())).layer(hello());
    assert_eq!(statuses(&service, "alice", 3).await, [200, 200, 429]);
    assert_eq!(statuses(&service, "bob", 3).await, [200, 200, 429]);
}

#[tokio::test]
async fn a_policy_alone_and_one_of_several_share_their_counter_on_one_store() {
    let store = sqlite(&clock());
    let quota = Policy::fixed(3, 60).name("quota");
    let alone = by_client(quota, &store).layer(hello());
    assert_eq!(statuses(&alone, "alice", 2).await, [200, 200]);
    let both = burst_and_quota(&store).layer(hello());
    assert_eq!(statuses(&both, "alice", 2).await, [200, 429]);
    assert_eq!(statuses(&alone, "alice", 1).await, [429]);
}

#[tokio::test]
async fn two_layers_of_the_same_policies_never_meet_without_a_store() {
    let policies = || [Policy::monthly(1).name("a"), Policy::monthly(2).name("b")];
    let [first, second] = [policies(), policies()].map(|policies| {
        let layer = RateLimitLayer::new(policies);
        layer.key(key::header(CLIENT)).layer(hello())
    });
    assert_eq!(statuses(&first, "alice", 1).await, [200]);
    assert_eq!(statuses(&second, "alice", 1).await, [200]);
}

#[tokio::test]
async fn a_reset_gives_back_what_every_policy_has_counted() {
    let layer = burst_and_quota(&sqlite(&clock()));
    let service = layer.layer(hello());
    assert_eq!(statuses(&service, "alice", 3).await, [200, 200, 429]);
    assert_eq!(layer.limiter().reset(&alice()).await.unwrap(), 4);
    assert_eq!(used(&layer).await, [0, 0]);
    assert_eq!(statuses(&service, "alice", 3).await, [200, 200, 429]);
}

#[tokio::test]
async fn exactly_the_strictest_limit_passes_of_many_tasks() {
    let policies = [
        Policy::sliding(25, 60).name("minute"),
        Policy::daily(20).name("daily"),
        Policy::token_bucket(1, 60).burst(30).name("bucket"),
    ];
    let layer = by_client(policies, &sqlite(&clock()));
    let service = layer.layer(hello());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let service = service.clone();
        tasks.spawn(async move { send(&service, from("alice")).await.status });
    }
    let statuses = tasks.join_all().await;
    let allowed = statuses.iter().filter(|status| **status == 200).count();
    assert_eq!(allowed, 20);
    assert_eq!(used(&layer).await, [20, 20, 20]);
}

#[tokio::test]
async fn a_cost_that_one_policy_has_no_room_for_uses_nothing_of_the_other() {
    let policies = [
        Policy::sliding(5, 60).name("strict"),
        Policy::fixed(9, 60).name("wide"),
    ];
    let limiter = Limiter::new(policies).store(&sqlite(&clock()));
    assert!(limiter.check_n(&alice(), 4).await.unwrap().is_allowed());
    let refused = limiter.check_n(&alice(), 2).await.unwrap();
    let used: Vec<_> = refused.verdicts().map(Verdict::used).collect();
    assert_eq!((refused.is_denied(), used), (true, vec![4, 4]));
    assert!(limiter.check_n(&alice(), 1).await.unwrap().is_allowed());
}
