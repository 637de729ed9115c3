//! What records hold: when they expire, what they are, and numbers. Stored data hangs on it.

use std::fmt::Write;

use super::fault;
use crate::limit::algorithm::block::Block;
use crate::limit::algorithm::fixed_window::Usage;
use crate::limit::algorithm::sliding_window::Events;
use crate::limit::algorithm::token_bucket::Bucket;
use crate::limit::{Key, Limit, StoredLimit, Timestamp};
use crate::store::StoreError;
use crate::store::engine::Freed;
use crate::store::memory::Kept;

/// What does not expire, and what has no limit.
const NONE: &str = "-";

/// `1700000060000 window 3 0 0`.
pub(super) fn of_kept(kept: &Kept, expires_at: Timestamp) -> String {
    let expires_at = expires_at.unix_millis();
    match kept {
        Kept::Window(Usage {
            used,
            denied,
            epoch,
        }) => format!("{expires_at} window {used} {denied} {epoch}"),
        Kept::Bucket(bucket) => {
            let [at, since] = [bucket.at, bucket.since].map(Timestamp::unix_millis);
            let (used, parts) = (bucket.used, bucket.parts);
            format!("{expires_at} bucket {at} {used} {parts} {since}")
        }
        Kept::Block(block) => {
            let at = block.at.unix_millis();
            format!("{expires_at} block {} {at}", block.refused)
        }
        Kept::Events(events) => {
            let mut text = format!("{expires_at} events");
            for (at, units) in events.iter() {
                // Writing into a `String` can't fail.
                let _ = write!(text, " {} {units}", at.unix_millis());
            }
            text
        }
    }
}

/// What is kept in a record, and when it expires.
pub(super) fn kept(value: &str) -> Result<(Kept, Timestamp), StoreError> {
    let mut fields = Fields::of(value);
    let expires_at = fields.instant()?;
    let kept = match fields.text()? {
        "window" => Kept::Window(Usage {
            used: fields.unsigned()?,
            denied: fields.unsigned()?,
            epoch: fields.unsigned()?,
        }),
        "bucket" => Kept::Bucket(Bucket {
            at: fields.instant()?,
            used: fields.unsigned()?,
            parts: fields.unsigned()?,
            since: fields.instant()?,
            is_moved: false,
        }),
        "block" => Kept::Block(Block {
            refused: fields.unsigned()?,
            at: fields.instant()?,
            is_moved: false,
        }),
        "events" => {
            let mut events = Events::default();
            while !fields.is_at_end() {
                events.push(fields.instant()?, fields.unsigned()?);
            }
            Kept::Events(events)
        }
        _ => return Err(unreadable()),
    };
    Ok((kept, expires_at))
}

/// When a record expires, whatever it is, if it does.
pub(super) fn expires_at(value: &str) -> Result<Option<Timestamp>, StoreError> {
    match Fields::of(value).text()? {
        NONE => Ok(None),
        _ => Fields::of(value).instant().map(Some),
    }
}

/// `1700000060000 limit 10`, or `- limit -`.
pub(super) fn of_limit(units: Option<u32>, ends_at: Option<Timestamp>) -> String {
    let ends_at = ends_at.map_or(NONE.to_owned(), |at| at.unix_millis().to_string());
    let units = units.map_or(NONE.to_owned(), |units| units.to_string());
    format!("{ends_at} limit {units}")
}

pub(super) fn limit(key: Option<Key>, value: &str) -> Result<StoredLimit, StoreError> {
    let ends_at = expires_at(value)?;
    let mut fields = Fields::of(value);
    fields.text()?;
    if fields.text()? != "limit" {
        return Err(unreadable());
    }
    let units = match fields.text()? {
        NONE => None,
        units => Some(units.parse().map_err(|_| unreadable())?),
    };
    Ok(StoredLimit::new(key, Limit::of_stored(units), ends_at))
}

/// `1700000060000 limits`, and after it the names with a tab before each; or `keys`, or `reset`.
pub(super) fn of_freed(freed: &Freed, expires_at: Timestamp) -> String {
    let expires_at = expires_at.unix_millis();
    match freed {
        Freed::Limit { filed_under, key } => format!("{expires_at} limits\t{filed_under}\t{key}"),
        Freed::Keys {
            counter,
            first,
            last,
            is_reset,
        } => {
            let kind = if *is_reset { "reset" } else { "keys" };
            format!("{expires_at} {kind}\t{counter}\t{first}\t{last}")
        }
    }
}

