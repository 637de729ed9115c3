//! Limits that are set at run time, and what others are told: what is not of a single counter.

use redis::Value;

use super::backend::Redis;
use super::failure::{failure, fault};
use super::names::instant;
use super::packed::Packed;
use super::scripts::Script;
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
}

async fn ask(redis: &mut Redis, at: Option<Timestamp>, asked: Packed) -> Result<Value, StoreError> {
    // No key is named: they are all in the slot of their tag.
    Ok(redis.run(Script::Shared, &[], at, asked).await?.value)
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
    asked.list(2).number(What::Sweep as i64).number(rows.into());
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
    let value = ask(redis, None, asked).await?;
    let no_list = || fault("a script did not answer what became free");
    let Value::Array(values) = value else {
        return Err(no_list());
    };
    let [Value::Int(last), Value::Int(is_all), changes @ ..] = &*values else {
        return Err(no_list());
    };
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
