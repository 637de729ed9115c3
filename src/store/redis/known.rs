//! Limits that are set, as a process of a cluster knows them: a script sees only what is on its own node, and is told of these.
//!
//! When they can't be read, those that were read last hold: they are in one slot, and its node must not fail the keys of all others.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use super::backend::Redis;
use super::limits;
use crate::clock;
use crate::store::StoreError;

/// Others see limits that were set within so long, where a script can't look for them itself.
const KNOWN_FOR: Duration = Duration::from_millis(100);
/// After they could not be read they are read again after so long: a node that stands still is waited for.
const PAUSE: Duration = Duration::from_secs(1);
/// So many policies, and keys with limits of their own, are known for when they can't be read.
const MOST_KNOWN: usize = 10_000;

/// A policy, and a key.
type Of<'a> = (&'a str, &'a str);
/// The limit of a key and that of all keys of the policy, as they are stored. Nothing is an empty text.
pub(super) type Both = [String; 2];

/// What is known of the limits that are set.
#[derive(Default)]
pub(super) struct KnownLimits {
    policies: HashMap<String, OfPolicy>,
    /// Those of keys, by the policy and the key.
    own: HashMap<(String, String), String>,
    /// When they can be read again, and why they could not be.
    trouble: Option<(Instant, StoreError)>,
}

/// What is known of a policy.
struct OfPolicy {
    has_any: bool,
    /// The limit of all its keys, once it was read.
    of_all: Option<String>,
    /// When it was asked. What was set here is to be asked for at once.
    asked_at: Option<Instant>,
}

impl KnownLimits {
    /// A limit was set by this process.
    pub(super) fn set(&mut self) {
        for of in self.policies.values_mut() {
            of.asked_at = None;
        }
    }

    fn has_any(&self, policy: &str) -> bool {
        self.policies.get(policy).is_some_and(|of| of.has_any)
    }

    /// Those of the policies that were not asked just now.
    fn stale<'a>(&self, lists: &[&[Of<'a>]], now: Instant) -> Vec<&'a str> {
        let is_fresh = |policy: &str| {
            let asked_at = self.policies.get(policy).and_then(|of| of.asked_at);
            asked_at.is_some_and(|at| now.saturating_duration_since(at) < KNOWN_FOR)
        };
        let policies = lists.iter().copied().flatten().map(|(policy, _)| *policy);
        let mut stale: Vec<_> = policies.filter(|policy| !is_fresh(policy)).collect();
        stale.sort_unstable();
        stale.dedup();
        stale
    }

    fn learn_policy(&mut self, policy: &str, has_any: bool, asked_at: Instant) {
        let of = self.policies.entry(policy.to_owned());
        let of = of.or_insert_with(|| OfPolicy {
            has_any,
            of_all: (!has_any).then(String::new),
            asked_at: None,
        });
        if of.has_any && !has_any {
            of.of_all = Some(String::new());
            self.own.retain(|(other, _), _| other != policy);
        }
        of.has_any = has_any;
        of.asked_at = Some(asked_at);
    }

    fn learn(&mut self, (policy, key): Of<'_>, [own, of_all]: &Both) {
        if let Some(of) = self.policies.get_mut(policy) {
            of.of_all = Some(of_all.clone());
        }
        let name = (policy.to_owned(), key.to_owned());
        if own.is_empty() {
            self.own.remove(&name);
        } else {
            self.own.insert(name, own.clone());
        }
    }

    /// What was read last. Of a policy of which nothing was read yet nothing is known.
    fn last(&self, (policy, key): Of<'_>) -> Option<Both> {
        let of = self.policies.get(policy)?;
        if !of.has_any {
            return Some(Both::default());
        }
        let own = self.own.get(&(policy.to_owned(), key.to_owned()));
        Some([own.cloned().unwrap_or_default(), of.of_all.clone()?])
    }

    /// Forgets what is too much, whatever it is.
    fn make_room(&mut self) {
        make_room(&mut self.policies);
        make_room(&mut self.own);
    }

    fn failed(&mut self, error: StoreError) {
        tracing::debug!(%error, "limits that are set could not be read, and hold as they were known last");
        self.trouble = Some((clock::monotonic() + PAUSE, error));
    }

    /// Why they are not to be read now.
    fn trouble(&self) -> Option<StoreError> {
        let (until, error) = self.trouble.as_ref()?;
        (clock::monotonic() < *until).then(|| error.clone())
    }
}

/// What is set for keys in a cluster, in the order of the lists. A list of which nothing was ever known is an error.
pub(super) async fn known(
    redis: &mut Redis,
    lists: &[&[Of<'_>]],
) -> Vec<Result<Vec<Both>, StoreError>> {
    if redis.limits.trouble().is_none()
        && let Err(error) = read(redis, lists).await
    {
        redis.limits.failed(error);
    }
    let known = &redis.limits;
    let of_list = |list: &&[Of<'_>]| {
        let all: Option<Vec<_>> = list.iter().map(|of| known.last(*of)).collect();
        all.ok_or_else(|| match &known.trouble {
            Some((_, error)) => error.clone(),
            None => StoreError::Overloaded,
        })
    };
    let of_lists = lists.iter().map(of_list).collect();
    redis.limits.make_room();
    of_lists
}

fn make_room<K: Clone + Eq + Hash, V>(known: &mut HashMap<K, V>) {
    let excess = known.len().saturating_sub(MOST_KNOWN);
    let names: Vec<_> = known.keys().take(excess).cloned().collect();
    for name in names {
        known.remove(&name);
    }
}

/// Reads which policies have limits, unless that was just asked, and what is set for the keys of those.
async fn read(redis: &mut Redis, lists: &[&[Of<'_>]]) -> Result<(), StoreError> {
    let now = clock::monotonic();
    let stale = redis.limits.stale(lists, now);
    if !stale.is_empty() {
        let found = limits::which(redis, &stale).await?;
        for (policy, has_any) in stale.into_iter().zip(found) {
            redis.limits.learn_policy(policy, has_any == 1, now);
        }
    }
    let asks = lists.iter().copied().flatten().copied();
    let asks: Vec<_> = asks
        .filter(|(policy, _)| redis.limits.has_any(policy))
        .collect();
    if !asks.is_empty() {
        let mut texts = limits::of_keys(redis, &asks).await?.into_iter();
        let mut next = || texts.next().unwrap_or_default();
        for of in asks {
            redis.limits.learn(of, &[next(), next()]);
        }
    }
    redis.limits.trouble = None;
    Ok(())
}
