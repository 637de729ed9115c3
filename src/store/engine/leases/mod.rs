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
use crate::limit::Timestamp;
use crate::limit::algorithm::{Found, Span, State};
use crate::limit::few::Few;
use crate::store::{Charge, GiveBack, Outcome, Part, Reset, StoreError};

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

impl Leases {
    /// Spends units, when there are enough for every part of a charge, and tells of which leases it is time to ask for more.
    pub(super) fn spend(
        &self,
        charge: &Charge,
        now: Timestamp,
        mut ask: impl FnMut(&Part),
    ) -> Option<Outcome> {
        if !may_be_leased(charge) {
            return None;
        }
        let found = match charge.parts.only() {
            Some(part) => Few::one(self.spend_of(part, charge.cost, now, &mut ask)?),
            None => self.spend_of_each(charge, now, &mut ask)?,
        };
        Some(Outcome { at: now, found })
    }

    fn spend_of(
        &self,
        part: &Part,
        cost: u32,
        now: Timestamp,
        ask: &mut impl FnMut(&Part),
    ) -> Option<Found> {
        let mut shard = self.shard(part);
        let lease = shard.get_mut(part)?;
        if !lease.covers(part.policy().limit(), cost, now) {
            return None;
        }
        let is_time = lease.spend(cost, now);
        let found = lease.found();
        drop(shard);
        if is_time {
            ask(part);
        }
        Some(found)
    }

    /// All of several parts, or nothing.
    fn spend_of_each(
        &self,
        charge: &Charge,
        now: Timestamp,
        ask: &mut impl FnMut(&Part),
    ) -> Option<Few<Found>> {
        let mut all = Vec::with_capacity(charge.parts.len());
        for part in charge.parts.iter() {
            if let Some(found) = self.spend_of(part, charge.cost, now, ask) {
                all.push(found);
                continue;
            }
            for (part, found) in charge.parts.iter().zip(&all) {
                self.restore(&GiveBack {
                    part: part.clone(),
                    units: charge.cost,
                    taken_at: now,
                    from: found.state.taken(part.policy(), now),
                });
            }
            return None;
        }
        Few::collect(all)
    }

    /// What is left of leases that keep charges from their units: it goes back first, so that those find it. What covers a charge
    /// of several parts stays, as long as the backend is known to have room for all charges beside it.
    pub(super) fn rests_before(&self, charges: &[Charge], now: Timestamp) -> Vec<GiveBack> {
        let all = charges.iter().map(|charge| u64::from(charge.cost)).sum();
        let rests = charges.iter().flat_map(|charge| {
            let parts = charge.parts.iter();
            parts.filter_map(move |part| self.rest_before(charge, part, all, now))
        });
        rests.collect()
    }

    fn rest_before(
        &self,
        charge: &Charge,
        part: &Part,
        all: u64,
        now: Timestamp,
    ) -> Option<GiveBack> {
        if !part.policy().algorithm().keeps_units() {
            return None;
        }
        let mut shard = self.shard(part);
        let lease = shard.get_mut(part)?;
        let may_stay = charge.parts.only().is_none()
            && lease.covers(part.policy().limit(), charge.cost, now)
            && u64::from(lease.room(part, now)) >= all;
        if may_stay {
            return None;
        }
        lease.give_back(part)
    }

    /// Takes in what the backend counts of charges of several parts, of which leases may hold some, and leaves out what is not spent.
    pub(super) fn take_in(&self, charge: &Charge, outcome: &mut Outcome) {
        if charge.parts.only().is_some() {
            return;
        }
        let at = outcome.at;
        for (part, found) in charge.parts.iter().zip(outcome.found.iter_mut()) {
            let Some(usage) = found.state.window_mut() else {
                continue;
            };
            if let Some(lease) = self.shard(part).get_mut(part)
                && lease.left > 0
                && (lease.span, lease.usage.epoch) == (part.span(at), usage.epoch)
            {
                lease.usage = *usage;
                usage.used = usage.used.saturating_sub(u64::from(lease.left));
            }
        }
    }

