//! Units that were charged in advance, and are spent in memory.
//!
//! A key that is charged again and again takes more from the database than was asked for: a lease. Its units are used as
//! far as the database knows, so no process can spend them twice. What is not spent goes back.

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::backend::{Ahead, GiveBack, Grant};
use crate::limit::Timestamp;
use crate::limit::algorithm::Span;
use crate::limit::algorithm::fixed_window::Usage;
use crate::store::{Charge, Part, Reset};

/// Threads that charge different keys seldom meet.
const SHARDS: usize = 16;
/// Some 20 MB. Beyond it new keys are charged one by one, which is slower and just as exact.
const MOST_KEYS: usize = 1 << 16;
/// A quarter of a second of what one key can ask for on one machine.
const MOST_AHEAD: u32 = 1 << 20;
/// A lease that was used up so soon was too small, one that lasted so long too large.
const SOON: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(4);
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

/// What was taken for a key, and how much of it is left.
struct Lease {
    limit: u32,
    span: Span,
    /// The counter after the last grant, with all that is left of the lease counted as used.
    usage: Usage,
    left: u32,
    /// The last grant. When half of it is spent the next one is asked for.
    granted: u32,
    /// How much to ask for next.
    ahead: u32,
    /// When the last grant was asked for, and when it was taken.
    asked_at: Timestamp,
    taken_at: Timestamp,
    spent_at: Timestamp,
    more: More,
}

/// Whether more is to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum More {
    No,
    /// It is in the queue.
    Wanted,
    /// It is with the backend. There is never more than one such for a key.
    Asked,
}

/// Units that were spent in memory.
pub(super) struct Spent {
    /// The counter after it.
    pub(super) usage: Usage,
    /// Whether it is time to ask for more.
    pub(super) is_half_empty: bool,
}

impl Lease {
    fn new(part: &Part, now: Timestamp) -> Self {
        Self {
            limit: part.policy().limit(),
            span: part.span(now),
            usage: Usage::default(),
            left: 0,
            granted: 0,
            ahead: 0,
            asked_at: now,
            taken_at: now,
            spent_at: now,
            more: More::No,
        }
    }

    /// Only in its own window, and not before it was taken: a clock that has stepped back would spend it in the past.
    fn is_in_force(&self, limit: u32, now: Timestamp) -> bool {
        self.limit == limit && self.taken_at <= now && now < self.span.end
    }

    fn give_back(&mut self, part: &Part) -> Option<GiveBack> {
        let units = std::mem::take(&mut self.left);
        (units > 0).then(|| GiveBack {
            part: part.clone(),
            window_start: self.span.start,
            epoch: self.usage.epoch,
            units,
        })
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
            && lease.span.start == back.window_start
            && lease.usage.epoch == back.epoch
        {
            lease.left = lease.left.saturating_add(back.units);
        }
    }

