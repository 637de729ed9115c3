//! What each algorithm must admit, told from a list of every unit that was ever admitted.

use std::collections::HashMap;

use crate::limit::{Algorithm, Policy, Timestamp};

/// Everything that was admitted, of each policy and key.
#[derive(Default)]
pub(super) struct Model {
    admitted: HashMap<(String, u8), Vec<(i64, u32)>>,
}

impl Model {
    pub(super) fn take(&mut self, policy: &Policy, key: u8, now: i64, cost: u32) {
        let units = self.admitted.entry((policy.counter_name(), key));
        units.or_default().push((now, cost));
    }

    /// Forgets a charge.
    pub(super) fn give_back(&mut self, policy: &Policy, key: u8, at: i64, cost: u32) {
        let units = self.admitted.entry((policy.counter_name(), key));
        let units = units.or_default();
        let index = units.iter().position(|charge| *charge == (at, cost));
        units.remove(index.unwrap());
    }

    pub(super) fn fits(&self, policy: &Policy, key: u8, now: i64, cost: u32) -> bool {
        let admitted = self.admitted(policy, key);
        let window = i64::try_from(policy.period().as_millis()).unwrap();
        let (limit, cost) = (i128::from(policy.limit()), i128::from(cost));
        let sum = |is_in: &dyn Fn(i64) -> bool| {
            let units = admitted.iter().filter(|(at, _)| is_in(*at));
            units.map(|(_, units)| i128::from(*units)).sum::<i128>()
        };
        let of = |at: i64| {
            policy
                .span(Timestamp::from_unix_millis(at))
                .start
                .unix_millis()
        };
        match policy.algorithm() {
            Algorithm::SlidingWindow => sum(&|at| at + window > now) + cost <= limit,
            Algorithm::SlidingCounter => {
                let current = sum(&|at| of(at) == of(now));
                let previous = sum(&|at| of(at) == of(now) - window);
                let left = i128::from(window - (now - of(now)));
                let window = i128::from(window);
                previous * left + (current + cost) * window <= limit * window
            }
            Algorithm::TokenBucket => {
                // The theoretical arrival time, in milliseconds times the rate.
                let rate = i128::from(policy.rate());
                let scaled = |at: i64| i128::from(at) * rate;
                let arrival = |tat: i128, at: i64, cost: i128| {
                    tat.max(scaled(at)) + cost * i128::from(window)
                };
                let tat = admitted.iter().fold(i128::MIN, |tat, (at, units)| {
                    arrival(tat, *at, i128::from(*units))
                });
                arrival(tat, now, cost) - scaled(now) <= limit * i128::from(window)
            }
            _ => sum(&|at| of(at) == of(now)) + cost <= limit,
        }
    }

    /// What was admitted, in order.
    fn admitted(&self, policy: &Policy, key: u8) -> &[(i64, u32)] {
        let units = self.admitted.get(&(policy.counter_name(), key));
        units.map_or(&[], Vec::as_slice)
    }

    /// The most units in any window of the policy's length, whatever its position.
    pub(super) fn most_in_a_window(&self, policy: &Policy, key: u8) -> u64 {
        let admitted = self.admitted(policy, key);
        let window = i64::try_from(policy.period().as_millis()).unwrap();
        let from = admitted.iter().map(|(start, _)| {
            let inside = admitted
                .iter()
                .filter(|(at, _)| (*start..*start + window).contains(at));
            inside.map(|(_, units)| u64::from(*units)).sum::<u64>()
        });
        from.max().unwrap_or(0)
    }
}
