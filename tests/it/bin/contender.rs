//! A process that asks for many keys until each is refused, for tests of several processes on one file which may be killed at
//! any moment.
//!
//! Arguments: the file, or the URL of a Postgres or Redis; `set` or `system` for the clock; how many keys; how many of 10,000 charges are resets, refunds, new
//! limits, larger costs and steps of the clock, how far these go, and how many are the last of a task, joined by commas; and
//! limiters, each of one or several policies joined by commas, as `policies.rs` reads them.
//! It says `ready`, and obeys lines: `round` with a seed and, by a set clock, an instant in milliseconds; `close`. It says what
//! it was told before it goes on, so that what it says is known however it ends. It says `late` when units may be counted that it
//! was not told of: an answer came too late, or what it had charged ahead could not be given back.

mod counters;
mod policies;

use std::env;
use std::error::Error;
use std::fmt::Debug;
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::task::yield_now;
use tollgate::{Decision, Key, Limiter, ManualClock, Policy, StoreError, Timestamp, Verdict};
use tracing::field::Field;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, registry};

use self::counters::{Counters, Setting};
use self::policies::policy;

const TASKS: u64 = 4;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [path, clock, keys, rates, limiters @ ..] = &arguments[..] else {
        return Err("give file, clock, keys, rates, limiters".into());
    };
    registry().with(Lost).init();
    let set_clock = ManualClock::new(Timestamp::from_unix_millis(0));
    let setting = Setting {
        deadline: Duration::from_secs(10),
        clock: (clock == "set").then_some(&set_clock),
        server_is_ahead: 0,
    };
    let store = Counters::open(path, setting).await?;
    let limiters: Result<Vec<Limiter>> = limiters
        .iter()
        .enumerate()
        .map(|(place, policies)| limiter(place, policies, &store))
        .collect();
    let contender = Arc::new(Contender {
        clock: set_clock.clone(),
        limiters: limiters?,
        keys: keys.parse()?,
        rates: Rates::of(rates)?,
    });
    say("ready")?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<_> = line.split(' ').collect();
        let seed: u64 = match words[..] {
            ["round", seed, at] => {
                set_clock.set(Timestamp::from_unix_millis(at.parse()?));
                seed.parse()?
            }
            ["round", seed] => seed.parse()?,
            _ => break,
        };
        let at = set_clock.now();
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let contender = Arc::clone(&contender);
                tokio::spawn(contender.contend(seed.wrapping_add(task), at))
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        say("done")?;
    }
    or_transient(store.close().await)?;
    say("closed")?;
    Ok(())
}

/// A limiter whose policies have names of their own.
fn limiter(place: usize, policies: &str, store: &Counters) -> Result<Limiter> {
    let policies: Result<Vec<Policy>, _> = policies.split(',').map(policy).collect();
    let policies = policies?.into_iter().enumerate();
    let named = policies.map(|(own, policy)| policy.name(&format!("p{place}-{own}")));
    let limiter = Limiter::try_new(named.collect::<Vec<_>>())?;
    Ok(store.limit(limiter))
}

/// How many of 10,000 charges are, or are followed by, something else.
#[derive(Clone, Copy)]
struct Rates {
    resets: u32,
    refunds: u32,
    limits: u32,
    large: u32,
    steps: u32,
    /// How far a clock steps back, in milliseconds: to the beginning of its second at most when it is 0.
    reach: u32,
    leaves: u32,
}

impl Rates {
    fn of(text: &str) -> Result<Self> {
        let numbers: Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
        let [resets, refunds, limits, large, steps, reach, leaves] = numbers?[..] else {
            return Err("give seven rates".into());
        };
        Ok(Self {
            resets,
            refunds,
            limits,
            large,
            steps,
            reach,
            leaves,
        })
    }
}

struct Contender {
    clock: ManualClock,
    limiters: Vec<Limiter>,
    keys: usize,
    rates: Rates,
}

impl Contender {
    /// Asks for units of all keys, in an order of chance, until each was refused one or it has enough.
    async fn contend(self: Arc<Self>, seed: u64, at: Timestamp) -> Result<()> {
        let mut rng = Rng::with_seed(seed);
        let keys = 0..self.limiters.len() * self.keys;
        let mut open: Vec<_> = keys.collect();
        while !open.is_empty() {
            let place = rng.usize(..open.len());
            let (limiter, key) = (open[place] / self.keys, open[place] % self.keys);
            self.meddle(&mut rng, limiter, key).await?;
            if rng.u32(..10_000) < self.rates.steps {
                self.step(&mut rng, at.unix_millis());
            }
            let is_large = rng.u32(..10_000) < self.rates.large;
            let cost = if is_large { rng.u32(2..=5) } else { 1 };
            let decision = self.charge(limiter, key, cost).await?;
            let told = told(limiter, key, &decision)?;
            if decision.is_allowed() {
                say(&format!("admitted {told}"))?;
                if rng.u32(..10_000) < self.rates.refunds {
                    say(&format!("refunding {told}"))?;
                    // What the store can't take now it takes later.
                    let refunded = self.limiters[limiter].refund(&decision).await;
                    or_transient(refunded)?;
                }
            } else if cost == 1 {
                say(&format!("refused {told}"))?;
                open.swap_remove(place);
            }
            if rng.u32(..10_000) < self.rates.leaves {
                break;
            }
        }
        Ok(())
    }

