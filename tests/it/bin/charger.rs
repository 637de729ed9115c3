//! A process that charges a key, for tests of several processes on one file.
//!
//! Arguments: the file, the policies, joined by commas and written as `policies.rs` reads them, the instant in milliseconds, the
//! tasks, the charges of each. A sixth argument, `process-lock`, turns that on.
//! It says `ready`, waits for a line, charges, and says `admitted` for each charge that was, when it has the answer.

mod charging;
mod policies;

use std::env;
use std::error::Error;
use std::io;
use std::time::Duration;

use tokio::task::yield_now;
use tollgate::{FailureMode, Key, Limiter, ManualClock, Policy, SqliteStore, Timestamp};

use self::charging::charge_when_told;
use self::policies::policy;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [path, policies, at, tasks, charges, options @ ..] = &arguments[..] else {
        return Err("give file, policies, instant, tasks, charges".into());
    };
    let clock = ManualClock::new(Timestamp::from_unix_millis(at.parse()?));
    let store = SqliteStore::open(path)
        .await?
        .clock(&clock)
        .deadline(Duration::from_secs(10))
        .process_lock(options.iter().any(|option| option == "process-lock"));
    let policies: Result<Vec<Policy>, _> = policies.split(',').map(policy).collect();
    // What this process decided alone would come on top of the limit that all share.
    let limiter = Limiter::try_new(policies?)?
        .store(&store)
        .on_store_failure(FailureMode::Closed);
    charge_when_told(&limiter, tasks.parse()?, charges.parse()?, charge).await?;
    store.close().await?;
    Ok(())
}

/// Charges once; a store that is busy with the other processes is asked again.
async fn charge(limiter: Limiter, key: Key) -> io::Result<bool> {
    loop {
        match limiter.check(&key).await {
            Ok(decision) => return Ok(decision.is_allowed()),
            Err(error) if error.is_transient() => yield_now().await,
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}
