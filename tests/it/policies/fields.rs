//! `RateLimit`, `RateLimit-Policy` and `X-RateLimit-*` of several policies.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{Policy, ResetFormat};
use tower::Layer;

use super::{burst_and_quota, by_client};
use crate::fields::parsed;
use crate::support::{START, clock, from, hello, memory, send, sqlite, statuses};

#[tokio::test]
async fn an_allowed_answer_lists_every_policy_on_one_line_of_each_field() {
    let service = burst_and_quota(&memory(&clock())).layer(hello());
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.only("ratelimit-policy"),
        "\"burst\";q=2;w=10, \"quota\";q=3;w=60"
    );
    assert_eq!(
        answer.only("ratelimit"),
        "\"burst\";r=1;t=10, \"quota\";r=2;t=60"
    );
}

#[tokio::test]
async fn a_refusal_lists_every_policy_on_one_line_of_each_field() {
    let clock = clock();
    let service = burst_and_quota(&sqlite(&clock)).layer(hello());
    assert_eq!(statuses(&service, "alice", 2).await, [200, 200]);
    clock.advance(Duration::from_millis(2_500));
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.status, 429);
    assert_eq!(
        answer.only("ratelimit-policy"),
        "\"burst\";q=2;w=10, \"quota\";q=3;w=60"
    );
    assert_eq!(
        answer.only("ratelimit"),
        "\"burst\";r=0;t=8, \"quota\";r=1;t=58"
    );
}

#[tokio::test]
async fn the_order_is_the_declared_one_whatever_the_names_and_numbers() {
    let [a, b, c] = [(9, "a"), (1, "b"), (5, "c")].map(|(limit, name)| {
        let policy = Policy::fixed(limit, 60).name(name);
        let member = format!("\"{name}\";q={limit};w=60");
        (policy, member)
    });
    for order in [[&a, &b, &c], [&c, &a, &b], [&b, &c, &a]] {
        let policies = order.map(|(policy, _)| policy.clone());
        let expected = order.map(|(_, member)| member.clone()).join(", ");
        let service = by_client(policies, &memory(&clock())).layer(hello());
        for status in [200, 429] {
            let answer = send(&service, from("alice")).await;
            assert_eq!(answer.status, status);
            assert_eq!(answer.only("ratelimit-policy"), expected);
            let told = parsed(answer.only("ratelimit"));
            let names: Vec<_> = told.iter().map(|(name, _)| &**name).collect();
            assert_eq!(names, order.map(|(policy, _)| policy.as_name()));
        }
    }
}

#[tokio::test]
async fn the_x_fields_are_those_of_the_policy_with_the_fewest_left() {
    let clock = clock();
    let layer = burst_and_quota(&memory(&clock)).x_rate_limit(ResetFormat::DeltaSeconds);
    let service = layer.layer(hello());
    let first = send(&service, from("alice")).await;
    assert_eq!(first.x_fields(), ["2", "1", "10"]);
    clock.advance(Duration::from_secs(10));
    send(&service, from("alice")).await;
    clock.advance(Duration::from_secs(10));
    let third = send(&service, from("alice")).await;
    assert_eq!(
        third.only("ratelimit"),
        "\"burst\";r=1;t=10, \"quota\";r=0;t=40"
    );
    assert_eq!(third.x_fields(), ["3", "0", "40"]);
}

#[tokio::test]
async fn of_policies_with_as_many_left_the_x_fields_are_those_of_the_longest_wait() {
    let short = Policy::fixed(5, 60).name("short");
    let long = Policy::fixed(5, 900).name("long");
    for policies in [[short.clone(), long.clone()], [long, short]] {
        let layer = by_client(policies, &memory(&clock()));
        let layer = layer.x_rate_limit(ResetFormat::DeltaSeconds);
        let answer = send(&layer.layer(hello()), from("alice")).await;
        assert_eq!(answer.x_fields(), ["5", "4", "900"]);
    }
}

#[tokio::test]
async fn the_x_fields_of_a_refusal_are_those_of_the_policy_that_set_retry_after() {
    let clock = clock();
    let policies = [
        Policy::fixed(1, 60).name("short"),
        Policy::fixed(1, 900).name("long"),
        Policy::fixed(9, 3_600).name("open"),
    ];
    let layer = by_client(policies, &memory(&clock)).x_rate_limit(ResetFormat::EpochSeconds);
    let service = layer.layer(hello());
    send(&service, from("alice")).await;
    clock.advance(Duration::from_millis(1_234));
    let answer = send(&service, from("alice")).await;
    let end = (START.unix_millis() / 1_000 + 900).to_string();
    assert_eq!(answer.only("retry-after"), "899");
    assert_eq!(answer.x_fields(), ["1", "0", &*end]);
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let limit = prop_oneof![Just(0), Just(1), Just(u32::MAX), 0..9_u32];
    let window = prop_oneof![Just(1), Just(10 * 366 * 86_400_000), 1..9_000_000_u64];
    (0..7, limit, window).prop_map(|(algorithm, limit, window)| {
        let window = Duration::from_millis(window);
        match algorithm {
            0 => Policy::try_fixed(limit, window).unwrap(),
            1 => Policy::try_sliding(limit, window).unwrap(),
            2 => Policy::try_sliding_counter(limit, window).unwrap(),
            3 => Policy::try_token_bucket(limit, window).unwrap(),
            4 => Policy::hourly(limit),
            5 => Policy::daily(limit),
            _ => Policy::monthly(limit),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn an_independent_parser_reads_the_lists_of_any_policies(
        policies in prop::collection::vec(any_policy(), 1..12),
        name in "[A-Za-z][A-Za-z0-9_.:/*-]{0,61}",
        elapsed in 0..1_000_000_u64,
    ) {
        let named = policies.into_iter().enumerate();
        let policies: Vec<_> = named.map(|(i, policy)| policy.name(&format!("{name}{i}"))).collect();
        let clock = clock();
        clock.advance(Duration::from_millis(elapsed));
        let service = by_client(policies.clone(), &memory(&clock)).layer(hello());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for _ in 0..3 {
            let answer = runtime.block_on(send(&service, from("alice")));
            let expected: Vec<_> = policies.iter().map(|policy| {
                let seconds = i64::try_from(policy.window().as_millis().div_ceil(1_000)).unwrap();
                let params = [("q", i64::from(policy.limit())), ("w", seconds)];
                (policy.as_name().to_owned(), params.map(|(key, value)| (key.to_owned(), value)).to_vec())
            }).collect();
            prop_assert_eq!(parsed(answer.only("ratelimit-policy")), expected);
            let told = parsed(answer.only("ratelimit"));
            prop_assert_eq!(told.len(), policies.len());
            for ((name, params), policy) in told.iter().zip(&policies) {
                prop_assert_eq!(name, policy.as_name());
                let [(r, left), (t, seconds)] = &params[..] else { panic!("{told:?}") };
                prop_assert_eq!((r.as_str(), t.as_str()), ("r", "t"));
                prop_assert!((0..=i64::from(policy.limit())).contains(left));
                prop_assert!(*seconds >= 1);
            }
        }
    }
}
