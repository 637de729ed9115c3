//! Layers and limiters on a cluster of three nodes.

use std::panic::catch_unwind;

use tollgate::{Key, Limiter, Policy, PolicyError, RateLimitLayer, RedisStore, StoreError, key};

use super::nodes::Nodes;

async fn open(nodes: &Nodes) -> RedisStore {
    let urls = [nodes.url(0), nodes.url(1)];
    let urls = urls.each_ref().map(|url| &**url);
    RedisStore::connect_cluster(&urls).await.unwrap()
}

#[tokio::test]
async fn policies_with_keys_of_their_own_are_refused_when_a_layer_is_built() {
    let store = open(Nodes::shared()).await;
    let layer = RateLimitLayer::sliding(5, 60).name("address").store(&store);
    let account = || Policy::daily(10).name("account");
    let error = layer.clone().try_and(account(), key::header("x-api-key"));
    assert_eq!(error.unwrap_err(), PolicyError::KeysApart);
    let panic = catch_unwind(|| {
        let layer = RateLimitLayer::sliding(5, 60).name("address");
        layer.and(account(), key::header("x-api-key")).store(&store)
    });
    let message = *panic.unwrap_err().downcast::<String>().unwrap();
    assert!(message.ends_with("[keys-apart]"), "{message}");
    // With one key for all there is nothing to refuse.
    let _ = RateLimitLayer::new([Policy::sliding(5, 60), account()]).store(&store);
}

#[tokio::test]
async fn several_policies_are_charged_for_one_key_and_not_for_several() {
    let store = open(Nodes::shared()).await;
    let policies = [
        Policy::monthly(2).name("month"),
        Policy::sliding(9, 60).name("burst"),
    ];
    let limiter = Limiter::new(policies).store(&store);
    let [one, other] = ["a", "b"].map(|name| Key::new("user", name));
    let error = limiter.check(&[one.clone(), other]).await.unwrap_err();
    assert!(matches!(error, StoreError::KeysApart), "{error}");
    assert_eq!(error.name(), Some("keys-apart"));
    let checks = [(); 3].map(|()| limiter.check(&one));
    let mut allowed = 0;
    for check in checks {
        allowed += usize::from(check.await.unwrap().is_allowed());
    }
    assert_eq!(allowed, 2);
}
