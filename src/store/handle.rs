//! A store as a limiter holds it.

#![cfg_attr(
    not(feature = "_engine"),
    expect(
        clippy::needless_pass_by_value,
        clippy::unused_async,
        unused_variables,
        reason = "only stores that do I/O keep what they are asked, and answer later"
    )
)]

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(feature = "admin")]
use super::StoreHealth;
use super::contract::Store as _;
#[cfg(feature = "_engine")]
use super::engine::Engine;
use super::memory::Memory;
use super::{Charge, GiveBack, Limits, LimitsAsk, Outcome, Reply, Reset, SetLimit, StoreError};
#[cfg(any(test, feature = "test-util"))]
use crate::clock::{Clock, ManualClock};
use crate::limit::{Policy, Timestamp};

/// A store as a limiter holds it. Clones are the same store.
#[derive(Clone, Debug)]
pub(crate) enum Handle {
    /// It answers at once.
    Memory(Arc<Memory>),
    /// It answers later, in batches.
    #[cfg(feature = "_engine")]
    Queued(Arc<Engine>),
}

impl Handle {
    /// An empty store that lives as long as its handles: an in-memory SQLite, or without it this process's memory.
    pub(crate) fn in_memory() -> Self {
        #[cfg(feature = "sqlite")]
        return super::SqliteStore::in_memory().handle().0;
        #[cfg(not(feature = "sqlite"))]
        return super::MemoryStore::new().handle().0;
    }

    /// Has charges wait as long as can be set, which shows no limit in another light on a machine that is busy.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn wait_at_length(&self) {
        match self {
            Self::Memory(_) => {}
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => engine.set_deadline(std::time::Duration::MAX),
        }
    }

    pub(crate) fn id(&self) -> StoreId {
        match self {
            Self::Memory(memory) => memory.id(),
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => engine.id(),
        }
    }

    /// What log lines call the store.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Memory(_) => "memory",
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => engine.name(),
        }
    }

    /// The instant of a decision that is made now. The store tells it, since its sweeps must agree.
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Memory(memory) => memory.now(),
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => engine.now(),
        }
    }

    /// The same for what does not come with a request: a server is asked for it.
    pub(crate) async fn told_time(&self) -> Result<Timestamp, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.now()),
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => engine.told_time().await,
        }
    }

    /// Sets the clock that the store is told the time by. Only the first one counts.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn set_clock(&self, clock: &ManualClock) {
        let clock = Clock::Manual(clock.clone());
        match self {
            Self::Memory(memory) => memory.set_clock(clock),
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => engine.set_clock(clock),
        }
    }

    pub(crate) fn charge(&self, charge: &Charge) -> Reply {
        match self {
            Self::Memory(memory) => {
                let answer = memory.charge(charge);
                memory.health().heard(&answer);
                #[cfg(feature = "metrics")]
                if answer.is_ok() {
                    memory.health().meters().charged("memory", 1);
                }
                Reply::Ready(answer)
            }
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => engine.charge(charge),
        }
    }

    /// Gives back what was charged and not used, in the store or in this process's memory. It is done, or on its way, when
    /// this returns; the future tells its end.
    pub(crate) fn give_back(
        &self,
        units: Vec<GiveBack>,
        is_local: bool,
    ) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>> {
        match self {
            #[cfg(feature = "_engine")]
            Self::Queued(engine) if is_local => {
                engine.local().give_back(&units);
                Box::pin(std::future::ready(Ok(())))
            }
            Self::Memory(memory) => {
                memory.give_back(&units);
                Box::pin(std::future::ready(Ok(())))
            }
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => Box::pin(engine.give_back(units)),
        }
    }

    pub(crate) fn peek(&self, look: Charge) -> Reply {
        match self {
            Self::Memory(memory) => Reply::Ready(Ok(memory.peek(&look))),
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => engine.peek(look),
        }
    }

    /// Looks for a request, which is not to wait for a store that has stopped to answer.
    pub(crate) fn look(&self, look: Charge) -> Reply {
        match self {
            Self::Memory(_) => self.peek(look),
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => engine.look(look),
        }
    }

    /// Charges this process's memory, when the store gave no answer: `None` when that has no room, or is the store itself.
    pub(crate) fn charge_locally(&self, charge: &Charge) -> Option<Outcome> {
        match self {
            Self::Memory(_) => None,
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => {
                let outcome = engine.local().charge(charge);
                #[cfg(feature = "metrics")]
                if outcome.is_some() {
                    engine.health().meters().charged("local", 1);
                }
                outcome
            }
        }
    }

    /// Looks into this process's memory, when the store gave no answer: `None` when that is the store itself.
    pub(crate) fn look_locally(&self, look: &Charge) -> Option<Outcome> {
        match self {
            Self::Memory(_) => None,
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => Some(engine.local().look(look)),
        }
    }

    /// Notes that a charge passed without being counted, since the store gave no answer.
    pub(crate) fn note_uncounted(&self) {
        let health = match self {
            Self::Memory(memory) => memory.health(),
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => engine.health(),
        };
        health.decided_without().note();
    }

    pub(crate) async fn reset(&self, reset: Reset) -> Result<u64, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.reset(&reset)),
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => engine.reset(reset).await,
        }
    }

    pub(crate) async fn sweep(&self) -> Result<u64, StoreError> {
        match self {
            Self::Memory(memory) => {
                let swept = memory.sweep();
                #[cfg(feature = "metrics")]
                memory.health().meters().swept(swept);
                Ok(swept)
            }
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => engine.sweep().await,
        }
    }

    /// Sets a limit, or removes it, and says whether there was one.
    pub(crate) async fn set_limit(&self, set: SetLimit) -> Result<bool, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.set_limit(&set)),
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => engine.set_limit(set).await,
        }
    }

    /// The limits that are set.
    pub(crate) async fn limits(&self, ask: LimitsAsk) -> Result<Limits, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.limits(&ask)),
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => engine.limits(ask).await,
        }
    }

    /// How the store is, as far as it is known without asking it.
    #[cfg(feature = "admin")]
    pub(crate) fn report(&self) -> StoreHealth {
        match self {
            Self::Memory(memory) => memory.report(),
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => engine.report(),
        }
    }

    /// Whether nothing is decided about several keys together.
    pub(crate) fn decides_by_key(&self) -> bool {
        match self {
            Self::Memory(_) => false,
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => engine.decides_by_key(),
        }
    }

    /// The counters that this process uses here.
    pub(crate) fn users(&self) -> &Users {
        match self {
            Self::Memory(memory) => memory.users(),
            #[cfg(feature = "_engine")]
            Self::Queued(engine) => engine.users(),
        }
    }
}