    /// What to ask for beside a charge that is about to be made, if anything.
    pub(super) fn ahead_of(&self, charge: &Charge, now: Timestamp) -> Option<Ahead> {
        let part = leased_part(charge)?;
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

    /// Takes in what was granted of what was asked for.
    pub(super) fn install(&self, ahead: &Ahead, grant: Option<&Grant>) {
        let mut shard = self.shard(&ahead.part);
        let Some(lease) = shard.get_mut(&ahead.part) else {
            return;
        };
        if lease.more != More::Asked || lease.limit != ahead.part.policy().limit() {
            // It is another one than that which asked. What was granted is lost until the window ends.
            return;
        }
        lease.more = More::No;
        let Some(grant) = grant else {
            return;
        };
        let is_same = lease.span == grant.span && lease.usage.epoch == grant.usage.epoch;
        if !is_same {
            lease.left = 0;
        }
        lease.span = grant.span;
        lease.usage = grant.usage;
        lease.left = lease.left.saturating_add(grant.units);
        lease.granted = grant.units;
        lease.taken_at = grant.at;
        lease.spent_at = grant.at;
        if grant.units > 0 {
            self.is_outstanding.store(true, Ordering::Relaxed);
        }
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

    /// Everything, when the store is closed.
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

impl Lease {
    /// Asks for as much as a second or so needs.
    fn ask(&mut self, part: &Part, now: Timestamp) -> Option<Ahead> {
        let lasted = now.saturating_duration_since(self.asked_at);
        if lasted <= SOON {
            // As long as nothing was granted there is nothing to double.
            let doubled = if self.granted > 0 { 2 } else { 1 };
            self.ahead = self.ahead.saturating_mul(doubled).clamp(1, MOST_AHEAD);
        } else if lasted > LONG {
            self.ahead /= 2;
        }
        self.asked_at = now;
        let units = self.ahead;
        self.more = if units > 0 { More::Asked } else { More::No };
        (units > 0).then(|| Ahead {
            part: part.clone(),
            units,
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Key, Policy};
    use crate::store::suite::charge_of;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_unix_millis(millis)
    }

    fn charge(limit: u32, cost: u32) -> Charge {
        charge_of(
            &[(&Policy::fixed(limit, 60).name("p"), &Key::new("user", "a"))],
            cost,
        )
    }

    fn grant(ahead: &Ahead, units: u32, used: u64, millis: i64) -> Grant {
        Grant {
            at: at(millis),
            span: ahead.part.span(at(millis)),
            units,
            usage: Usage {
                used,
                ..Usage::default()
            },
        }
    }

    /// Leases with one of `units`, taken at `millis`.
    fn leased(units: u32, millis: i64) -> (Leases, Charge) {
        let (leases, charge) = (Leases::default(), charge(1_000, 1));
        assert!(
            leases.ahead_of(&charge, at(millis)).is_none(),
            "seen for the first time"
        );
        let ahead = leases.ahead_of(&charge, at(millis)).unwrap();
        assert_eq!(ahead.units, 1);
        leases.install(
            &ahead,
            Some(&grant(&ahead, units, u64::from(units), millis)),
        );
        (leases, charge)
    }

    fn spend(leases: &Leases, charge: &Charge, millis: i64) -> Option<u64> {
        leases
            .spend(charge, at(millis))
            .map(|spent| spent.usage.used)
    }

    #[test]
    fn units_are_spent_once_and_told_as_used_one_by_one() {
        let (leases, charge) = leased(3, 0);
        let used = [(); 4].map(|()| spend(&leases, &charge, 1));
        assert_eq!(used, [Some(1), Some(2), Some(3), None]);
        assert!(leases.take_all().is_empty());
    }

    #[test]
    fn a_lease_is_spent_in_its_own_window_and_not_before_it_was_taken() {
        let (leases, charge) = leased(8, 30_000);
        assert_eq!(spend(&leases, &charge, 60_000), None, "the next window");
        assert_eq!(
            spend(&leases, &charge, 29_999),
            None,
            "a clock that has stepped back"
        );
        assert_eq!(spend(&leases, &charge, 59_999), Some(1));
    }

    #[test]
    fn another_limit_on_the_same_counter_does_not_spend_it() {
        let (leases, one) = leased(8, 0);
        assert_eq!(spend(&leases, &charge(5, 1), 0), None);
        assert_eq!(spend(&leases, &one, 0), Some(1));
    }

    #[test]
    fn more_is_asked_for_once_when_half_is_spent() {
        let (leases, charge) = leased(4, 0);
        let is_half_empty = [(); 4].map(|()| leases.spend(&charge, at(1)).unwrap().is_half_empty);
        assert_eq!(is_half_empty, [false, false, true, false]);
        assert!(
            leases.ahead_of(&charge, at(1)).is_none(),
            "it is on its way"
        );
    }

    #[test]
    fn what_is_asked_for_doubles_when_it_is_spent_soon_and_halves_when_it_lasts() {
        let (leases, charge) = leased(4, 0);
        let ask = |millis: i64| {
            let ahead = leases.ahead_of(&charge, at(millis));
            let units = ahead.as_ref().map(|ahead| ahead.units);
            if let Some(ahead) = ahead {
                leases.install(&ahead, Some(&grant(&ahead, 1, 1, millis)));
            }
            units
        };
        let asked = [500, 1_500, 4_000, 9_000, 14_000, 19_000].map(ask);
        assert_eq!(asked, [Some(2), Some(4), Some(4), Some(2), Some(1), None]);
    }

    #[test]
    fn a_rest_that_is_too_small_goes_back() {
        let (leases, charge) = leased(4, 0);
        let large = charge_of(
            &[(charge.parts.first().policy(), &Key::new("user", "a"))],
            5,
        );
        assert_eq!(spend(&leases, &large, 0), None);
        assert_eq!(leases.take_rest(large.parts.first()).unwrap().units, 4);
        assert_eq!(spend(&leases, &charge, 0), None);
    }

    #[test]
    fn what_is_idle_goes_back_and_what_is_not_stays() {
        let (leases, charge) = leased(4, 0);
        assert_eq!(spend(&leases, &charge, 1_000), Some(1));
        assert!(leases.take_idle(at(3_499), 9).is_empty());
        let back = leases.take_idle(at(3_500), 9);
        assert_eq!((back.len(), back[0].units), (1, 3));
        assert!(leases.take_idle(at(3_600), 9).is_empty(), "once");
        // It is remembered for a minute, and asks for half as much when it comes back.
        leases.take_idle(at(60_000), 9);
        assert!(leases.is_outstanding());
        leases.take_idle(at(61_000), 9);
        leases.take_idle(at(61_000), 9);
        assert!(!leases.is_outstanding());
    }

    #[test]
    fn a_key_that_came_once_is_forgotten_soon() {
        let (leases, charge) = (Leases::default(), charge(1_000, 1));
        assert!(leases.ahead_of(&charge, at(0)).is_none());
        leases.take_idle(at(2_500), 9);
        assert!(
            leases.ahead_of(&charge, at(2_500)).is_none(),
            "as if never seen"
        );
    }

    #[test]
    fn what_is_left_of_a_window_that_is_over_goes_back_too() {
        let (leases, charge) = leased(4, 59_000);
        assert_eq!(leases.take_idle(at(60_000), 9).len(), 1);
        assert_eq!(
            spend(&leases, &charge, 59_500),
            None,
            "also when the clock steps back"
        );
    }

    #[test]
    fn after_a_step_back_what_was_taken_before_is_idle() {
        let (leases, _) = leased(4, 50_000);
        assert_eq!(leases.take_idle(at(0), 9).len(), 1);
    }

    #[test]
    fn what_can_not_be_given_back_is_there_again() {
        let (leases, charge) = leased(4, 0);
        let back = leases.take_idle(at(3_000), 9).remove(0);
        assert_eq!(spend(&leases, &charge, 3_000), None);
        leases.restore(&back);
        assert_eq!(spend(&leases, &charge, 3_000), Some(1));
    }

    #[test]
    fn no_more_goes_back_at_once_than_is_asked_for() {
        let leases = Leases::default();
        for n in 0..5 {
            let charge = charge_of(
                &[(&Policy::fixed(1_000, 60).name("p"), &Key::new("user", n))],
                1,
            );
            assert!(leases.ahead_of(&charge, at(0)).is_none());
            let ahead = leases.ahead_of(&charge, at(0)).unwrap();
            leases.install(&ahead, Some(&grant(&ahead, 2, 2, 0)));
        }
        let given_back = [2, 2, 2, 2].map(|most| leases.take_idle(at(3_000), most).len());
        assert_eq!(given_back, [2, 2, 1, 0]);
    }

    #[test]
    fn a_refill_of_a_lease_that_was_dropped_meanwhile_is_not_asked_for_beside_another() {
        let (leases, charge) = leased(4, 0);
        let part = charge.parts.first();
        let is_half_empty = [(); 3].map(|()| leases.spend(&charge, at(1)).unwrap().is_half_empty);
        assert!(is_half_empty[2]);
        let reset = Reset {
            part: part.clone(),
            with_keys_under: false,
            at: at(1),
        };
        assert_eq!(leases.forget(&reset, |key| key == part.key.as_str()), 1);
        assert!(leases.ahead_of(&charge, at(1)).is_none(), "a new one");
        let ahead = leases.ahead_of(&charge, at(1)).unwrap();
        assert!(leases.refill_of(part, at(1)).is_none(), "one is on its way");
        leases.install(&ahead, Some(&grant(&ahead, 1, 4, 1)));
        leases.install(&ahead, Some(&grant(&ahead, 1, 4, 1)));
        assert_eq!(
            [(); 2].map(|()| spend(&leases, &charge, 1).is_some()),
            [true, false]
        );
    }

    #[test]
    fn asks_that_were_granted_nothing_do_not_grow() {
        let (leases, charge) = (Leases::default(), charge(1_000, 1));
        assert!(leases.ahead_of(&charge, at(0)).is_none());
        for _ in 0..20 {
            let ahead = leases.ahead_of(&charge, at(0)).unwrap();
            assert_eq!(ahead.units, 1);
            leases.install(&ahead, None);
        }
    }

    #[test]
    fn what_a_panic_has_lost_can_be_asked_for_again() {
        let (leases, charge) = leased(4, 0);
        let _ = [(); 3].map(|()| leases.spend(&charge, at(1)));
        leases.forget_asks();
        assert!(leases.ahead_of(&charge, at(1)).is_some());
    }

    #[test]
    fn a_policy_without_leases_asks_for_none() {
        let policy = Policy::fixed(1_000, 60).leases(false);
        let charge = charge_of(&[(&policy, &Key::new("user", "a"))], 1);
        let leases = Leases::default();
        for _ in 0..3 {
            assert!(leases.ahead_of(&charge, at(0)).is_none());
        }
    }

    #[test]
    fn a_flood_of_keys_stays_inside_the_bound() {
        let leases = Leases::default();
        let policy = Policy::fixed(1_000, 60);
        for n in 0..2 * MOST_KEYS {
            let charge = charge_of(&[(&policy, &Key::new("user", n as u64))], 1);
            let _ = leases.ahead_of(&charge, at(0));
        }
        let keys: usize = leases.shards.iter().map(|shard| lock(shard).len()).sum();
        assert!(keys <= MOST_KEYS);
    }
}