    /// Sets the clock back, or forth again.
    fn step(&self, rng: &mut Rng, at: i64) {
        let reach = match i64::from(self.rates.reach) {
            0 => at.rem_euclid(1_000),
            reach => reach,
        };
        let back = if rng.bool() { rng.i64(0..=reach) } else { 0 };
        self.clock.set(Timestamp::from_unix_millis(at - back));
    }

    /// Charges; a store that is busy with the other processes is asked again.
    async fn charge(&self, limiter: usize, key: usize, cost: u32) -> Result<Decision> {
        let limiter = &self.limiters[limiter];
        loop {
            match limiter.check_n(&user(key), cost).await {
                Ok(decision) => return Ok(decision),
                error => or_transient(error)?,
            }
            yield_now().await;
        }
    }

    /// Resets a key, or changes its limit, now and then.
    async fn meddle(&self, rng: &mut Rng, limiter: usize, key: usize) -> Result<()> {
        let (limiter, user) = (&self.limiters[limiter], user(key));
        if rng.u32(..10_000) < self.rates.resets {
            say("resetting")?;
            or_transient(limiter.reset(&user).await)?;
        }
        if rng.u32(..10_000) < self.rates.limits {
            let policy = limiter.policy();
            let (name, limit) = (policy.as_name(), policy.limit());
            say("limiting")?;
            let changed = match rng.u32(..4) {
                0 => limiter.remove_limit(name, &user).await.map(drop),
                1 => limiter.set_limit(name, &user, limit / 2).await,
                2 => limiter.set_limit(name, &user, limit * 2).await,
                _ => limiter.set_limit(name, &user, rng.u32(..limit * 2)).await,
            };
            or_transient(changed)?;
        }
        Ok(())
    }
}

fn user(key: usize) -> Key {
    Key::new("user", key)
}

fn or_transient<T>(answer: Result<T, StoreError>) -> Result<()> {
    match answer {
        Err(StoreError::DeadlineExceeded) => Ok(say("late")?),
        Err(error) if !error.is_transient() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Hears the log tell of units that stay counted though nobody uses them.
struct Lost;

impl<S: Subscriber> Layer<S> for Lost {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut is_lost = event.metadata().name() == "tollgate.refunds_lost";
        event.record(&mut |_: &Field, value: &dyn Debug| {
            is_lost |= format!("{value:?}").contains("could not be given back");
        });
        if is_lost {
            // Who hears nobody any more has ended the contest.
            let _ = say("late");
        }
    }
}

/// A decision as a line: the place of its limiter, the key, the instant, the cost, and of each policy the limit and the epochs.
fn told(limiter: usize, key: usize, decision: &Decision) -> Result<String> {
    let (at, cost) = (decision.decided_at().unix_millis(), decision.cost());
    let verdicts = decision.verdicts().map(|verdict| {
        let [before, current] = epochs(verdict)?;
        Ok(format!("{}:{before}:{current}", verdict.policy().limit()))
    });
    let verdicts: Result<Vec<_>> = verdicts.collect();
    Ok(format!(
        "{limiter} {key} {at} {cost} {}",
        verdicts?.join(" ")
    ))
}

/// How often the window before was reset, of those policies that look at it, and the current one. Only [`std::fmt::Debug`] tells.
fn epochs(verdict: &Verdict) -> Result<[u64; 2]> {
    let text = format!("{verdict:?}");
    let number = |rest: &str| {
        let end = rest.find(|char: char| !char.is_ascii_digit());
        rest[..end.unwrap_or(rest.len())].parse()
    };
    let found: Result<Vec<u64>, _> = text.split("epoch: ").skip(1).map(number).collect();
    match found?[..] {
        [current] => Ok([0, current]),
        [before, current] => Ok([before, current]),
        _ => Err("a verdict does not tell its epoch".into()),
    }
}

/// One write, so that a line is said or not.
fn say(line: &str) -> io::Result<()> {
    io::stdout()
        .lock()
        .write_all(format!("{line}\n").as_bytes())
}
