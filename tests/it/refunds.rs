//! Units that go back: to the counters that they were taken from, and to no others.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tollgate::{
    Decision, Decisions, FailureMode, Key, Limiter, ManualClock, Policy, RateLimitLayer,
    SqliteStore, Store, StoreError, Verdict, key,
};
use tower::{Layer, ServiceBuilder};

use crate::support::{
    Answer, CLIENT, LONG, clock, from, hello, login, login_in_memory, memory, send, sqlite,
};

fn alice() -> Key {
    Key::header(CLIENT, "alice")
}

fn plain(policy: Policy, store: &(impl Store + ?Sized)) -> Limiter {
    Limiter::new(policy.name("p")).store(store)
}

/// A store on the file, for which a busy machine is never late.
async fn open(path: &Path, clock: &ManualClock) -> SqliteStore {
    let store = SqliteStore::open(path).await.unwrap();
    store.deadline(Duration::from_mins(1)).clock(clock)
}

async fn used(limiter: &Limiter) -> Vec<u64> {
    let looked = limiter.peek(alice()).await.unwrap();
    looked.verdicts().map(Verdict::used).collect()
}

/// Charges a unit so often, and returns the decisions.
async fn charged(limiter: &Limiter, times: usize) -> Vec<Decision> {
    let mut decisions = Vec::new();
    for _ in 0..times {
        let decision = limiter.check(alice()).await.unwrap();
        assert!(decision.is_allowed());
        decisions.push(decision);
    }
    decisions
}

/// How many more units pass.
async fn passes(limiter: &Limiter) -> u32 {
    let mut admitted = 0;
    while limiter.check(alice()).await.unwrap().is_allowed() {
        admitted += 1;
    }
    admitted
}

fn is_foreign(answer: &Result<(), StoreError>) -> bool {
    matches!(answer, Err(StoreError::ForeignDecision))
}

fn nth(answer: &Answer, place: usize) -> &Decision {
    let decisions: &Decisions = answer.extensions.get().unwrap();
    decisions.iter().nth(place).unwrap()
}

#[tokio::test]
async fn the_limiter_of_several_plans_gives_back_to_the_plan_that_was_charged() {
    let free = Policy::fixed(10, 60).name("free");
    let pro = Policy::fixed(100, 60).name("pro");
    let layer = RateLimitLayer::one_of([free, pro], |parts| {
        if parts.headers.contains_key("x-pro") {
            "pro"
        } else {
            "free"
        }
    });
    let layer = layer.key(key::header(CLIENT)).store(&memory(&clock()));
    let service = layer.layer(hello());
    for _ in 0..3 {
        send(&service, from("alice")).await;
    }
    let mut request = from("alice");
    request
        .headers_mut()
        .insert("x-pro", "yes".parse().unwrap());
    let answer = send(&service, request).await;
    let limiter = layer.limiter();
    assert_eq!(used(&limiter).await, [3, 1]);
    limiter.refund(nth(&answer, 0)).await.unwrap();
    assert_eq!(used(&limiter).await, [3, 0]);
}

#[tokio::test]
async fn a_decision_that_was_held_in_part_gives_back_only_what_it_has_charged_itself() {
    for limit_inside in [10, 9] {
        let store = memory(&clock());
        let of = |policies: Vec<Policy>| {
            let layer = RateLimitLayer::new(policies).key(key::header(CLIENT));
            layer.store(&store)
        };
        let shared = |limit| Policy::fixed(limit, 60).name("shared");
        let outer = of(vec![shared(10)]);
        let inner = of(vec![
            shared(limit_inside),
            Policy::fixed(20, 60).name("own"),
        ]);
        let service = ServiceBuilder::new()
            .layer(outer.clone())
            .layer(inner.clone())
            .service(hello());
        let answer = send(&service, from("alice")).await;
        let limiter = inner.limiter();
        assert_eq!(used(&limiter).await, [1, 1]);
        limiter.refund(nth(&answer, 1)).await.unwrap();
        assert_eq!(used(&limiter).await, [1, 0]);
        outer.limiter().refund(nth(&answer, 0)).await.unwrap();
        assert_eq!(used(&limiter).await, [0, 0]);
    }
}

