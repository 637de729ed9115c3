//! What all processes together were told, and what must be true of it.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use sqlx::{Connection, Row, SqliteConnection};

/// The policies of the limiters, as far as the ledger reckons with them.
pub(super) struct Rule {
    limit: u32,
    window: i64,
    is_sliding_counter: bool,
}

impl Rule {
    pub(super) fn of(text: &str) -> Self {
        let words: Vec<_> = text.split(':').collect();
        let number = |place: usize| words[place].parse::<u32>().unwrap();
        let seconds = match words[0] {
            "hourly" => 3_600,
            "daily" => 86_400,
            _ => number(2),
        };
        Self {
            limit: number(1),
            window: i64::from(seconds) * 1_000,
            is_sliding_counter: words[0] == "sliding-counter",
        }
    }

    fn window_of(&self, at: i64) -> i64 {
        at - at.rem_euclid(self.window)
    }
}

/// A key under a policy: the place of its limiter, that of the policy there, and the key.
type Counter = (usize, usize, usize);

/// What was told of one epoch of a window.
#[derive(Default)]
struct Account {
    admitted: u64,
    /// What was to be given back, whether it was or not.
    refunded: u64,
    /// The largest limit that a charge was held to.
    largest: u32,
    /// Units by instant.
    by_instant: BTreeMap<i64, u64>,
    /// The epoch of the window before. It is the same for all of them, since a reset raises both.
    before: u64,
}

#[derive(Default)]
pub(super) struct Ledger {
    rules: Vec<Vec<Rule>>,
    /// By counter, start of the window, and epoch.
    accounts: HashMap<(Counter, i64, u64), Account>,
    pub(super) admitted: u64,
    pub(super) refused: u64,
}

impl Ledger {
    pub(super) fn new(limiters: &[&str]) -> Self {
        let rules = limiters.iter();
        let rules = rules.map(|policies| policies.split(',').map(Rule::of).collect());
        Self {
            rules: rules.collect(),
            ..Self::default()
        }
    }

    /// Takes in a line of `bin/contender.rs`.
    pub(super) fn hear(&mut self, line: &str) {
        let (word, told) = line.split_once(' ').unwrap();
        let mut words = told.split(' ');
        let mut number = || words.next().unwrap().parse::<i64>().unwrap();
        let [limiter, key, at, cost] = [number(), number(), number(), number()];
        let [limiter, key] = [limiter, key].map(|place| usize::try_from(place).unwrap());
        let cost = u64::try_from(cost).unwrap();
        match word {
            "admitted" => self.admitted += 1,
            "refused" => {
                self.refused += 1;
                return;
            }
            "refunding" => {}
            _ => panic!("{line}"),
        }
        for (place, verdict) in words.enumerate() {
            let numbers: Vec<u64> = verdict.split(':').map(|n| n.parse().unwrap()).collect();
            let [limit, before, epoch] = numbers[..] else {
                panic!("{line}");
            };
            let rule = &self.rules[limiter][place];
            let window = rule.window_of(at);
            let counter = (limiter, place, key);
            let account = self.accounts.entry((counter, window, epoch)).or_default();
            if word == "refunding" {
                account.refunded += cost;
                continue;
            }
            assert!(account.admitted == 0 || account.before == before, "{line}");
            account.before = before;
            account.admitted += cost;
            account.largest = account.largest.max(u32::try_from(limit).unwrap());
            if rule.is_sliding_counter {
                *account.by_instant.entry(at).or_default() += cost;
            }
        }
    }

    fn rule(&self, (limiter, place, _): Counter) -> &Rule {
        &self.rules[limiter][place]
    }

    /// What a key can use of all limiters in a window of each, or less.
    pub(super) fn quota(&self) -> u64 {
        let limits = |policies: &Vec<Rule>| policies.iter().map(|rule| rule.limit).max();
        let limits = self.rules.iter().filter_map(limits);
        limits.map(u64::from).sum()
    }

    /// How many windows of keys something was admitted in, with each of their epochs.
    pub(super) fn windows(&self) -> usize {
        self.accounts.len()
    }

    /// In no epoch of a window more was admitted than the largest limit of the time: by `times` the policy's own.
    pub(super) fn assert_never_over(&self, times: u32) {
        assert!(self.admitted > 0);
        for ((counter, window, epoch), account) in &self.accounts {
            let Account {
                admitted,
                refunded,
                largest,
                ..
            } = *account;
            let limit = self.rule(*counter).limit;
            let at = format!("{counter:?} from {window}, epoch {epoch}");
            assert!(largest <= limit * times, "{at}: a limit of {largest}");
            assert!(
                admitted <= u64::from(largest) + refunded,
                "{at}: {admitted} of {largest} admitted, {refunded} refunded"
            );
        }
    }

