//! Units that were charged in advance, and are spent in memory.
//!
//! A key that is charged again and again takes more from the database than was asked for: a lease. Its units are used as
//! far as the database knows, so no process can spend them twice. What is not spent goes back.

mod lease;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::lease::{Lease, More};
use super::backend::{Ahead, Freed, FreedSet, Grant};
use crate::limit::algorithm::Span;
use crate::limit::algorithm::fixed_window::Usage;
use crate::limit::{InForce, Timestamp};
use crate::store::{Charge, GiveBack, Outcome, Part, Reset};

/// Threads that charge different keys seldom meet.
const SHARDS: usize = 16;
/// Some 20 MB. Beyond it new keys are charged one by one, which is slower and just as exact.
const MOST_KEYS: usize = 1 << 16;
/// What was not touched for so long goes back. A key that had no lease is forgotten then: most keys come once.
const IDLE: Duration = Duration::from_millis(2_500);
/// How much a key asked for is remembered for so long, so that it need not begin small when it comes back.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The leases of one store handle.
#[derive(Default)]
pub(super) struct Leases {
    shards: [Mutex<HashMap<Part, Lease>>; SHARDS],
    /// Whether there may be something to give back.
    is_outstanding: AtomicBool,
}

/// Units that were spent in memory.
pub(super) struct Spent {
    /// The counter after it.
    usage: Usage,
    /// The limit that was set at run time, if one was.
    in_force: Option<InForce>,
    /// Whether it is time to ask for more.
    pub(super) is_half_empty: bool,
}

impl Spent {
    pub(super) fn outcome(&self, at: Timestamp) -> Outcome {
        Outcome::of_window(at, self.usage, self.in_force)
    }
}

impl Leases {
    /// Spends units, when there are enough.
    pub(super) fn spend(&self, charge: &Charge, now: Timestamp) -> Option<Spent> {
        let part = leased_part(charge)?;
        let mut shard = self.shard(part);
        let lease = shard.get_mut(part)?;
        let is_enough = lease.left >= charge.cost && lease.is_in_force(part.policy().limit(), now);
        if !is_enough {
            return None;
        }
        lease.left -= charge.cost;
        lease.spent_at = now;
        let is_half_empty = lease.more == More::No && lease.left < lease.granted / 2;
        if is_half_empty {
            lease.more = More::Wanted;
        }
        let mut usage = lease.usage;
        usage.used = usage.used.saturating_sub(u64::from(lease.left));
        Some(Spent {
            usage,
            in_force: lease.in_force,
            is_half_empty,
        })
    }

    /// What is left of a lease that a charge can't be spent from: it goes back first, so that the charge finds it.
    pub(super) fn take_rest(&self, part: &Part) -> Option<GiveBack> {
        if !part.policy().algorithm().is_one_window() {
            return None;
        }
        self.shard(part).get_mut(part)?.give_back(part)
    }

    /// Puts back what could not be given back.
    pub(super) fn restore(&self, back: &GiveBack) {
        if let Some(lease) = self.shard(&back.part).get_mut(&back.part)
            && lease.is_of(back.from)
        {
            lease.left = lease.left.saturating_add(back.units);
        }
    }

    /// Notes that units go back to the counter which a lease was taken from, so that less is told as used. They are not spent
    /// again from here: only the database knows of a reset by another process.
    pub(super) fn note_given_back(&self, back: &GiveBack) {
        if let Some(lease) = self.shard(&back.part).get_mut(&back.part)
            && lease.is_of(back.from)
        {
            let used = lease.usage.used.saturating_sub(u64::from(back.units));
            lease.usage.used = used.max(u64::from(lease.left));
        }
    }

    /// What to ask for beside a charge that is about to be made, if anything.
    pub(super) fn ahead_of(&self, charge: &Charge, now: Timestamp) -> Option<Ahead> {
        // What was used already says nothing of what will come.
        let part = leased_part(charge).filter(|_| !charge.is_forced)?;
        let mut shard = self.shard(part);
        let has_room = shard.len() < MOST_KEYS / SHARDS;
        match shard.entry(part.clone()) {
            Entry::Vacant(entry) => {
                // Whether the key comes again is not known yet.
                if has_room {
                    entry.insert(Lease::new(part, now));
                    self.is_outstanding.store(true, Ordering::Relaxed);
                }
                None
            }
            Entry::Occupied(mut entry) => {
                let lease = entry.get_mut();
                let may_ask = lease.more == More::No && lease.limit == part.policy().limit();
                may_ask.then(|| lease.ask(part, now)).flatten()
            }
        }
    }

    /// What to ask for when a lease is half empty. It may have been dropped since, and another have taken its place.
    pub(super) fn refill_of(&self, part: &Part, now: Timestamp) -> Option<Ahead> {
        let mut shard = self.shard(part);
        let lease = shard.get_mut(part)?;
        let is_wanted = lease.more == More::Wanted && lease.limit == part.policy().limit();
        is_wanted.then(|| lease.ask(part, now)).flatten()
    }

    /// Asks for nothing any more, after what was under way has been lost.
    pub(super) fn forget_asks(&self) {
        for shard in &self.shards {
            lock(shard)
                .values_mut()
                .for_each(|lease| lease.more = More::No);
        }
    }

    /// Empties all leases: the counters are not those that they were taken from. What is asked for stays so.
    pub(super) fn empty_all(&self) {
        for shard in &self.shards {
            lock(shard).values_mut().for_each(|lease| lease.left = 0);
        }
    }

