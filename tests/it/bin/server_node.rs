//! A process that charges a key on a server, for tests of several nodes on one.
//!
//! Arguments: the URL, the policies, joined by commas and written as `policies.rs` reads them, by how many milliseconds the clock of
//! this machine is off, by how many that of the server, the tasks, the charges of each. `unleased` behind
//! them turns leases off, and `impatient` gives a charge 250 ms.
//! It says `ready`, waits for a line, charges, and says `admitted` for each charge that was, when it has the answer, and `failed` for
//! one whose fate is not known.

mod charging;
mod counters;
mod policies;

use std::env;
use std::error::Error;
use std::io;
use std::time::Duration;

use tokio::task::yield_now;
use tollgate::{Key, Limiter, Policy, StoreError};

use self::charging::{charge_when_told, say};
use self::counters::{Counters, Setting};
use self::policies::policy;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, policies, own, servers, tasks, charges, options @ ..] = &arguments[..] else {
        return Err("give URL, policies, two offsets, tasks, charges".into());
    };
    tollgate::skew_system_clock(own.parse()?);
    let has = |word: &str| options.iter().any(|option| option == word);
    let deadline = if has("impatient") { 250 } else { 5_000 };
    let setting = Setting {
        deadline: Duration::from_millis(deadline),
        clock: None,
        server_is_ahead: servers.parse()?,
    };
    let store = Counters::open(url, setting).await?;
    let is_leased = !has("unleased");
    let policies: Result<Vec<Policy>, _> = policies.split(',').map(policy).collect();
    let policies = policies?.into_iter().map(|policy| policy.leases(is_leased));
    let limiter = store.limit(Limiter::try_new(policies.collect::<Vec<_>>())?);
    charge_when_told(&limiter, tasks.parse()?, charges.parse()?, charge).await?;
    // A server that is gone takes nothing back.
    let _ = store.close().await;
    Ok(())
}

/// Charges once; what was certainly not done is asked again.
async fn charge(limiter: Limiter, key: Key) -> io::Result<bool> {
    loop {
        match limiter.check(&key).await {
            Ok(decision) => return Ok(decision.is_allowed()),
            Err(StoreError::BreakerOpen) => yield_now().await,
            Err(_) => say("failed")?,
        }
    }
}