    /// What is left of leases of counters that have refused charges, and the places of those charges.
    pub(super) fn rests_behind(
        &self,
        charges: &[Charge],
        answers: &[Result<Outcome, StoreError>],
    ) -> (Vec<usize>, Vec<GiveBack>) {
        let (mut places, mut rests) = (Vec::new(), Vec::<GiveBack>::new());
        for (place, (charge, answer)) in charges.iter().zip(answers).enumerate() {
            let Ok(outcome) = answer else {
                continue;
            };
            let parts = charge.parts.iter().zip(outcome.found.iter());
            let mut is_refused_beside = false;
            for (part, _) in parts.filter(|(_, found)| !found.fits) {
                let rest = self
                    .shard(part)
                    .get_mut(part)
                    .and_then(|lease| lease.give_back(part));
                is_refused_beside |= rest.is_some() || rests.iter().any(|rest| rest.part == *part);
                rests.extend(rest);
            }
            if is_refused_beside {
                places.push(place);
            }
        }
        (places, rests)
    }

    /// What is left of a sliding counter's lease whose window is over, and counts still.
    pub(super) fn take_ended(&self, part: &Part, now: Timestamp) -> Option<GiveBack> {
        let mut shard = self.shard(part);
        let lease = shard.get_mut(part);
        let has_ended = |lease: &&mut Lease| lease.before.is_some() && lease.span.end <= now;
        lease.filter(has_ended)?.give_back(part)
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
    pub(super) fn ahead_of(&self, charge: &Charge, now: Timestamp) -> impl Iterator<Item = Ahead> {
        // What was used already says nothing of what will come.
        let is_asked = may_be_leased(charge) && !charge.is_forced;
        let parts = charge.parts.iter().filter(move |_| is_asked);
        parts.filter_map(move |part| self.ahead_of_part(charge, part, now))
    }

    fn ahead_of_part(&self, charge: &Charge, part: &Part, now: Timestamp) -> Option<Ahead> {
        let limit = part.policy().limit();
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
                let may_ask = lease.more == More::No && lease.limit == limit;
                // Of several parts another one may have been short.
                let needs_more = charge.parts.only().is_some()
                    || !lease.covers(limit, charge.cost, now)
                    || lease.is_half_empty();
                (may_ask && needs_more)
                    .then(|| lease.ask(part, now))
                    .flatten()
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
        let (before, usage) = match grant.state {
            State::Window(usage) => (None, usage),
            State::Pair(pair) => (Some(pair.previous), pair.current),
            // A backend grants units of windows.
            State::Log(_) | State::Bucket(_) | State::Block(_) => return None,
        };
        let is_same = lease.span == grant.span && lease.usage.epoch == usage.epoch;
        let policy = ahead.part.policy().with_limit(grant.in_force);
        let is_over =
            !policy.is_exempt() && grant.state.used(&policy, grant.at) > u64::from(policy.limit());
        let rest = if is_same && !is_over {
            None
        } else {
            // Of a fixed window that is over nobody misses it, nor of a counter that was reset.
            let is_missed = is_same || (before.is_some() && lease.span != grant.span);
            lease.give_back(&ahead.part).filter(|_| is_missed)
        };
        lease.in_force = grant.in_force;
        lease.span = grant.span;
        lease.usage = usage;
        lease.before = before;
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

/// Whether all that a charge takes may be spent from leases.
fn may_be_leased(charge: &Charge) -> bool {
    charge.parts.iter().all(|part| {
        let policy = part.policy();
        policy.is_leased() && policy.algorithm().keeps_units() && !part.is_block()
    })
}

/// A panic in between leaves a lease that was spent from or not, never half of it.
fn lock(shard: &Mutex<HashMap<Part, Lease>>) -> MutexGuard<'_, HashMap<Part, Lease>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
