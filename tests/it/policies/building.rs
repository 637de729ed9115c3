//! What can be built, and what is said when it can't.

use tollgate::{Key, Limiter, Policies, Policy, PolicyError, RateLimitLayer, key};
use tower::Layer;

use super::by_client;
use crate::support::{CLIENT, clock, from, hello, memory, send, statuses};

fn login(seconds: u64) -> Policy {
    Policy::fixed(5, seconds).name("login")
}

fn two() -> RateLimitLayer {
    RateLimitLayer::new([login(60), Policy::daily(9).name("daily")])
}

#[test]
#[should_panic(
    expected = "two policies of one rate limit are named login (case does not count): give each a name of its own with .name(\"…\")"
)]
fn two_policies_of_one_name_panic() {
    let _ = RateLimitLayer::new([login(60), login(900)]);
}

#[test]
#[should_panic(expected = "are named LogIn (case does not count): give each a name of its own")]
fn two_policies_whose_names_differ_by_case_panic() {
    let _ = RateLimitLayer::new([login(60), Policy::daily(9).name("LogIn")]);
}

#[test]
#[should_panic(expected = "are named daily (case does not count): give each a name of its own")]
fn one_more_policy_of_a_name_that_is_taken_panics() {
    let _ = two().and(Policy::monthly(9).name("daily"), key::peer_ip());
}

#[test]
#[should_panic(expected = "are named Daily (case does not count): give each a name of its own")]
fn one_more_policy_of_a_name_that_is_taken_but_for_its_case_panics() {
    let _ = two().and(Policy::monthly(9).name("Daily"), key::peer_ip());
}

#[test]
fn a_name_that_is_taken_is_an_error_of_the_fallible_constructors() {
    let taken = |name: &str| Some(PolicyError::DuplicateName(name.to_owned()));
    for name in ["login", "LOGIN"] {
        let second = Policy::daily(9).name(name);
        let pair = [login(60), second.clone()];
        assert_eq!(RateLimitLayer::try_new(pair.clone()).err(), taken(name));
        assert_eq!(Limiter::try_new(pair).err(), taken(name));
        let layer = RateLimitLayer::new(login(60));
        assert_eq!(layer.try_and(second, key::peer_ip()).err(), taken(name));
    }
}

#[test]
fn two_policies_without_a_name_and_of_the_same_numbers_are_an_error() {
    let pair = [Policy::sliding(5, 60), Policy::sliding(5, 60)];
    let error = RateLimitLayer::try_new(pair).unwrap_err();
    assert_eq!(
        error,
        PolicyError::DuplicateName("sliding-5-60s".to_owned())
    );
}

#[test]
#[should_panic(expected = "a rate limit without any policy: give at least one")]
fn a_layer_of_no_policy_panics() {
    let _ = RateLimitLayer::new([]);
}

#[test]
fn no_policy_is_an_error_of_the_fallible_constructors() {
    let none: Vec<Policy> = Vec::new();
    let error = RateLimitLayer::try_new(none.clone()).unwrap_err();
    assert_eq!(error, PolicyError::NoPolicy);
    assert_eq!(Limiter::try_new(none).unwrap_err(), PolicyError::NoPolicy);
    let error = RateLimitLayer::try_new(Policies::from(vec![])).unwrap_err();
    assert_eq!(error, PolicyError::NoPolicy);
}

#[test]
#[should_panic(expected = "this rate limit has several: set it on the policy instead")]
fn a_name_for_a_layer_of_several_policies_panics() {
    let _ = two().name("both");
}

#[test]
#[should_panic(expected = "this rate limit has several: set it on the policy instead")]
fn a_burst_for_a_layer_of_several_policies_panics() {
    let bucket = Policy::token_bucket(1, 1).name("bucket");
    let _ = RateLimitLayer::new([bucket, login(60)]).burst(9);
}

#[test]
#[should_panic(expected = "this rate limit has several: set it on the policy instead")]
fn a_name_after_one_more_policy_panics() {
    let layer = RateLimitLayer::sliding(5, 60);
    let _ = layer.and(Policy::daily(9), key::peer_ip()).name("first");
}

