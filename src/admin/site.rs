//! What an admin API serves.

use std::sync::Arc;

use super::AdminError;
use super::problem::Problem;
use crate::limit::Policy;
#[cfg(feature = "sqlite")]
use crate::limit::Timestamp;
use crate::limiter::{Limiter, Tally};
use crate::store::{Handle, StoreId};
#[cfg(feature = "sqlite")]
use crate::store::{SqliteStore, Store};

/// What an admin API serves: policies, in the order of their ids, and stores, in the order in which they were given.
#[derive(Debug, Default)]
pub(super) struct Site {
    policies: Vec<Listed>,
    stores: Vec<Handle>,
    #[cfg(feature = "sqlite")]
    audit: Option<SqliteStore>,
}

/// A policy that is served.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) id: String,
    /// Of this policy alone.
    pub(super) limiter: Limiter,
    pub(super) tally: Arc<Tally>,
    /// Limits of others that count together with it.
    pub(super) other_limits: Vec<u32>,
    /// What its key is, when it is that of a layer.
    pub(super) keyed_by: Option<String>,
}

impl Listed {
    pub(super) fn new(limiter: Limiter, tally: &Arc<Tally>, keyed_by: Option<String>) -> Self {
        let shadow = if limiter.is_shadow() { "shadow;" } else { "" };
        Self {
            id: format!("{shadow}{}", limiter.policy().as_name()),
            limiter,
            tally: Arc::clone(tally),
            other_limits: Vec::new(),
            keyed_by,
        }
    }

    pub(super) fn policy(&self) -> &Policy {
        self.limiter.policy()
    }

    fn store_id(&self) -> StoreId {
        self.limiter.store_id()
    }

    /// Whether it is the counter of another one, by its own limit or by another.
    fn counts_with(&self, other: &Self) -> bool {
        self.store_id() == other.store_id() && self.limiter.counter() == other.limiter.counter()
    }
}

impl Site {
    pub(super) fn add(&mut self, new: Listed) -> Result<(), AdminError> {
        self.add_store(new.limiter.shared_store());
        let place = self.policies.binary_search_by(|old| old.id.cmp(&new.id));
        match place {
            Err(place) => self.policies.insert(place, new),
            Ok(place) => {
                let old = &mut self.policies[place];
                if !old.counts_with(&new) {
                    return Err(AdminError::NameTwice(new.id));
                }
                old.keyed_by = old.keyed_by.take().or(new.keyed_by.clone());
                let limit = new.policy().limit();
                if limit != old.policy().limit() && !old.other_limits.contains(&limit) {
                    old.other_limits.push(limit);
                    old.other_limits.sort_unstable();
                }
            }
        }
        Ok(())
    }

    fn add_store(&mut self, store: Handle) {
        if self.stores.iter().all(|old| old.id() != store.id()) {
            self.stores.push(store);
        }
    }

    #[cfg(feature = "sqlite")]
    pub(super) fn set_audit(&mut self, store: &SqliteStore) {
        self.add_store(handle_of(store));
        self.audit = Some(store.clone());
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.policies.iter().map(|listed| &*listed.id)
    }

    /// The policies whose ids come after this one.
    pub(super) fn policies_after(&self, after: Option<&str>) -> &[Listed] {
        let first = after.map_or(0, |after| {
            self.policies.partition_point(|listed| *listed.id <= *after)
        });
        &self.policies[first..]
    }

    /// The policy of an id.
    pub(super) fn policy(&self, id: &str) -> Result<&Listed, Problem> {
        let place = self
            .policies
            .binary_search_by(|listed| (*listed.id).cmp(id));
        match place {
            Ok(place) => Ok(&self.policies[place]),
            Err(_) => Err(Problem::not_found(
                "There is no policy of this id: GET /policies lists those there are, and one that is missing there has to be given \
                 to the admin API by .layer(…) or .limiter(…).",
            )),
        }
    }

    /// That policy, or all of them when none is asked for.
    pub(super) fn one_or_all(&self, id: Option<&str>) -> Result<Vec<&Listed>, Problem> {
        match id {
            Some(id) => Ok(vec![self.policy(id)?]),
            None => Ok(self.policies.iter().collect()),
        }
    }

    /// The stores, each with the ids of the policies that count there.
    pub(super) fn stores(&self) -> impl Iterator<Item = (&Handle, Vec<&str>)> {
        self.stores.iter().map(|store| {
            let policies = self.policies.iter();
            let here = policies.filter(|listed| listed.store_id() == store.id());
            (store, here.map(|listed| &*listed.id).collect())
        })
    }

    /// Where allowed requests are recorded, and what time it is there.
    #[cfg(feature = "sqlite")]
    pub(super) fn audit(&self) -> Result<(&SqliteStore, Timestamp), Problem> {
        let store = self.audit.as_ref().ok_or_else(Problem::no_audit)?;
        Ok((store, handle_of(store).now()))
    }
}

#[cfg(feature = "sqlite")]
fn handle_of(store: &impl Store) -> Handle {
    store.handle().0
}
