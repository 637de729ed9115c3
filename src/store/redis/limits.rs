//! Limits that are set at run time, and what others are told: what is not of a single counter.

use std::collections::HashSet;

use redis::Value;

use super::backend::Redis;
use super::failure::{failure, fault};
use super::names::instant;
use super::packed::Packed;
use super::scripts::Script;
use super::servers::Ask;
use super::slots::slot_of;
use crate::limit::{Key, Limit, StoredLimit, Timestamp};
use crate::store::engine::{Changes, Freed, Page};
use crate::store::{Limits, LimitsAsk, SetLimit, StoreError, Which};

/// So many changes are read at once, and some more are kept.
const MOST_CHANGES: i64 = 8_000;

/// What the script is asked for.
enum What {
    Set = 0,
    Find = 1,
    List = 2,
    Sweep = 4,
    Changes = 5,
    Tell = 6,
    OfKeys = 7,
    Which = 8,
}

/// Tells others of keys to which units went back, where the script could not.
pub(super) async fn tell(
    redis: &mut Redis,
    freed: &HashSet<(String, String)>,
) -> Result<(), StoreError> {
    let mut asked = Packed::default();
    asked.list(2).number(What::Tell as i64).list(freed.len());
    for (counter, key) in freed {
        asked.list(4).number(0).text(counter).text(key).text(key);
    }
    ask(redis, None, asked).await.map(drop)
}

/// Tells others of a reset, where the script could not.
pub(super) async fn tell_reset(
    redis: &mut Redis,
    (counter, first, last): (&str, &str, &str),
) -> Result<(), StoreError> {
    let mut asked = Packed::default();
    asked.list(2).number(What::Tell as i64).list(1);
    asked.list(4).number(2).text(counter).text(first).text(last);
    ask(redis, None, asked).await.map(drop)
}

/// What is set for keys: of each that of the key and that of all, or empty texts.
pub(super) async fn of_keys(
    redis: &mut Redis,
    keys: &[(&str, &str)],
) -> Result<Vec<String>, StoreError> {
    let mut asked = Packed::default();
    asked.list(2).number(What::OfKeys as i64).list(keys.len());
    for (policy, key) in keys {
        asked.list(2).text(policy).text(key);
    }
    let value = ask(redis, None, asked).await?;
    redis::from_redis_value(value).map_err(|error| failure(error.into()))
}

/// Which policies have limits.
pub(super) async fn which(redis: &mut Redis, policies: &[&str]) -> Result<Vec<i64>, StoreError> {
    let mut asked = Packed::default();
    asked
        .list(2)
        .number(What::Which as i64)
        .list(policies.len());
    for policy in policies {
        asked.text(policy);
    }
    let value = ask(redis, None, asked).await?;
    redis::from_redis_value(value).map_err(|error| failure(error.into()))
}

async fn ask(redis: &mut Redis, at: Option<Timestamp>, asked: Packed) -> Result<Value, StoreError> {
    Ok(redis
        .run(Script::Shared, at, Ask::shared(asked))
        .await?
        .value)
}

/// Sets a limit, or removes it, and says whether there was one.
pub(super) async fn set(redis: &mut Redis, set: &SetLimit) -> Result<bool, StoreError> {
    let mut asked = Packed::default();
    asked.list(5).number(What::Set as i64);
    asked.text(&set.filed_under).text(set.key_text());
    match set.limit {
        None => {
            asked.nothing().nothing();
        }
        Some(new) => {
            let units = new
                .units
                .map_or("none".to_owned(), |units| units.to_string());
            match new.ends_at.map(instant) {
                None => asked.text(&units).nothing(),
                Some(end) => asked.text(&format!("{units} {end}")).number(end),
            };
        }
    }
    let value = ask(redis, Some(set.now), asked).await?;
    redis.limits.set();
    Ok(value == Value::Int(1))
}

