//! A store as a limiter holds it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use super::contract::sealed::Sealed;
#[cfg(feature = "sqlite")]
use super::engine::Engine;
use super::memory::Memory;
use super::{Charge, Reply, Reset, StoreError};
use crate::limit::Timestamp;

/// A store as a limiter holds it. Clones are the same store.
#[derive(Clone, Debug)]
pub(crate) enum StoreHandle {
    /// It answers at once.
    Memory(Arc<Memory>),
    /// It answers later, in batches.
    #[cfg(feature = "sqlite")]
    Queued(Arc<Engine>),
}

impl StoreHandle {
    /// An empty store that lives as long as its handles: an in-memory SQLite, or without it this process's memory.
    pub(crate) fn in_memory() -> Self {
        #[cfg(feature = "sqlite")]
        return super::SqliteStore::in_memory().handle().0;
        #[cfg(not(feature = "sqlite"))]
        return super::MemoryStore::new().handle().0;
    }

    /// Tells this store from every other one while a handle on it is held.
    pub(crate) fn id(&self) -> usize {
        match self {
            Self::Memory(memory) => Arc::as_ptr(memory).addr(),
            #[cfg(feature = "sqlite")]
            Self::Queued(engine) => Arc::as_ptr(engine).addr(),
        }
    }

    /// What log lines call the store.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Memory(_) => "memory",
            #[cfg(feature = "sqlite")]
            Self::Queued(engine) => engine.name(),
        }
    }

    /// The instant of a decision that is made now. The store tells it, since its sweeps must agree.
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Memory(memory) => memory.now(),
            #[cfg(feature = "sqlite")]
            Self::Queued(engine) => engine.now(),
        }
    }

    pub(crate) fn charge(&self, charge: Charge) -> Reply {
        match self {
            Self::Memory(memory) => Reply::Ready(memory.charge(&charge)),
            #[cfg(feature = "sqlite")]
            Self::Queued(engine) => engine.charge(charge),
        }
    }

    pub(crate) fn peek(&self, look: Charge) -> Reply {
        match self {
            Self::Memory(memory) => Reply::Ready(Ok(memory.peek(&look))),
            #[cfg(feature = "sqlite")]
            Self::Queued(engine) => engine.peek(look),
        }
    }

    pub(crate) async fn reset(&self, reset: Reset) -> Result<u64, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.reset(&reset)),
            #[cfg(feature = "sqlite")]
            Self::Queued(engine) => engine.reset(reset).await,
        }
    }

    pub(crate) async fn sweep(&self) -> Result<u64, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.sweep()),
            #[cfg(feature = "sqlite")]
            Self::Queued(engine) => engine.sweep().await,
        }
    }

    /// The policies without a name that count here.
    pub(crate) fn unnamed(&self) -> &Unnamed {
        match self {
            Self::Memory(memory) => memory.unnamed(),
            #[cfg(feature = "sqlite")]
            Self::Queued(engine) => engine.unnamed(),
        }
    }
}

/// The policies without a name that count in a store, and who brought each first.
///
/// Two equal ones share their counters, which is seldom meant.
#[derive(Debug, Default)]
pub(crate) struct Unnamed(Mutex<HashMap<String, Owner>>);

#[derive(Debug)]
struct Owner {
    id: u64,
    has_warned: bool,
}

impl Unnamed {
    /// Whether this is the moment to warn that another owner counts under the same name: once for each name.
    pub(crate) fn is_shared_first_seen(&self, counter: &str, owner: u64) -> bool {
        let mut owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match owners.entry(counter.to_owned()) {
            Entry::Vacant(entry) => {
                entry.insert(Owner {
                    id: owner,
                    has_warned: false,
                });
                false
            }
            Entry::Occupied(mut entry) => {
                let first = entry.get_mut();
                let is_new = first.id != owner && !first.has_warned;
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
        let unnamed = Unnamed::default();
        let seen = [1, 1, 2, 3, 1]
            .map(|owner| unnamed.is_shared_first_seen("fixed-3-60s;fixed;60s", owner));
        assert_eq!(seen, [false, false, true, false, false]);
    }
}
