//! Limits that are set at run time.

mod answers;
mod files;
mod setting;
mod sharing;
mod stale;

use tollgate::{Key, Limiter, Policy, Store};

/// A limiter of `limit` a minute, named `api`.
fn api(limit: u32, store: &impl Store) -> Limiter {
    Limiter::new(Policy::fixed(limit, 60).name("api")).store(store)
}

fn user(n: u32) -> Key {
    Key::new("user", n)
}

async fn is_allowed(limiter: &Limiter, key: &Key) -> bool {
    limiter.check(key).await.unwrap().is_allowed()
}
