//! What an algorithm makes of the requests.

use anyhow::Result;
use tollgate::{Key, Limiter, ManualClock, MemoryStore, Policy, Timestamp};

pub(super) const LIMIT: u32 = 10;
pub(super) const WINDOW_MILLIS: i64 = 60_000;
const WINDOW_SECONDS: u64 = 60;
const BURST: u32 = 5;

/// The beginning, at a full hour.
const START: i64 = 1_800_000_000_000;

/// An algorithm, and its decisions.
pub(super) struct Shown {
    pub(super) title: &'static str,
    /// As it is written in code.
    pub(super) code: String,
    /// What to see.
    pub(super) remark: &'static str,
    /// The instants of the requests that passed, and of those that did not.
    pub(super) admitted: Vec<i64>,
    pub(super) refused: Vec<i64>,
}

impl Shown {
    /// A calendar quota is left out: it is a fixed window whose boundaries are those of the calendar.
    pub(super) async fn all(requests: &[i64]) -> Result<Vec<Self>> {
        let numbers = format!("({LIMIT}, {WINDOW_SECONDS})");
        let algorithms = [
            (
                "Fixed window",
                format!("fixed{numbers}"),
                "twice the limit around a boundary",
                Policy::fixed(LIMIT, WINDOW_SECONDS),
            ),
            (
                "Sliding window, exact",
                format!("sliding{numbers}"),
                "never more, wherever the window lies",
                Policy::sliding(LIMIT, WINDOW_SECONDS),
            ),
            (
                "Sliding counter",
                format!("sliding_counter{numbers}"),
                "takes the window before as spread evenly",
                Policy::sliding_counter(LIMIT, WINDOW_SECONDS),
            ),
            (
                "Token bucket",
                format!("token_bucket{numbers}.burst({BURST})"),
                "five at once, then one each 6 s",
                Policy::token_bucket(LIMIT, WINDOW_SECONDS).burst(BURST),
            ),
        ];
        let mut all = Vec::new();
        for (title, code, remark, policy) in algorithms {
            let (admitted, refused) = decide(policy, requests).await?;
            all.push(Self {
                title,
                code,
                remark,
                admitted,
                refused,
            });
        }
        Ok(all)
    }

    /// How many were admitted in the window that ends at each instant where that changes, in the order of time. What was
    /// admitted counts until just before it is a window old.
    pub(super) fn in_last_window(&self) -> Vec<(i64, u32)> {
        let comes = self.admitted.iter().map(|at| (*at, 1));
        let leaves = self.admitted.iter().map(|at| (*at + WINDOW_MILLIS, -1));
        let mut changes: Vec<(i64, i32)> = comes.chain(leaves).collect();
        // What leaves first, where both fall on one instant.
        changes.sort_unstable();
        let mut steps: Vec<(i64, u32)> = Vec::new();
        let mut count = 0;
        for (at, change) in changes {
            count += change;
            let step = (at, u32::try_from(count).unwrap_or(0));
            match steps.last_mut() {
                Some(last) if last.0 == at => *last = step,
                _ => steps.push(step),
            }
        }
        steps
    }
}

/// Asks the library for each request, and gives the instants of those that passed and of those that did not.
async fn decide(policy: Policy, requests: &[i64]) -> Result<(Vec<i64>, Vec<i64>)> {
    let clock = ManualClock::new(Timestamp::from_unix_millis(START));
    let limiter = Limiter::new(policy).store(&MemoryStore::new().clock(&clock));
    let key = Key::constant("shown");
    let (mut admitted, mut refused) = (Vec::new(), Vec::new());
    for at in requests {
        clock.set(Timestamp::from_unix_millis(START + at));
        if limiter.check(&key).await?.is_allowed() {
            admitted.push(*at);
        } else {
            refused.push(*at);
        }
    }
    Ok((admitted, refused))
}