#[test]
#[should_panic(expected = "this rate limit has several: set it on the policy instead")]
fn a_name_for_a_limiter_of_several_policies_panics() {
    let _ = Limiter::new([login(60), Policy::daily(9)]).name("both");
}

#[test]
#[should_panic(expected = "begin with token_bucket(rate, seconds)")]
fn a_burst_for_a_layer_without_a_bucket_panics() {
    let _ = RateLimitLayer::sliding(5, 60).burst(9);
}

#[test]
fn messages_are_lower_case_without_a_full_stop_and_say_what_to_do() {
    for error in [
        PolicyError::NoPolicy,
        PolicyError::SeveralPolicies,
        PolicyError::BurstTooLarge,
        PolicyError::BurstWithoutBucket,
        PolicyError::DuplicateName("login".to_owned()),
    ] {
        let message = error.to_string();
        let first = message.chars().next().unwrap();
        assert!(first.is_lowercase() && !message.ends_with('.'), "{message}");
        let advice = ["give ", "set ", "begin "];
        let is_told = advice.iter().any(|word| message.contains(word));
        assert!(is_told, "{message}");
    }
}

#[test]
fn a_list_of_one_policy_can_be_named_like_one() {
    let layer = RateLimitLayer::new([Policy::sliding(5, 60)]).name("only");
    assert_eq!(layer.limiter().policy().as_name(), "only");
}

#[test]
fn policies_come_as_an_array_a_vector_or_collected() {
    let names = |policies: Policies| {
        let limiter = Limiter::new(policies);
        let names: Vec<_> = limiter.policies().map(Policy::to_string).collect();
        names
    };
    let array = || [login(60), Policy::daily(9)];
    let expected = [
        "login: 5 per 60 s, fixed window",
        "daily-9: 9 per calendar day, UTC",
    ];
    assert_eq!(names(array().into()), expected);
    assert_eq!(names(array().to_vec().into()), expected);
    assert_eq!(names(array().into_iter().collect()), expected);
    assert_eq!(names(login(60).into()), expected[..1]);
}

#[tokio::test]
async fn the_order_of_settings_does_not_matter() {
    let store = memory(&clock());
    let (first, second) = (login(60), Policy::daily(1).name("daily"));
    let (account, client) = (key::header("x-account"), key::header(CLIENT));
    let base = RateLimitLayer::new(first);
    for layer in [
        base.clone()
            .and(second.clone(), account.clone())
            .key(client.clone())
            .store(&store),
        base.clone()
            .store(&store)
            .key(client.clone())
            .and(second.clone(), account.clone()),
        base.key(client).and(second, account).store(&store),
    ] {
        let keys = [Key::header(CLIENT, "alice"), Key::header("x-account", "a")];
        layer.limiter().reset(&keys).await.unwrap();
        let service = layer.layer(hello());
        for status in [200, 429] {
            let mut request = from("alice");
            request
                .headers_mut()
                .insert("x-account", "a".parse().unwrap());
            let answer = send(&service, request).await;
            assert_eq!(answer.status, status);
            assert_eq!(
                answer.only("ratelimit-policy"),
                "\"login\";q=5;w=60, \"daily\";q=1;w=86400"
            );
        }
    }
}

#[tokio::test]
async fn twenty_policies_are_no_problem() {
    let policies = (1..=20).map(|limit| Policy::sliding(limit, 60));
    let layer = by_client(policies.collect::<Policies>(), &memory(&clock()));
    assert_eq!(
        statuses(&layer.layer(hello()), "alice", 2).await,
        [200, 429]
    );
}

#[test]
fn debug_of_a_layer_shows_every_policy_and_every_source_of_keys() {
    let layer = two().and(Policy::monthly(9).name("account"), key::header("x-account"));
    let debug = format!("{layer:?}");
    for told in ["login", "daily", "account", "peer ip", "header x-account"] {
        assert!(debug.contains(told), "{told} in {debug}");
    }
}
