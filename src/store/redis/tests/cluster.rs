//! The store on a real cluster of three nodes.

use super::nodes::Nodes;
use super::*;
use crate::clock::Clock;
use crate::limit::few::Few;
use crate::store::engine::{Backend, Batch};
use crate::store::redis::cluster::Cluster;
use crate::store::redis::server::Timeout;
use crate::store::redis::servers::Servers;
use crate::store::suite::part_of;
use crate::store::{Charge, Part, Reset};

crate::__store_suite!(
    Subject::new(async |clock| (
        open_cluster(Nodes::shared(), &RedisServer::prefix())
            .await
            .clock(&clock),
        ()
    ))
    .expiring();
    exactly_the_limit_passes_of_many_tasks,
    a_refused_cost_leaves_what_is_left,
    looking_uses_nothing_and_creates_nothing,
    counters_and_keys_do_not_touch_each_other,
    a_window_ends_at_its_boundary,
    a_changed_limit_keeps_what_was_used,
    extremes_are_refused_or_saturate,
    a_reset_is_seen_by_the_next_charge,
    everything_under_a_key_is_reset_and_nothing_beside_it,
    a_whole_policy_is_reset_and_nothing_of_others,
    long_jobs_cover_every_page,
    a_charge_that_nobody_waits_for_harms_no_other,
    an_odd_key_is_a_key_or_an_error_and_harms_no_other,
    calendar_quotas_begin_anew_with_the_calendar,
    a_refused_policy_uses_nothing_of_the_others,
    several_policies_wait_for_the_slowest,
    exactly_the_limit_passes_of_several_policies,
    a_clock_that_steps_locks_nobody_out,
    a_refused_key_is_blocked_for_as_long_as_its_policy_says,
    a_reset_ends_a_block,
    what_was_used_already_is_charged_beyond_the_limit,
    what_is_given_back_can_be_used_again,
    what_is_given_back_twice_is_never_below_zero,
    nothing_goes_back_to_another_window,
    nothing_goes_back_to_a_key_that_was_reset,
    giving_back_is_as_if_it_had_never_been_charged,
    a_limit_that_is_set_holds_from_the_next_charge_on,
    a_blocked_key_and_an_exempt_one_are_the_two_ends,
    the_limit_of_a_policy_is_for_keys_without_their_own,
    a_limit_ends_when_it_says,
    limits_of_several_policies_are_told_apart,
    limits_are_listed_a_page_at_a_time,
    a_sweep_deletes_limits_that_have_ended_and_no_others,
    limits_that_are_set_decide_like_a_model,
    each_algorithm_decides_like_its_model,
    several_policies_decide_like_their_models,
    a_batch_is_answered_like_a_sequence,
    what_is_charged_ahead_changes_no_answer,
    it_answers_as_this_processs_memory_does,
);

pub(super) async fn open_cluster(nodes: &Nodes, prefix: &str) -> RedisStore {
    let store = RedisStore::connect_cluster_with_prefix(&[&nodes.url(0)], prefix).await;
    store.unwrap().deadline(PATIENCE)
}

pub(super) fn key(n: u32) -> Key {
    Key::new("user", n)
}

pub(super) fn charge_of_key(policy: &Policy, n: u32) -> Charge {
    charge_of(&[(policy, &key(n))], 1)
}