/// The limits that are set.
pub(super) async fn list(redis: &mut Redis, limits: &LimitsAsk) -> Result<Limits, StoreError> {
    let mut asked = Packed::default();
    let text = |key: &Option<Key>| match key {
        Some(key) => key.as_str().to_owned(),
        None => SetLimit::OF_ALL.to_owned(),
    };
    match &limits.which {
        Which::Of(key) => asked
            .list(3)
            .number(What::Find as i64)
            .text(&limits.filed_under)
            .text(&text(key)),
        Which::Keys { after, most } => asked
            .list(4)
            .number(What::List as i64)
            .text(&limits.filed_under)
            .text(&text(after))
            .number((*most).into()),
    };
    let value = ask(redis, Some(limits.now), asked).await?;
    let texts: Vec<String> =
        redis::from_redis_value(value).map_err(|error| failure(error.into()))?;
    let mut found = Limits::with_capacity(texts.len() / 2);
    for pair in texts.chunks_exact(2) {
        let key = match &*pair[0] {
            SetLimit::OF_ALL => Ok(None),
            text => text.parse().map(Some),
        };
        // What somebody has written for a text that is no key holds for nobody.
        if let (Ok(key), Some(limit)) = (key, stored(&pair[1])) {
            found.push(StoredLimit::new(key, limit.0, limit.1));
        }
    }
    Ok(found)
}

/// A limit as it is stored, and its end.
fn stored(text: &str) -> Option<(Limit, Option<Timestamp>)> {
    let (units, end) = match text.split_once(' ') {
        Some((units, end)) => (units, Some(end.parse().ok()?)),
        None => (text, None),
    };
    let units = match units {
        "none" => None,
        // A sign is none of a script's either.
        units if units.starts_with('+') => return None,
        units => Some(units.parse().ok()?),
    };
    Some((
        Limit::of_stored(units),
        end.map(Timestamp::from_unix_millis),
    ))
}

/// Deletes limits that have ended.
pub(super) async fn sweep(
    redis: &mut Redis,
    now: Timestamp,
    rows: u32,
) -> Result<Page, StoreError> {
    let mut asked = Packed::default();
    // What a node takes for the time is never later than what it knows of the server's, which may have stepped back since. Only a test
    // has set one that is.
    let is_set = now > redis.clock.now();
    asked.list(3).number(What::Sweep as i64).number(rows.into());
    asked.number(is_set.into());
    let value = ask(redis, Some(now), asked).await?;
    let Value::Int(count) = value else {
        return Err(fault("a script did not answer how many limits have ended"));
    };
    Ok(Page {
        count: count.unsigned_abs(),
        ..Page::default()
    })
}

/// What became free since a number.
pub(super) async fn changes(redis: &mut Redis, after: Option<i64>) -> Result<Changes, StoreError> {
    let mut asked = Packed::default();
    asked.list(3).number(What::Changes as i64);
    match after {
        Some(after) => asked.number(after),
        None => asked.nothing(),
    };
    asked.number(MOST_CHANGES);
    let answer = redis.run(Script::Shared, None, Ask::shared(asked)).await?;
    let no_list = || fault("a script did not answer what became free");
    let Value::Array(values) = answer.value else {
        return Err(no_list());
    };
    let [
        Value::Int(now),
        Value::Int(last),
        Value::Int(is_all),
        changes @ ..,
    ] = &*values
    else {
        return Err(no_list());
    };
    let slot = slot_of(&redis.names.shared());
    redis.hear(slot, answer.sent, Timestamp::from_unix_millis(*now));
    let freed = changes.iter().map(freed).collect::<Option<Vec<_>>>();
    Ok(Changes {
        last: *last,
        freed: freed.filter(|_| *is_all == 1),
    })
}

/// A change as it is stored: its number, the kind, and whom it is of. `None` is one of a later version.
fn freed(value: &Value) -> Option<Freed> {
    let Value::BulkString(bytes) = value else {
        return None;
    };
    let text = str::from_utf8(bytes).ok()?;
    let mut texts = text.split('\n').skip(1).map(str::to_owned);
    let (kind, of, first, last) = (texts.next()?, texts.next()?, texts.next()?, texts.next()?);
    match &*kind {
        "1" => Some(Freed::Limit {
            filed_under: of,
            key: first,
        }),
        "0" | "2" => Some(Freed::Keys {
            counter: of,
            first,
            last,
            is_reset: kind == "2",
        }),
        _ => None,
    }
}