    /// At each instant the sliding counters had room for what they had admitted until then. Of clocks that show the same second:
    /// who is late adds to a window before that others have looked at already.
    pub(super) fn assert_slides(&self) {
        let mut instants = 0;
        for ((counter, start, epoch), account) in &self.accounts {
            let rule = self.rule(*counter);
            let window = u128::try_from(rule.window).unwrap();
            let before = (*counter, start - rule.window, account.before);
            let before = self
                .accounts
                .get(&before)
                .map_or(0, |before| before.admitted);
            let mut current = 0;
            for (at, units) in &account.by_instant {
                current += u128::from(*units);
                let left = u128::try_from(start + rule.window - at).unwrap();
                let used = u128::from(before) * left + current * window;
                assert!(
                    used <= u128::from(rule.limit) * window,
                    "{counter:?} from {start}, epoch {epoch}: {current} at {at}, {before} before"
                );
                instants += 1;
            }
        }
        assert!(instants > 0);
    }

    /// Exactly the limit was admitted in each window, of several policies of one of them.
    pub(super) fn assert_full(&self) {
        assert!(self.admitted > 0);
        let is_full = |counter: Counter, account: &Account| {
            let limit = u64::from(self.rule(counter).limit);
            account.admitted - account.refunded == limit
        };
        for ((counter, window, epoch), account) in &self.accounts {
            let at = format!("{counter:?} from {window}");
            // Nothing was reset, and where epochs begin is the store's.
            let mut same = self.accounts.keys();
            let is_other =
                |of: &(Counter, i64, u64)| (of.0, of.1) == (*counter, *window) && of.2 != *epoch;
            assert!(!same.any(is_other), "{at} has two epochs");
            let (limiter, _, key) = *counter;
            let end = window + self.rule(*counter).window;
            let mut others = self.accounts.iter();
            let is_held = others.any(|((other, start, _), account)| {
                let overlaps = *start < end && *window < start + self.rule(*other).window;
                (other.0, other.2) == (limiter, key) && overlaps && is_full(*other, account)
            });
            assert!(is_held, "{at}: {} admitted", account.admitted);
        }
    }

    /// What was told is stored, and no more than `times` the limit is; where `is_exact`, nothing else is.
    pub(super) async fn assert_stored(&self, path: &Path, times: u32, is_exact: bool) {
        let url = format!("sqlite://{}", path.display());
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        let query = "SELECT policy, key, window_start, epoch, used FROM rate_limit_windows";
        let rows = sqlx::query(query).fetch_all(&mut connection).await.unwrap();
        assert!(!rows.is_empty());
        for row in rows {
            let (policy, key): (String, String) = (row.get(0), row.get(1));
            let (window, epoch): (i64, i64) = (row.get(2), row.get(3));
            let used = u64::try_from(row.get::<i64, _>(4)).unwrap();
            let at = format!("{policy} of {key} from {window}, epoch {epoch}");
            let counter = counter(&policy, &key);
            let account = (counter, window, u64::try_from(epoch).unwrap());
            let account = self.accounts.get(&account);
            let told = account.map_or(0, |account| {
                account.admitted.saturating_sub(account.refunded)
            });
            let limit = u64::from(self.rule(counter).limit * times);
            assert!(used <= limit, "{at}: {used} of {limit} stored");
            let is_stored = if is_exact { told == used } else { told <= used };
            assert!(is_stored, "{at}: {told} told, {used} stored");
        }
        connection.close().await.unwrap();
    }

    /// How full the windows of each policy became, in hundredths of a percent, and how many there were: of those without resets.
    pub(super) fn fullness(&self) -> BTreeMap<(usize, usize), (u64, usize)> {
        let mut sums: BTreeMap<(usize, usize), (u64, usize)> = BTreeMap::new();
        for ((counter, window, epoch), account) in &self.accounts {
            let was_reset = self.accounts.contains_key(&(*counter, *window, epoch + 1));
            if *epoch == 0 && !was_reset {
                let (units, windows) = sums.entry((counter.0, counter.1)).or_default();
                *units += account.admitted.saturating_sub(account.refunded);
                *windows += 1;
            }
        }
        for ((limiter, place), (units, windows)) in &mut sums {
            let limit = u64::from(self.rules[*limiter][*place].limit);
            *units = *units * 10_000 / (limit * *windows as u64);
        }
        sums
    }
}

/// The counter of a row: its policy begins with the name that `bin/contender.rs` gives.
fn counter(policy: &str, key: &str) -> Counter {
    let name = policy.split(';').next().unwrap();
    let (limiter, place) = name[1..].split_once('-').unwrap();
    let key = key.strip_prefix("user:").unwrap();
    (
        limiter.parse().unwrap(),
        place.parse().unwrap(),
        key.parse().unwrap(),
    )
}