#[tokio::test]
async fn a_decision_about_counters_of_another_store_is_refused_and_changes_nothing() {
    let [one, other] = [(); 2].map(|()| plain(Policy::fixed(10, 60), &memory(&clock())));
    charged(&one, 1).await;
    let decision = other.check_n(alice(), 5).await.unwrap();
    let refused = one.refund(&decision).await;
    assert!(is_foreign(&refused), "{refused:?}");
    assert_eq!((used(&one).await, used(&other).await), (vec![1], vec![5]));
}

#[tokio::test]
async fn limiters_without_a_store_of_their_own_are_foreign_to_each_other_and_their_clones_are_not()
{
    let [one, other] = [(); 2].map(|()| Limiter::new(Policy::fixed(10, LONG).name("p")));
    let user = Key::new("user", "shared store");
    let decision = one.check_n(&user, 5).await.unwrap();
    let refused = other.refund(&decision).await;
    assert!(is_foreign(&refused), "{refused:?}");
    one.clone().refund(&decision).await.unwrap();
    assert_eq!(one.peek(&user).await.unwrap().used(), 0);
}

#[tokio::test]
async fn another_limiter_on_the_same_store_may_give_a_decision_back() {
    for store in [
        Box::new(memory(&clock())) as Box<dyn Store>,
        Box::new(sqlite(&clock())),
    ] {
        let one = plain(Policy::fixed(10, 60), &*store);
        let other = Limiter::new(Policy::sliding(3, 60).name("other")).store(&*store);
        let decision = one.check_n(alice(), 5).await.unwrap();
        charged(&other, 1).await;
        other.refund(&decision).await.unwrap();
        assert_eq!((used(&one).await, used(&other).await), (vec![0], vec![1]));
    }
}

#[tokio::test]
async fn what_a_shadow_has_counted_goes_back_to_the_shadow_alone() {
    let store = memory(&clock());
    let layer = login(10, 60, &store);
    let (real, shadow) = (layer.limiter(), layer.clone().shadow(true));
    charged(&real, 1).await;
    let answer = send(&shadow.layer(hello()), from("alice")).await;
    let decisions: &Decisions = answer.extensions.get().unwrap();
    let decision = decisions.shadows().next().unwrap();
    let refused = real.refund(decision).await;
    assert!(is_foreign(&refused), "{refused:?}");
    assert_eq!(used(&real).await, [1]);
    shadow.limiter().refund(decision).await.unwrap();
    assert_eq!(used(&shadow.limiter()).await, [0]);
    assert_eq!(used(&real).await, [1]);
}

#[tokio::test]
async fn decisions_that_have_charged_nothing_give_nothing_back() {
    for store in [
        Box::new(memory(&clock())) as Box<dyn Store>,
        Box::new(sqlite(&clock())),
    ] {
        let limiter = plain(Policy::fixed(2, 60), &*store);
        charged(&limiter, 2).await;
        let looked = limiter.peek(alice()).await.unwrap();
        let denied = limiter.check(alice()).await.unwrap();
        assert!(denied.is_denied());
        let of_nothing = limiter.check_n(alice(), 0).await.unwrap();
        for decision in [looked, denied, of_nothing] {
            limiter.refund(&decision).await.unwrap();
            assert_eq!(used(&limiter).await, [2], "{decision:?}");
        }
    }
}

#[tokio::test]
async fn a_look_that_would_have_been_allowed_gives_nothing_back() {
    let limiter = plain(Policy::sliding(9, 60), &sqlite(&clock()));
    charged(&limiter, 2).await;
    let looked = limiter.peek(alice()).await.unwrap();
    assert!(looked.is_allowed());
    limiter.refund(&looked).await.unwrap();
    assert_eq!(used(&limiter).await, [2]);
}

