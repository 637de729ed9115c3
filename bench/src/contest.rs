//! Who is measured over HTTP, beside whom, and what is to be reached.

use crate::contestant::{Contestant, Quota};
use crate::keys::Keys;
use crate::report::{Comparison, Figure, Ratio};

/// A row of the table.
pub(crate) type Entrant = (Contestant, Keys);

pub(crate) const NONE: Entrant = (Contestant::None, Keys::One);
pub(crate) const GOVERNOR: Entrant = (Contestant::Governor, Keys::One);
pub(crate) const GOVERNOR_MANY: Entrant = (Contestant::Governor, Keys::Many);
const GOVERNOR_HEADERS: Entrant = (Contestant::GovernorHeaders, Keys::One);
pub(crate) const TOLLGATE: Entrant = (Contestant::Tollgate, Keys::One);
pub(crate) const TOLLGATE_MANY: Entrant = (Contestant::Tollgate, Keys::Many);
pub(crate) const SLIDING: Entrant = (Contestant::TollgateSliding, Keys::One);
pub(crate) const UNLEASED_MANY: Entrant = (Contestant::TollgateUnleased, Keys::Many);
pub(crate) const UPSERT: Entrant = (Contestant::Upsert, Keys::One);
pub(crate) const UPSERT_MANY: Entrant = (Contestant::Upsert, Keys::Many);
pub(crate) const REDIS: Entrant = (Contestant::Redis, Keys::One);
pub(crate) const REDIS_MANY: Entrant = (Contestant::Redis, Keys::Many);

/// In the order of the table.
const ENTRANTS: [Entrant; 12] = [
    NONE,
    GOVERNOR,
    GOVERNOR_HEADERS,
    TOLLGATE,
    SLIDING,
    REDIS,
    UPSERT,
    GOVERNOR_MANY,
    TOLLGATE_MANY,
    UNLEASED_MANY,
    REDIS_MANY,
    UPSERT_MANY,
];
const ENTRANTS_REFUSED: [Entrant; 10] = [
    NONE,
    GOVERNOR,
    GOVERNOR_HEADERS,
    TOLLGATE,
    REDIS,
    UPSERT,
    GOVERNOR_MANY,
    TOLLGATE_MANY,
    REDIS_MANY,
    UPSERT_MANY,
];

/// The first of two, beside the second, and what is to be reached.
type Beside = (Entrant, Entrant, Option<f64>);

const RATES: [Beside; 14] = [
    (TOLLGATE, GOVERNOR, Some(1.0)),
    (TOLLGATE, UPSERT, Some(8.0)),
    (TOLLGATE, REDIS, Some(1.25)),
    (TOLLGATE_MANY, GOVERNOR_MANY, Some(0.95)),
    (TOLLGATE_MANY, UPSERT_MANY, Some(7.0)),
    (TOLLGATE_MANY, REDIS_MANY, Some(1.2)),
    (UNLEASED_MANY, REDIS_MANY, Some(0.9)),
    (SLIDING, GOVERNOR, Some(0.75)),
    (TOLLGATE, GOVERNOR_HEADERS, None),
    (TOLLGATE, NONE, None),
    (NONE, GOVERNOR, None),
    // What is the most that a limiter could reach beside these.
    (NONE, UPSERT, None),
    (NONE, REDIS, None),
    (GOVERNOR, UPSERT, None),
];
const CPU: [Beside; 6] = [
    (TOLLGATE, GOVERNOR, Some(1.0)),
    (TOLLGATE_MANY, GOVERNOR_MANY, Some(1.1)),
    (TOLLGATE, REDIS, None),
    (TOLLGATE_MANY, REDIS_MANY, None),
    (UNLEASED_MANY, REDIS_MANY, None),
    (SLIDING, GOVERNOR, None),
];
const P99: [Beside; 6] = [
    (TOLLGATE, GOVERNOR, Some(1.15)),
    (TOLLGATE_MANY, GOVERNOR_MANY, Some(1.3)),
    (TOLLGATE, REDIS, None),
    (TOLLGATE_MANY, REDIS_MANY, None),
    (UNLEASED_MANY, REDIS_MANY, None),
    (SLIDING, GOVERNOR, None),
];

const RATES_REFUSED: [Beside; 11] = [
    (TOLLGATE, GOVERNOR, Some(1.0)),
    (TOLLGATE, UPSERT, Some(8.0)),
    (TOLLGATE, REDIS, Some(1.25)),
    (TOLLGATE_MANY, GOVERNOR_MANY, None),
    (TOLLGATE_MANY, UPSERT_MANY, None),
    (TOLLGATE_MANY, REDIS_MANY, None),
    (TOLLGATE, GOVERNOR_HEADERS, None),
    (TOLLGATE, NONE, None),
    (NONE, GOVERNOR, None),
    (NONE, UPSERT, None),
    (NONE, REDIS, None),
];
const CPU_REFUSED: [Beside; 4] = [
    (TOLLGATE, GOVERNOR, Some(1.0)),
    (TOLLGATE_MANY, GOVERNOR_MANY, None),
    (TOLLGATE, GOVERNOR_HEADERS, None),
    (TOLLGATE, REDIS, None),
];
const P99_REFUSED: [Beside; 4] = [
    (TOLLGATE, GOVERNOR, Some(1.15)),
    (TOLLGATE_MANY, GOVERNOR_MANY, None),
    (TOLLGATE, GOVERNOR_HEADERS, None),
    (TOLLGATE, REDIS, None),
];

/// What its row is called.
pub(crate) fn label((contestant, keys): Entrant) -> String {
    format!("{}, {}", contestant.label(), keys.label())
}

/// Those that are measured, where there is a Redis or none.
pub(crate) fn entrants(quota: Quota, has_redis: bool) -> Vec<Entrant> {
    let all: &[Entrant] = match quota {
        Quota::Endless => &ENTRANTS,
        Quota::One => &ENTRANTS_REFUSED,
    };
    all.iter()
        .filter(|(contestant, _)| has_redis || *contestant != Contestant::Redis)
        .copied()
        .collect()
}

/// What is compared among those that are there.
pub(crate) fn comparisons(quota: Quota, entrants: &[Entrant]) -> Vec<Comparison> {
    let [rates, cpu, p99]: [&[Beside]; 3] = match quota {
        Quota::Endless => [&RATES, &CPU, &P99],
        Quota::One => [&RATES_REFUSED, &CPU_REFUSED, &P99_REFUSED],
    };
    let row = |entrant: &Entrant| entrants.iter().position(|other| other == entrant);
    let ratio = |(of, to, target): &Beside| {
        Some(Ratio {
            of: row(of)?,
            to: row(to)?,
            target: *target,
        })
    };
    [
        (Figure::Rate, rates),
        (Figure::Cpu, cpu),
        (Figure::P99, p99),
    ]
    .map(|(figure, besides)| Comparison {
        figure,
        ratios: besides.iter().filter_map(ratio).collect(),
    })
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_compared_is_measured() {
        for (quota, expected) in [(Quota::Endless, 26), (Quota::One, 19)] {
            let entrants = entrants(quota, true);
            let ratios = comparisons(quota, &entrants);
            let count: usize = ratios.iter().map(|by| by.ratios.len()).sum();
            assert_eq!(count, expected, "{quota:?}");
        }
    }

    #[test]
    fn without_redis_the_others_are_compared() {
        let entrants = entrants(Quota::Endless, false);
        assert_eq!(entrants.len(), 10);
        for by in comparisons(Quota::Endless, &entrants) {
            assert!(by.ratios.iter().all(|ratio| ratio.of.max(ratio.to) < 10));
        }
    }
}
