//! Runtimes that stand still, end, or follow one another.

use std::sync::OnceLock;
use std::thread;

use tokio::runtime::{Builder, Runtime};
use tollgate::{Key, Limiter, Policy, RateLimitLayer, SqliteStore, key};
use tower::Layer;

use crate::support::{LONG, clock, get, hello, send, sqlite};

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_paused_clock_of_tokio_fails_no_charge() {
    let limiter = Limiter::new(Policy::fixed(200, LONG)).store(&sqlite(&clock()));
    let key = Key::constant("all");
    for charge in 1..=200 {
        let decision = limiter.check(&key).await.unwrap();
        assert_eq!((decision.is_allowed(), decision.used()), (true, charge));
    }
    assert!(limiter.check(&key).await.unwrap().is_denied());
}

#[tokio::test(start_paused = true)]
async fn a_paused_clock_of_tokio_fails_no_charge_of_the_one_liner() {
    let layer = RateLimitLayer::fixed(200, LONG).key(key::constant("all"));
    let service = layer.layer(hello());
    for _ in 0..200 {
        assert_eq!(send(&service, get("/")).await.status, 200);
    }
    assert_eq!(send(&service, get("/")).await.status, 429);
}

#[tokio::test(start_paused = true)]
async fn charges_made_at_once_under_a_paused_clock_are_all_answered() {
    let limiter = Limiter::new(Policy::fixed(100, LONG)).store(&sqlite(&clock()));
    let charges = (0..200).map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.check(&Key::constant("all")).await })
    });
    let mut allowed = 0;
    for charge in charges.collect::<Vec<_>>() {
        allowed += u32::from(charge.await.unwrap().unwrap().is_allowed());
    }
    assert_eq!(allowed, 100);
}

#[test]
fn the_one_liner_outlives_the_runtime_that_used_it_first() {
    let layer = RateLimitLayer::fixed(2, LONG).key(key::constant("all"));
    let mut statuses = Vec::new();
    for _ in 0..3 {
        // Each runtime is gone before the next one starts.
        let status = current_thread()
            .block_on(send(&layer.layer(hello()), get("/")))
            .status;
        statuses.push(status);
    }
    assert_eq!(statuses, [200, 200, 429]);
}

static STORE: OnceLock<SqliteStore> = OnceLock::new();

#[test]
fn a_static_store_serves_runtimes_one_after_the_other_and_at_once() {
    let store = STORE.get_or_init(|| sqlite(&clock()));
    let limiter = Limiter::new(Policy::fixed(10, 60).name("static")).store(store);
    let charge = |limiter: &Limiter| {
        let decision = current_thread().block_on(limiter.check(&Key::constant("all")));
        u32::from(decision.unwrap().is_allowed())
    };
    let mut allowed = charge(&limiter) + charge(&limiter);
    let others: Vec<_> = (0..20)
        .map(|_| {
            let limiter = limiter.clone();
            thread::spawn(move || charge(&limiter))
        })
        .collect();
    for other in others {
        allowed += other.join().unwrap();
    }
    assert_eq!(allowed, 10);
}

#[test]
fn a_charge_that_its_runtime_did_not_live_to_hear_leaves_the_store_usable() {
    let store = sqlite(&clock());
    let limiter = Limiter::new(Policy::fixed(100, 60)).store(&store);
    let key = Key::constant("all");
    for _ in 0..10 {
        let runtime = current_thread();
        let limiter = limiter.clone();
        runtime.spawn(async move { limiter.check(&Key::constant("all")).await });
        runtime.block_on(tokio::task::yield_now());
        drop(runtime);
    }
    let decision = current_thread().block_on(limiter.check(&key)).unwrap();
    assert!(decision.is_allowed());
    assert!((1..=11).contains(&decision.used()), "{}", decision.used());
}

#[test]
fn a_charge_needs_no_runtime_of_tokio_at_all() {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};

    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let limiter = Limiter::new(Policy::fixed(1, 60)).store(&sqlite(&clock()));
    let key = Key::constant("all");
    let mut charge = pin!(limiter.check(&key));
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let decision = loop {
        match charge.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(decision) => break decision.unwrap(),
            Poll::Pending => thread::park(),
        }
    };
    assert!(decision.is_allowed());
}
