//! What became free, for other processes that answer from memory.
//!
//! A record counts the changes, and each of them has one of its own, written in the same change as what it tells of. The first word of
//! the count names these records: when they are lost, and others begin, it is another one.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use super::backend::RecordBackend;
use super::{RecordChange, RecordWrite, Records, conflict, fault, names, tries, values};
use crate::limit::Timestamp;
use crate::store::StoreError;
use crate::store::engine::{Changes, Freed};

/// Who is further behind knows nothing any more. So many are read at once.
const MOST: usize = 1_000;
/// Others look ten times a second.
const KEPT_FOR: Duration = Duration::from_mins(10);

/// Adds to a change that it is told, of which `head` is the count that was read.
pub(super) fn tell(
    change: &mut RecordChange,
    head: Option<&String>,
    freed: &[Freed],
    at: Timestamp,
) -> Result<(), StoreError> {
    if freed.is_empty() {
        return Ok(());
    }
    let (id, last) = match head {
        Some(head) => (id(head).to_owned(), last(head)?),
        None => (new_id(), 0),
    };
    let expires_at = at.saturating_add(KEPT_FOR);
    let numbers = last.saturating_add(1)..;
    for (number, freed) in numbers.zip(freed) {
        change.writes.push(RecordWrite {
            key: names::of_change(number),
            before: None,
            after: Some(values::of_freed(freed, expires_at)),
            expires_at: Some(expires_at),
        });
    }
    let told = i64::try_from(freed.len()).unwrap_or(i64::MAX);
    change
        .writes
        .push(write_head(head, &id, last.saturating_add(told)));
    Ok(())
}

/// What became free since `after`.
pub(super) async fn changes<R: Records>(
    backend: &mut RecordBackend<R>,
    after: Option<i64>,
) -> Result<Changes, StoreError> {
    for _ in tries() {
        let Some(head) = backend.read_head().await?.value else {
            // So that it is noticed when all is lost.
            let writes = vec![write_head(None, &new_id(), 0)];
            let change = RecordChange { writes };
            backend
                .make(&[change])
                .await
                .pop()
                .unwrap_or_else(|| Err(conflict()))?;
            continue;
        };
        let last = last(&head)?;
        let Some(after) = after else {
            return Ok(Changes {
                last,
                freed: Some(Vec::new()),
            });
        };
        if last < after {
            // They were set back to what they were some time ago: whatever others were told since is gone.
            backend.is_lost = true;
            return Ok(Changes { last, freed: None });
        }
        if last == after {
            return Ok(Changes {
                last,
                freed: Some(Vec::new()),
            });
        }
        let [first, end] = [after, last.saturating_add(1)].map(names::of_change);
        let told = backend.records.list(&first, &end, MOST).await?;
        let is_whole = i64::try_from(told.len()).ok() == Some(last - after);
        let freed: Result<Vec<_>, _> = told.iter().map(|(_, value)| values::freed(value)).collect();
        return Ok(Changes {
            last,
            freed: if is_whole { Some(freed?) } else { None },
        });
    }
    Err(conflict())
}

/// The record that counts the changes, and what the clock of the database has shown, if it has one.
pub(super) struct Head {
    value: Option<String>,
    pub(super) at: Option<Timestamp>,
}

impl<R: Records> RecordBackend<R> {
    pub(super) async fn read_head(&mut self) -> Result<Head, StoreError> {
        let sent = crate::clock::monotonic();
        let read = self.records.read(&[names::CHANGES.to_owned()]).await?;
        if let Some(at) = read.at {
            self.clock.heard(sent, at);
        }
        let value = read.values.into_iter().next().flatten();
        self.notice(value.as_deref());
        Ok(Head { value, at: read.at })
    }

    /// Makes changes, and says of each in its place whether it was made.
    pub(super) async fn make(&mut self, changes: &[RecordChange]) -> Vec<Result<bool, StoreError>> {
        if changes.is_empty() {
            return Vec::new();
        }
        let made = self.records.change(changes).await;
        if made.len() == changes.len() {
            made
        } else {
            let fault = fault("changes of records were answered in another number than made");
            vec![Err(fault); changes.len()]
        }
    }
}

/// What names the records.
pub(super) fn id(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or_default()
}

fn last(head: &str) -> Result<i64, StoreError> {
    let last = head.split(' ').nth(2).and_then(|last| last.parse().ok());
    last.ok_or_else(|| fault("the record of changes is none of this version's"))
}

fn new_id() -> String {
    format!("{:016x}", RandomState::new().hash_one(0_u8))
}

fn write_head(before: Option<&String>, id: &str, last: i64) -> RecordWrite {
    RecordWrite {
        key: names::CHANGES.to_owned(),
        before: before.cloned(),
        after: Some(format!("- {id} {last}")),
        expires_at: None,
    }
}