pub(super) fn freed(value: &str) -> Result<Freed, StoreError> {
    let mut fields = value.split('\t');
    let mut field = || fields.next().map(str::to_owned).ok_or_else(unreadable);
    let kind = field()?;
    let kind = kind.rsplit(' ').next().unwrap_or_default();
    if kind == "limits" {
        return Ok(Freed::Limit {
            filed_under: field()?,
            key: field()?,
        });
    }
    Ok(Freed::Keys {
        counter: field()?,
        first: field()?,
        last: field()?,
        is_reset: match kind {
            "keys" => false,
            "reset" => true,
            _ => return Err(unreadable()),
        },
    })
}

/// The words of a value.
struct Fields<'a>(std::iter::Peekable<std::str::Split<'a, char>>);

impl<'a> Fields<'a> {
    fn of(value: &'a str) -> Self {
        Self(value.split(' ').peekable())
    }

    fn is_at_end(&mut self) -> bool {
        self.0.peek().is_none()
    }

    fn text(&mut self) -> Result<&'a str, StoreError> {
        self.0.next().ok_or_else(unreadable)
    }

    fn unsigned(&mut self) -> Result<u64, StoreError> {
        self.text()?.parse().map_err(|_| unreadable())
    }

    fn instant(&mut self) -> Result<Timestamp, StoreError> {
        let millis = self.text()?.parse().map_err(|_| unreadable())?;
        Ok(Timestamp::from_unix_millis(millis))
    }
}

fn unreadable() -> StoreError {
    fault(
        "a record is none of this version's: keep them apart from others, and read them by nothing else",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_unix_millis(millis)
    }

    /// Stored data hangs on it.
    #[test]
    fn values_are_written_as_ever_and_read_back() {
        let mut events = Events::default();
        events.push(at(-5), 2);
        events.push(at(1_700_000_000_000), 1);
        let cases = [
            (
                Kept::Window(Usage {
                    used: 3,
                    denied: 1,
                    epoch: 2,
                }),
                "9 window 3 1 2",
            ),
            (
                Kept::Bucket(Bucket {
                    used: 3,
                    parts: 7,
                    ..Bucket::full(at(8))
                }),
                "9 bucket 8 3 7 8",
            ),
            (
                Kept::Block(Block {
                    refused: 4,
                    ..Block::none(at(-1))
                }),
                "9 block 4 -1",
            ),
            (Kept::Events(events), "9 events -5 2 1700000000000 1"),
            (Kept::Events(Events::default()), "9 events"),
        ];
        for (value, text) in cases {
            assert_eq!(of_kept(&value, at(9)), text);
            let (read, expires_at) = kept(text).unwrap();
            assert_eq!(of_kept(&read, expires_at), text);
            assert_eq!(super::expires_at(text).unwrap(), Some(at(9)));
        }
    }

    #[test]
    fn limits_and_changes_are_read_back() {
        for (units, ends_at) in [
            (Some(7), None),
            (None, Some(at(9))),
            (Some(0), Some(at(-9))),
        ] {
            let text = of_limit(units, ends_at);
            let limit = limit(None, &text).unwrap();
            assert_eq!((limit.limit().units(), limit.ends_at()), (units, ends_at));
            assert_eq!(expires_at(&text).unwrap(), ends_at);
        }
        let keys = |is_reset| Freed::Keys {
            counter: "p;fixed;60s".to_owned(),
            first: "user:a b".to_owned(),
            last: "user:c".to_owned(),
            is_reset,
        };
        let limit = Freed::Limit {
            filed_under: "p".to_owned(),
            key: String::new(),
        };
        for change in [keys(false), keys(true), limit] {
            let text = of_freed(&change, at(9));
            assert_eq!(freed(&text).unwrap(), change);
            assert_eq!(expires_at(&text).unwrap(), Some(at(9)));
        }
    }

    #[test]
    fn what_is_no_record_is_an_error() {
        let texts = [
            "",
            " ",
            "9",
            "9 window",
            "9 window 1 2 -3",
            "x window 1 2 3",
            "9 door 1 2 3",
        ];
        for text in texts {
            assert!(kept(text).is_err(), "{text:?}");
        }
        assert!(kept("9 events 1").is_err(), "an instant without units");
        assert!(limit(None, "- limit x").is_err() && freed("9 walls\ta\tb\tc").is_err());
    }
}