#[tokio::test]
async fn what_passed_uncounted_gives_nothing_back() {
    let store = sqlite(&clock());
    store.close().await.unwrap();
    let local = plain(Policy::fixed(2, 60), &store);
    charged(&local, 2).await;
    let open = local.clone().on_store_failure(FailureMode::Open);
    let uncounted = open.check(alice()).await.unwrap();
    assert!(uncounted.is_uncounted());
    open.refund(&uncounted).await.unwrap();
    assert!(local.check(alice()).await.unwrap().is_denied());
}

#[tokio::test]
async fn what_was_counted_in_memory_during_an_outage_goes_back_there() {
    let store = sqlite(&clock());
    store.close().await.unwrap();
    let limiter = plain(Policy::fixed(3, 60), &store);
    let decisions = charged(&limiter, 3).await;
    assert!(decisions[0].is_degraded());
    assert_eq!(passes(&limiter).await, 0);
    limiter.refund(&decisions[0]).await.unwrap();
    assert_eq!(passes(&limiter).await, 1);
}

/// Deletes the database with all that is beside it.
fn delete(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let _ = fs::remove_file(name);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn what_was_taken_from_a_file_that_is_lost_never_goes_back_to_the_new_one() {
    for leases in [true, false] {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("limits.db");
        let clock = clock();
        let store = open(&path, &clock).await;
        let limiter = plain(Policy::fixed(30, 3_600).leases(leases), &store);
        let mut of_old = charged(&limiter, 20).await;
        delete(&path);
        // The store looks at its file once a second. Another sweep, and it has told of the loss.
        while !path.exists() {
            limiter.sweep().await.unwrap();
        }
        limiter.sweep().await.unwrap();
        assert_eq!(passes(&limiter).await, 30, "the new file is empty");
        for old in of_old.drain(..10) {
            limiter.refund(&old).await.unwrap();
        }
        assert_eq!(passes(&limiter).await, 0, "at once, leases: {leases}");
        clock.advance(Duration::from_mins(30));
        for old in &of_old {
            limiter.refund(old).await.unwrap();
        }
        assert_eq!(passes(&limiter).await, 0, "long after, leases: {leases}");
        assert_eq!(used(&limiter).await, [30]);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn what_was_taken_from_the_new_file_goes_back_to_it() {
    for leases in [true, false] {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("limits.db");
        let clock = clock();
        let store = open(&path, &clock).await;
        let limiter = plain(Policy::fixed(30, 3_600).leases(leases), &store);
        charged(&limiter, 20).await;
        delete(&path);
        while !path.exists() {
            limiter.sweep().await.unwrap();
        }
        limiter.sweep().await.unwrap();
        clock.advance(Duration::from_secs(1));
        let of_new = charged(&limiter, 30).await;
        limiter.refund(&of_new[0]).await.unwrap();
        assert_eq!(passes(&limiter).await, 1, "leases: {leases}");
    }
}

#[tokio::test]
async fn nothing_goes_back_to_a_key_that_another_store_has_reset() {
    for leases in [true, false] {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("limits.db");
        let clock = clock();
        let stores = [open(&path, &clock).await, open(&path, &clock).await];
        let [one, other] =
            stores.map(|store| plain(Policy::fixed(100, 3_600).leases(leases), &store));
        let mut decisions = Vec::new();
        for _ in 0..60 {
            clock.advance(Duration::from_millis(10));
            decisions.extend(charged(&one, 1).await);
        }
        // What is leased and idle goes back, and the lease is still known. The first sweep waits
        // for a refill under way, which would be new at the second.
        one.sweep().await.unwrap();
        clock.advance(Duration::from_secs(3));
        one.sweep().await.unwrap();
        other.reset(alice()).await.unwrap();
        charged(&other, 70).await;
        for decision in &decisions {
            one.refund(decision).await.unwrap();
        }
        let mut admitted = 70;
        for limiter in [&other, &one, &other] {
            admitted += passes(limiter).await;
        }
        assert_eq!(admitted, 100, "leases: {leases}");
    }
}

/// A store may come to lie where another one has been.
#[tokio::test]
async fn a_decision_that_outlives_its_store_takes_nothing_from_another_one() {
    for _ in 0..50 {
        let one = plain(Policy::fixed(10, 60), &memory(&clock()));
        let decision = charged(&one, 1).await.remove(0);
        drop(one);
        let other = plain(Policy::fixed(10, 60), &memory(&clock()));
        charged(&other, 1).await;
        assert!(is_foreign(&other.refund(&decision).await));
        assert_eq!(passes(&other).await, 9);
    }
}

#[tokio::test]
async fn what_a_lease_tells_as_used_is_without_what_went_back() {
    let limiter = plain(Policy::fixed(10_000, 3_600), &sqlite(&clock()));
    let decisions = charged(&limiter, 300).await;
    for (before, decision) in (100..200).zip(&decisions) {
        limiter.refund(decision).await.unwrap();
        let told = limiter.check(alice()).await.unwrap();
        assert_eq!(told.used(), 300, "after {before}");
    }
    for decision in &decisions[100..] {
        limiter.refund(decision).await.unwrap();
    }
    assert_eq!(used(&limiter).await, [100]);
    assert_eq!(limiter.check(alice()).await.unwrap().used(), 101);
}

#[tokio::test]
async fn the_fields_of_a_layer_are_without_what_went_back() {
    let layer = login_in_memory(10, 60);
    let service = layer.layer(hello());
    let first = send(&service, from("alice")).await;
    send(&service, from("alice")).await;
    layer.limiter().refund(nth(&first, 0)).await.unwrap();
    let third = send(&service, from("alice")).await;
    assert_eq!(third.only("ratelimit"), "\"login\";r=8;t=60");
}

/// Units that are held now, and the most that were at once.
#[derive(Default)]
struct Held {
    now: AtomicU64,
    most: AtomicU64,
}

impl Held {
    fn take(&self, units: u64) {
        let now = units + self.now.fetch_add(units, Ordering::SeqCst);
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    fn give_back(&self, units: u64) {
        self.now.fetch_sub(units, Ordering::SeqCst);
    }
}

/// Charges and refunds in turns that differ from task to task. What is refunded counts as free from before it is sent.
async fn charge_and_refund(limiter: Limiter, held: Arc<Held>, seed: u32) {
    let mut mine: Vec<Decision> = Vec::new();
    let mut random = seed.wrapping_mul(2_654_435_761);
    for _ in 0..60 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if mine.is_empty() || (random >> 16).is_multiple_of(2) {
            let cost = 1 + (random >> 20) % 3;
            let decision = limiter.check_n(alice(), cost).await.unwrap();
            assert!(!decision.is_degraded());
            if decision.is_allowed() {
                held.take(u64::from(cost));
                mine.push(decision);
            } else {
                tokio::task::yield_now().await;
            }
        } else {
            let index = (random >> 8) as usize % mine.len();
            let decision = mine.swap_remove(index);
            held.give_back(u64::from(decision.cost()));
            limiter.refund(&decision).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_admitted_and_not_refunded_is_never_more_than_the_limit() {
    for policy in [
        Policy::fixed(40, LONG),
        Policy::fixed(40, LONG).leases(false),
        Policy::sliding(40, LONG),
        Policy::sliding_counter(40, LONG),
        Policy::token_bucket(40, LONG),
    ] {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("limits.db");
        let mut limiters = Vec::new();
        for _ in 0..2 {
            let store = SqliteStore::open(&path).await.unwrap();
            let store = store.deadline(Duration::from_mins(1));
            let limiter = plain(policy.clone(), &store);
            limiters.push(limiter.on_store_failure(FailureMode::Closed));
        }
        let held = Arc::new(Held::default());
        let tasks: Vec<_> = (0..16_u32)
            .map(|n| {
                let limiter = limiters[n as usize % 2].clone();
                tokio::spawn(charge_and_refund(limiter, Arc::clone(&held), n))
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let most = held.most.load(Ordering::SeqCst);
        assert!((30..=40).contains(&most), "{policy}: {most}");
    }
}
