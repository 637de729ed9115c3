//! A network that holds answers back.

use super::*;
use crate::store::networks::Held;

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_too_late_is_nobodys() {
    let server = RedisServer::start("");
    let network = Network::before(place_of(&server)).await;
    let store = RedisStore::connect(&url_of(&network)).await.unwrap();
    let store = store.deadline(Duration::from_millis(50));
    let [one, other] = ["one", "other"].map(|name| Policy::daily(100).name(name).leases(false));
    let (mut admitted, mut errors) = (0, 0);
    for round in 0..3 {
        // What a busy machine makes late is no matter here.
        admitted += u64::from(charge_patiently(&store, &one).await.0.is_admitted());
        network.hold(Held::Answers);
        let error = charge(&store, &one, 1).await.unwrap_err();
        assert!(matches!(error, StoreError::DeadlineExceeded), "{error:?}");
        errors += 1;
        if round == 1 {
            // Until the call is given up, and the connection with it.
            while !matches!(
                charge(&store, &other, 1).await,
                Err(StoreError::BreakerOpen)
            ) {
                tokio::task::yield_now().await;
            }
        }
        network.hold(Held::Nothing);
        let (outcome, failed) = charge_patiently(&store, &other).await;
        let used = outcome.found.first().state.used(&other, outcome.at);
        // Each is told of its own counter.
        assert!(outcome.is_admitted() && used > round && used <= 100);
        errors += failed as u64;
    }
    let store = store.deadline(PATIENCE);
    let used = used(&store, &one).await;
    assert!(
        (admitted..=admitted + errors + 300).contains(&used),
        "{used}"
    );
    assert!(used <= 100);
}
