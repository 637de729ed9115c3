//! The tables, and the statements on each of them.

pub(super) mod buckets;
pub(super) mod calls;
pub(super) mod changes;
pub(super) mod events;
pub(super) mod limits;
mod resetting;
mod rows;
pub(super) mod schema;
mod sweeping;
mod usage;
pub(super) mod windows;

pub(super) use self::resetting::reset;
pub(super) use self::rows::{Slot, decoding, fault, json, unsigned};
pub(super) use self::sweeping::{is_of_counters, sweep};
#[cfg(test)]
pub(super) use self::usage::statements as usage_statements;
pub(super) use self::usage::usage;

use crate::limit::Algorithm;
use crate::store::engine::Attempts;
use crate::store::sqlite::Database;
use crate::store::{Part, StoreError};

/// Counts what was refused without asking.
pub(super) async fn count_refused(
    database: &mut Database,
    attempts: &[Attempts],
) -> Result<(), StoreError> {
    let row = |attempts: &Attempts| {
        let start = attempts.window_start.unix_millis();
        let Part { rule, key } = &attempts.part;
        let names = (rule.counter.clone(), key.as_str().to_owned());
        (names.0, names.1, start, attempts.epoch, attempts.units)
    };
    let rows: Vec<_> = attempts.iter().map(row).collect();
    let query = sqlx::query(windows::COUNT_REFUSED).bind(json(&rows)?);
    database.execute(query).await.map(drop)
}

/// All statements but those of `ledger/`, which has its own list.
#[cfg(test)]
pub(super) fn statements() -> impl Iterator<Item = &'static str> {
    let resets = [
        windows::RESET,
        windows::KEY_PAGE_END,
        events::RESET,
        events::KEY_PAGE_END,
        buckets::RESET,
        buckets::KEY_PAGE_END,
    ];
    let resets = resets.into_iter().chain(sweeping::statements());
    let others = calls::statements().chain(usage::statements());
    let others = others
        .chain(limits::statements())
        .chain(changes::statements());
    resets.chain(others).chain([windows::COUNT_REFUSED])
}

/// The tables with rows that expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Windows,
    Events,
    Buckets,
}

impl Table {
    pub(super) const ALL: [Self; 3] = [Self::Windows, Self::Events, Self::Buckets];

    /// The table in which a counter is.
    pub(super) fn of(part: &Part) -> Self {
        match part.policy().algorithm() {
            _ if part.is_block() => Self::Buckets,
            Algorithm::SlidingWindow => Self::Events,
            Algorithm::TokenBucket => Self::Buckets,
            _ => Self::Windows,
        }
    }
}