/// Charges a key until there is an answer.
async fn patiently(store: &RedisStore, policy: &Policy, n: u32) -> bool {
    let until = clock::monotonic() + PATIENCE;
    loop {
        match store.engine.charge(&charge_of_key(policy, n)).await {
            Ok(outcome) => return outcome.is_admitted(),
            Err(error) => assert!(clock::monotonic() < until, "{error:?}"),
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_on_a_cluster_share_the_counters_of_many_keys() {
    let (nodes, prefix) = (Nodes::shared(), RedisServer::prefix());
    let policy = Policy::daily(10).name("p");
    let clock = noon();
    let mut admitted = 0;
    for place in 0..3 {
        let url = nodes.url(place);
        let store = RedisStore::connect_cluster_with_prefix(&[&url], &prefix).await;
        let store = store.unwrap().deadline(PATIENCE).clock(&clock);
        let replies: Vec<_> = (0..2_000)
            .map(|n| store.engine.charge(&charge_of_key(&policy, n % 200)))
            .collect();
        for reply in replies {
            admitted += u32::from(reply.await.unwrap().is_admitted());
        }
        store.close().await.unwrap();
    }
    assert_eq!(admitted, 2_000);
    let stored = |place| nodes.cli(place, &["--scan", "--pattern", &format!("{prefix}p;*")]);
    let stored = (0..3).map(|place| stored(place).lines().count());
    let stored: Vec<_> = stored.collect();
    assert_eq!(stored.iter().sum::<usize>(), 200);
    assert!(stored.iter().all(|keys| *keys > 20), "{stored:?}");
}

#[tokio::test]
async fn several_keys_in_one_charge_are_an_error_and_charge_none() {
    let store = open_cluster(Nodes::shared(), &RedisServer::prefix()).await;
    let [one, other] = ["one", "other"].map(|name| Policy::daily(10).name(name));
    let parts: [Part; 2] = [part_of(&one, &key(1)), part_of(&other, &key(2))];
    let charge = Charge::new(Few::collect(parts.into_iter()).unwrap(), 1);
    let error = store.engine.charge(&charge).await.unwrap_err();
    assert!(matches!(error, StoreError::KeysApart), "{error:?}");
    let error = store.engine.peek(charge).await.unwrap_err();
    assert!(matches!(error, StoreError::KeysApart), "{error:?}");
    for (policy, n) in [(&one, 1), (&other, 2)] {
        let outcome = store.engine.peek(charge_of_key(policy, n)).await.unwrap();
        assert_eq!(outcome.found.first().state.used(policy, outcome.at), 0);
    }
}

/// Slot by slot goes to another node, while charges come.
#[tokio::test(flavor = "multi_thread")]
async fn slots_that_move_are_followed_and_nothing_is_admitted_twice() {
    let nodes = Nodes::start();
    let store = open_cluster(&nodes, "t:").await.clock(&noon());
    let policies = [
        Policy::daily(10).name("window"),
        Policy::sliding(10, 86_400).name("log"),
        Policy::token_bucket(10, 86_400).name("bucket"),
    ]
    .map(|policy| policy.leases(false));
    let mut admitted = vec![0; 30];
    let mut moved = 0;
    for round in 0..12 {
        for (n, admitted) in (0..).zip(&mut admitted) {
            let policy = &policies[n as usize % 3];
            *admitted += u32::from(patiently(&store, policy, n).await);
        }
        if round % 3 == 1 {
            // All that the first node has of ten keys goes to the second.
            for n in moved..moved + 10 {
                move_slot(&nodes, n);
            }
            moved += 10;
        }
    }
    assert_eq!(admitted, vec![10; 30]);
}

/// Moves the slot of a key from the first node to the second, if the first has it.
fn move_slot(nodes: &Nodes, n: u32) {
    let name = format!("t:window;calendar;day:{{{}}}", key(n).as_str());
    let slot = nodes.cli(0, &["CLUSTER", "KEYSLOT", &name]);
    let (from, to) = (nodes.id(0), nodes.id(1));
    let number: u32 = slot.parse().unwrap();
    if number > 5_460 {
        return;
    }
    nodes.cli(1, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from]);
    nodes.cli(0, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to]);
    let keys = nodes.cli(0, &["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
    let port = nodes.url(1).rsplit_once(':').unwrap().1.to_owned();
    for key in keys.lines().filter(|key| !key.is_empty()) {
        let moved = nodes.cli(0, &["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        assert_eq!(moved, "OK");
    }
    for place in [1, 0, 2] {
        nodes.cli(place, &["CLUSTER", "SETSLOT", &slot, "NODE", &to]);
    }
}

/// What has moved may have been where it was looked for before, or where it will be: nobody could tell that all was reset.
#[tokio::test]
async fn a_reset_ends_with_an_error_when_something_moves_meanwhile() {
    let nodes = Nodes::start();
    let seeds = vec![crate::store::redis::info_of(&nodes.url(0)).unwrap()];
    let timeout = Timeout::new();
    let cluster = Cluster::new(seeds, timeout);
    let mut redis = RedisStore::backend(Servers::Cluster(Box::new(cluster)), "t:");
    let policy = Policy::daily(10).name("window");
    let is_of_first = |n: &u32| {
        let name = format!("t:window;calendar;day:{{{}}}", key(*n).as_str());
        let slot = nodes.cli(0, &["CLUSTER", "KEYSLOT", &name]);
        slot.parse::<u32>().unwrap() <= 5_460
    };
    let moving = (0..100).find(is_of_first).unwrap();
    let charges = [charge_of_key(&policy, moving)];
    let batch = Batch {
        charges: &charges,
        ahead: &[],
    };
    let clock = Clock::Manual(noon());
    let reset = Reset {
        part: Part {
            key: Key::prefix_of_all(),
            ..part_of(&policy, &key(0))
        },
        with_keys_under: true,
        at: noon().now(),
    };
    redis.charge(batch, &clock).await.unwrap();
    let mut after = redis.reset(&reset, None).await.unwrap().next;
    after = redis.reset(&reset, after).await.unwrap().next;
    assert!(after.is_some(), "there are more nodes");
    move_slot(&nodes, moving);
    let made = redis.charge(batch, &clock).await.unwrap();
    assert!(made.answers[0].is_ok(), "it is found where it is");
    let error = redis.reset(&reset, after).await.unwrap_err();
    assert!(
        format!("{error:?}").contains("reset it once more"),
        "{error:?}"
    );
    let mut after = redis.reset(&reset, None).await.unwrap().next;
    while after.is_some() {
        after = redis.reset(&reset, after).await.unwrap().next;
    }
}

#[tokio::test]
async fn a_node_that_is_gone_fails_its_own_keys_and_no_others() {
    let nodes = Nodes::start();
    // The others go on by themselves then.
    for place in 0..3 {
        nodes.cli(
            place,
            &["CONFIG", "SET", "cluster-require-full-coverage", "no"],
        );
    }
    let store = open_cluster(&nodes, "t:").await.clock(&noon());
    let policy = Policy::daily(100).name("p").leases(false);
    let replies: Vec<_> = (0..60)
        .map(|n| store.engine.charge(&charge_of_key(&policy, n)))
        .collect();
    for reply in replies {
        assert!(reply.await.unwrap().is_admitted());
    }
    nodes.signal(2, "KILL");
    let (mut answered, mut failed) = (0, 0);
    for _ in 0..3 {
        let replies: Vec<_> = (0..60)
            .map(|n| store.engine.charge(&charge_of_key(&policy, n)))
            .collect();
        for reply in replies {
            match reply.await {
                Ok(_) => answered += 1,
                Err(_) => failed += 1,
            }
        }
    }
    assert!(answered >= 60 && failed >= 30, "{answered} {failed}");
    let opened = RedisStore::connect_cluster_with_prefix(&[&nodes.url(0)], "t:").await;
    assert_eq!(opened.unwrap_err().name(), "redis-unreachable");
}

#[tokio::test]
async fn a_slot_that_moves_to_a_node_that_has_forgotten_the_scripts_is_charged() {
    let nodes = Nodes::start();
    let store = open_cluster(&nodes, "t:").await.clock(&noon());
    let policy = Policy::daily(10).name("p").leases(false);
    for n in 0..60 {
        assert!(patiently(&store, &policy, n).await);
    }
    let slot_of = |n: u32| {
        let name = format!("t:p;calendar;day:{{{}}}", key(n).as_str());
        nodes.cli(0, &["CLUSTER", "KEYSLOT", &name])
    };
    let is_of_first = |n: &u32| slot_of(*n).parse::<u32>().unwrap() <= 5_460;
    let moving = (60..200).find(is_of_first).unwrap();
    let (from, to) = (nodes.id(0), nodes.id(1));
    nodes.cli(
        1,
        &["CLUSTER", "SETSLOT", &slot_of(moving), "IMPORTING", &from],
    );
    nodes.cli(
        0,
        &["CLUSTER", "SETSLOT", &slot_of(moving), "MIGRATING", &to],
    );
    nodes.cli(1, &["SCRIPT", "FLUSH"]);
    let charged = store.engine.charge(&charge_of_key(&policy, moving)).await;
    assert!(charged.unwrap().is_admitted());
}
