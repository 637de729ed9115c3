//! Resets: of a key, and a page at a time of the keys under it.
//!
//! There is no list of keys: those under a key are looked for among all that the server has.

use std::collections::BTreeSet;

use redis::Cmd;

use super::answer::Numbers;
use super::backend::{Redis, numbers};
use super::failure::{certain, failure};
use super::limits;
use super::packed::Packed;
use super::plan::{Kind, period};
use super::scripts::Script;
use super::servers::Ask;
use super::slots::slot_of;
use super::spread::{declared, grouped};
use crate::limit::Timestamp;
use crate::limit::algorithm::State;
use crate::limit::algorithm::fixed_window::Usage;
use crate::limit::algorithm::sliding_counter::Pair;
use crate::store::engine::{Cursor, Page};
use crate::store::{Reset, StoreError};

/// Keys of the server that a page goes through: a fraction of a millisecond, and as many resets at the most.
const PAGE: u32 = 1_000;

/// Resets the key itself, and then page by page those under it.
pub(super) async fn reset(
    redis: &mut Redis,
    reset: &Reset,
    after: Option<Cursor>,
) -> Result<Page, StoreError> {
    let (from, to) = reset.part.key.under();
    let Some(after) = after else {
        let key = reset.part.key.as_str();
        // What all keys begin with is none itself.
        let own = [key];
        let own = if key.is_empty() { &[][..] } else { &own };
        let count = reset_keys(redis, reset, own, (key, key)).await?;
        let next = Cursor {
            key: from,
            ..Cursor::default()
        };
        return Ok(Page {
            count,
            kept: 0,
            next: reset.with_keys_under.then_some(next),
        });
    };
    let counter = &*reset.part.rule.counter;
    let node = redis.servers.next(after.table).await?;
    // What another one has by now was looked through, or will be, or neither.
    let moves = redis.servers.moves().to_string();
    let is_as_before = after.policy.is_empty() || after.policy == moves;
    let Some(node) = node.filter(|_| is_as_before) else {
        return Err(certain(MasterGone));
    };
    let mut scan = Cmd::new();
    let place = if after.route.is_empty() {
        "0"
    } else {
        &after.route
    };
    scan.arg("SCAN").arg(place);
    scan.arg("MATCH").arg(redis.names.pattern(counter, &from));
    scan.arg("COUNT").arg(PAGE);
    let answer = redis.servers.ask(node, &scan).await?;
    let (place, found): (String, Vec<Vec<u8>>) =
        redis::from_redis_value(answer.value).map_err(|error| failure(error.into()))?;
    let found: Vec<_> = found
        .into_iter()
        .filter_map(|name| String::from_utf8(name).ok())
        .collect();
    let keys = found
        .iter()
        .filter_map(|name| redis.names.key_in(counter, name));
    // A key has several windows.
    let keys: BTreeSet<_> = keys.filter(|key| (&*from..&*to).contains(key)).collect();
    let keys: Vec<_> = keys.into_iter().collect();
    let units = reset_keys(redis, reset, &keys, (&from, &to)).await?;
    // They are told with the last page: it is then that what is known of the keys is forgotten, in whatever order they were found.
    let count = after.at.unsigned_abs().saturating_add(units);
    let is_last_of_node = place == "0";
    let next = if is_last_of_node {
        redis.servers.next(node + 1).await?
    } else {
        Some(node)
    };
    Ok(Page {
        count: if next.is_none() { count } else { 0 },
        kept: 0,
        next: next.map(|table| Cursor {
            table,
            key: from,
            // Each begins with "0".
            route: if is_last_of_node {
                String::new()
            } else {
                place
            },
            at: i64::try_from(count).unwrap_or(i64::MAX),
            policy: moves,
        }),
    })
}

async fn reset_keys(
    redis: &mut Redis,
    reset: &Reset,
    keys: &[&str],
    (first, last): (&str, &str),
) -> Result<u64, StoreError> {
    if keys.is_empty() {
        return Ok(0);
    }
    let counter = &*reset.part.rule.counter;
    let kind = Kind::of(&reset.part);
    let tells = !redis.servers.is_cluster();
    let all = keys.iter().map(|key| redis.names.of_texts(counter, key));
    let groups = grouped(all, |name| if tells { 0 } else { slot_of(name) });
    let asks = groups.iter().map(|group| {
        let mut asked = Packed::default();
        asked.list(6).number(tells.into()).number(kind.number());
        asked.number(period(reset.part.policy()));
        asked.text(counter).text(first).text(last);
        let names = group.things.clone();
        let declared = names
            .iter()
            .map(|name| declared(&reset.part, name, reset.at));
        Ask {
            declared: declared.flatten().collect(),
            names,
            asked,
        }
    });
    let asks: Vec<_> = asks.collect();
    if !tells {
        // Before and after it: who hears of it in between may lease from what is still to be reset.
        limits::tell_reset(redis, (counter, first, last)).await?;
    }
    let answers = redis.run_each(Script::Reset, Some(reset.at), asks).await;
    let mut units: u64 = 0;
    for (group, answer) in groups.iter().zip(answers) {
        let mut numbers = numbers(answer)?;
        let now = numbers.instant()?;
        for _ in &group.things {
            units = units.saturating_add(used(reset, kind, now, &mut numbers)?);
        }
    }
    if !tells {
        limits::tell_reset(redis, (counter, first, last)).await?;
    }
    Ok(units)
}

/// A node was no master any more before all that it had was looked through.
#[derive(Debug)]
struct MasterGone;

impl std::fmt::Display for MasterGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a master of the cluster has changed during the reset: reset it once more")
    }
}

impl std::error::Error for MasterGone {}

/// The units that were in force of a counter.
fn used(
    reset: &Reset,
    kind: Kind,
    now: Timestamp,
    numbers: &mut Numbers,
) -> Result<u64, StoreError> {
    let policy = reset.part.policy();
    let mut usage = || {
        numbers.count().map(|used| Usage {
            used,
            ..Usage::default()
        })
    };
    let state = match kind {
        Kind::Window | Kind::Month | Kind::Log => return numbers.count(),
        Kind::Pair => {
            let (current, previous) = (usage()?, usage()?);
            State::Pair(Pair { previous, current })
        }
        Kind::Bucket => State::of_bucket(numbers.bucket()?, policy, now),
        Kind::Block => return Ok(0),
    };
    Ok(state.used(policy, now))
}