    /// Takes in what was granted of what was asked for. What was left under a higher limit goes back.
    pub(super) fn install(&self, ahead: &Ahead, grant: Option<&Grant>) -> Option<GiveBack> {
        let mut shard = self.shard(&ahead.part);
        let lease = shard.get_mut(&ahead.part)?;
        if lease.more != More::Asked || lease.limit != ahead.part.policy().limit() {
            // It is another one than that which asked. What was granted is lost until the window ends.
            return None;
        }
        lease.more = More::No;
        let grant = grant?;
        let is_same = lease.span == grant.span && lease.usage.epoch == grant.usage.epoch;
        let limit = grant
            .in_force
            .map_or(Some(lease.limit), |in_force| in_force.units);
        let is_over = limit.is_some_and(|limit| grant.usage.used > u64::from(limit));
        let mut rest = None;
        if !is_same {
            lease.left = 0;
        } else if is_over {
            rest = lease.give_back(&ahead.part);
        }
        lease.in_force = grant.in_force;
        lease.span = grant.span;
        lease.usage = grant.usage;
        lease.left = lease.left.saturating_add(grant.units);
        lease.granted = grant.units;
        lease.taken_at = grant.at;
        lease.spent_at = grant.at;
        if grant.units > 0 {
            self.is_outstanding.store(true, Ordering::Relaxed);
        }
        rest
    }

    /// Units that the database counts as used in an epoch of a window, and that are not.
    pub(super) fn unspent(&self, part: &Part, span: Span, epoch: u64) -> u32 {
        let shard = self.shard(part);
        let lease = shard.get(part);
        let lease = lease.filter(|lease| lease.span == span && lease.usage.epoch == epoch);
        lease.map_or(0, |lease| lease.left)
    }

    /// Drops the leases of keys that were reset, those of `keys`, and says how many units of the window in force they held.
    pub(super) fn forget(&self, reset: &Reset, keys: impl Fn(&str) -> bool) -> u64 {
        let in_force = reset.part.span(reset.at);
        let mut units = 0;
        for shard in &self.shards {
            lock(shard).retain(|part, lease| {
                let is_meant = part.rule == reset.part.rule && keys(part.key.as_str());
                if is_meant && lease.span == in_force {
                    units += u64::from(lease.left);
                }
                !is_meant
            });
        }
        units
    }

    /// Takes out the leases of keys that were reset, or whose limit was set or removed, and what is left of them.
    pub(super) fn take_of(&self, freed: &[Freed]) -> Vec<GiveBack> {
        let ended = FreedSet::of(freed.iter().filter(|freed| freed.ends_leases()));
        if ended.is_empty() {
            return Vec::new();
        }
        let is_meant = |part: &Part| ended.is_about(part);
        let mut rests = Vec::new();
        for shard in &self.shards {
            lock(shard).retain(|part, lease| {
                let is_meant = is_meant(part);
                if is_meant {
                    rests.extend(lease.give_back(part));
                }
                !is_meant
            });
        }
        rests
    }

    /// Whether there may be something to give back.
    pub(super) fn is_outstanding(&self) -> bool {
        self.is_outstanding.load(Ordering::Relaxed)
    }

    /// What has not been touched for a while goes back, up to `most` of it, and what is left of windows that are over.
    pub(super) fn take_idle(&self, now: Timestamp, most: usize) -> Vec<GiveBack> {
        self.is_outstanding.store(false, Ordering::Relaxed);
        let mut idle = Vec::new();
        let mut is_outstanding = false;
        for shard in &self.shards {
            lock(shard).retain(|part, lease| {
                // After a step back of the clock nothing has been touched since.
                let has_stepped = now < lease.spent_at;
                let since = now.saturating_duration_since(lease.spent_at);
                let is_idle = since >= IDLE || has_stepped || now >= lease.span.end;
                if is_idle && idle.len() < most {
                    idle.extend(lease.give_back(part));
                }
                if has_stepped {
                    lease.spent_at = now;
                }
                let remembered = if lease.ahead > 0 { REMEMBERED } else { IDLE };
                let stays = lease.left > 0 || lease.more != More::No || since < remembered;
                is_outstanding |= stays;
                stays
            });
        }
        if is_outstanding {
            self.is_outstanding.store(true, Ordering::Relaxed);
        }
        idle
    }

    /// Everything: the store is closed, or others have changed more than can be told.
    pub(super) fn take_all(&self) -> Vec<GiveBack> {
        let take = |(part, mut lease): (Part, Lease)| lease.give_back(&part);
        let shards = self.shards.iter();
        shards
            .flat_map(|shard| {
                std::mem::take(&mut *lock(shard))
                    .into_iter()
                    .filter_map(take)
            })
            .collect()
    }

    fn shard(&self, part: &Part) -> MutexGuard<'_, HashMap<Part, Lease>> {
        let mut hasher = DefaultHasher::new();
        part.key.hash(&mut hasher);
        let index = usize::try_from(hasher.finish() % SHARDS as u64).unwrap_or(0);
        lock(&self.shards[index])
    }
}

/// The part of a charge that may be spent from a lease.
fn leased_part(charge: &Charge) -> Option<&Part> {
    let part = charge.one_window()?;
    part.policy().is_leased().then_some(part)
}

/// A panic in between leaves a lease that was spent from or not, never half of it.
fn lock(shard: &Mutex<HashMap<Part, Lease>>) -> MutexGuard<'_, HashMap<Part, Lease>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
