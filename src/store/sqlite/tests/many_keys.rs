//! More keys than are remembered: the memory stays inside its bound, and nothing is lost of what goes.

use tokio::task::JoinSet;

use super::*;

const REMEMBERED: usize = 256;
const TASKS: u64 = 32;
const CHARGES: u64 = 200;

/// Some keys come all the time, and most once.
fn skewed(random: &mut fastrand::Rng) -> u64 {
    let bits = random.u32(0..14);
    random.u64(0..1 << bits)
}

async fn load(store: &SqliteStore, policy: &Policy, seed: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut admitted = 0;
    for _ in 0..CHARGES {
        let key = Key::new("user", skewed(&mut random));
        let outcome = store.engine.charge(&charge_of(&[(policy, &key)], 1)).await;
        admitted += u64::from(outcome.unwrap().is_admitted());
        assert!(store.engine.keys_in_memory() <= 2 * REMEMBERED);
    }
    admitted
}

async fn admitted(store: &SqliteStore, policy: &Policy) -> u64 {
    let mut tasks = JoinSet::new();
    for seed in 0..TASKS {
        let (store, policy) = (store.clone(), policy.clone());
        tasks.spawn(async move { load(&store, &policy, seed).await });
    }
    tasks.join_all().await.into_iter().sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_keys_stays_inside_the_bound_and_what_was_admitted_is_what_is_stored() {
    let (_folder, path) = folder();
    let store = open(&path).await.max_keys_in_memory(REMEMBERED);
    let (large, small) = (
        Policy::fixed(1_000_000, 60).name("large"),
        Policy::fixed(20, 60).name("small"),
    );
    let expected = [
        admitted(&store, &large).await,
        admitted(&store, &small).await,
    ];
    assert_eq!(expected[0], TASKS * CHARGES);
    store.close().await.unwrap();
    let query = "SELECT sum(used), max(used), sum(used + denied) FROM rate_limit_windows GROUP BY policy ORDER BY policy";
    let stored = rows(&path, query).await;
    let used: Vec<i64> = stored.iter().map(|row| row.get(0)).collect();
    assert_eq!(used, expected.map(|units| i64::try_from(units).unwrap()));
    assert_eq!(stored[1].get::<i64, _>(1), 20);
}