/// Tells a store from all others of this process: those that are there, and also those that were, since a decision outlives
/// its store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct StoreId(pub(crate) u64);

impl StoreId {
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The counters that limiters of this process use in a store, and who brought each first.
///
/// Two owners that share one may not mean it: they have the same numbers and no name, or the same name and other limits.
#[derive(Debug, Default)]
pub(crate) struct Users(Mutex<HashMap<String, User>>);

#[derive(Debug)]
struct User {
    owner: u64,
    limit: u32,
    has_warned: bool,
}

impl Users {
    /// Whether this is the moment to warn that another owner uses the counter: once for each.
    pub(crate) fn is_odd_first_seen(&self, counter: &str, owner: u64, policy: &Policy) -> bool {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match users.entry(counter.to_owned()) {
            Entry::Vacant(entry) => {
                entry.insert(User {
                    owner,
                    limit: policy.limit(),
                    has_warned: false,
                });
                false
            }
            Entry::Occupied(mut entry) => {
                let first = entry.get_mut();
                let is_odd = !policy.is_named() || first.limit != policy.limit();
                let is_new = first.owner != owner && is_odd && !first.has_warned;
                first.has_warned |= is_new;
                is_new
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_unnamed_policy_is_warned_about_once() {
        let users = Users::default();
        let policy = Policy::fixed(3, 60);
        let odd = [1, 1, 2, 3, 1].map(|owner| users.is_odd_first_seen("c", owner, &policy));
        assert_eq!(odd, [false, false, true, false, false]);
    }

    #[test]
    fn a_shared_name_is_warned_about_when_the_limits_differ() {
        let users = Users::default();
        let policies = [(1, 3), (2, 3), (3, 30), (4, 300)];
        let odd = policies.map(|(owner, limit)| {
            users.is_odd_first_seen("c", owner, &Policy::fixed(limit, 60).name("api"))
        });
        assert_eq!(odd, [false, false, true, false]);
    }
}
