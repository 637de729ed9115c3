//! Resets and sweeps, a page at a time.

use super::backend::RecordBackend;
use super::{
    KEYS_TOGETHER, RecordChange, RecordWrite, Records, conflict, feed, names, tries, values,
};
use crate::limit::{Key, Timestamp};
use crate::store::engine::{Cursor, Freed, Page};
use crate::store::memory::{Place, Rows};
use crate::store::{Part, Reset, StoreError};

const READ_AT_ONCE: usize = 1_000;

/// Resets the key itself, and then page by page those under it.
pub(super) async fn reset<R: Records>(
    backend: &mut RecordBackend<R>,
    reset: &Reset,
    after: Option<Cursor>,
) -> Result<Page, StoreError> {
    let (from, to) = reset.part.key.under();
    let next = |key: String| Cursor {
        key,
        ..Cursor::default()
    };
    let (range, first) = match &after {
        None => {
            let own = reset.part.key.as_str().to_owned();
            (names::around_key(&reset.part), own)
        }
        Some(after) => {
            let range = names::between_keys(&reset.part, &after.key, &to);
            (range, after.key.clone())
        }
    };
    for _ in tries() {
        let keys = InForce::read(backend, reset, &range).await?;
        let (count, is_made) = keys.reset(backend, reset, &first).await?;
        if is_made {
            return Ok(Page {
                count,
                kept: 0,
                next: match after {
                    None => reset.with_keys_under.then(|| next(from)),
                    Some(_) => keys.next.map(next),
                },
            });
        }
    }
    Err(conflict())
}

/// What is in force of some keys of a counter.
struct InForce {
    records: Vec<(Place, String, String)>,
    head: Option<String>,
    /// The last key, when there are more behind it.
    next: Option<String>,
}

impl InForce {
    /// Reads some keys, and of each all that is in force.
    async fn read<R: Records>(
        backend: &mut RecordBackend<R>,
        reset: &Reset,
        (after, before): &(String, String),
    ) -> Result<Self, StoreError> {
        let changes = [names::CHANGES.to_owned()];
        let head = backend.records.read(&changes).await?;
        let mut read = Self {
            records: Vec::new(),
            head: head.values.into_iter().next().flatten(),
            next: None,
        };
        let mut keys = 0;
        let mut last = None;
        let mut after = after.clone();
        loop {
            let page = backend.records.list(&after, before, READ_AT_ONCE).await?;
            let is_last = page.len() < READ_AT_ONCE;
            if let Some((name, _)) = page.last() {
                after.clone_from(name);
            }
            for (name, value) in page {
                // What has expired is nothing any more, and may be many windows of one key.
                let is_in_force = values::expires_at(&value)?.is_none_or(|at| at > reset.at);
                let Some((key, window_start)) = names::key_and_window(&name) else {
                    continue;
                };
                if !is_in_force {
                    continue;
                }
                if last.as_deref() != Some(key) {
                    if keys == KEYS_TOGETHER {
                        read.next = last;
                        return Ok(read);
                    }
                    keys += 1;
                    last = Some(key.to_owned());
                }
                let Ok(key) = key.parse::<Key>() else {
                    continue;
                };
                let rule = reset.part.rule.clone();
                let part = Part { rule, key };
                read.records
                    .push((Place { part, window_start }, name, value));
            }
            if is_last {
                return Ok(read);
            }
        }
    }

    /// Resets them, and says how many units that gave back, and whether they were still what they had been.
    async fn reset<R: Records>(
        &self,
        backend: &mut RecordBackend<R>,
        reset: &Reset,
        first: &str,
    ) -> Result<(u64, bool), StoreError> {
        let mut rows = Rows::default();
        for (place, _, value) in &self.records {
            let (kept, expires_at) = values::kept(value)?;
            rows.put(place.clone(), kept, expires_at);
        }
        let count = rows.reset(reset);
        let writes = self.records.iter().map(|(place, name, value)| {
            let kept = rows.kept(place);
            RecordWrite {
                key: name.clone(),
                before: Some(value.clone()),
                after: kept.map(|(kept, expires_at)| values::of_kept(kept, expires_at)),
                expires_at: kept.map(|(_, expires_at)| expires_at),
            }
        });
        let mut change = RecordChange {
            writes: writes.collect(),
        };
        // Others may have charged ahead of it, or know a key to be over of which nothing is here.
        let last = self.next.clone().unwrap_or_else(|| {
            let last = self.records.last();
            last.map_or(first, |(place, ..)| place.part.key.as_str())
                .to_owned()
        });
        let freed = [Freed::Keys {
            counter: reset.part.rule.counter.clone(),
            first: first.to_owned(),
            last,
            is_reset: true,
        }];
        feed::tell(&mut change, self.head.as_ref(), &freed, reset.at)?;
        let made = backend.make(&[change]).await.pop();
        Ok((count, made.unwrap_or_else(|| Err(conflict()))?))
    }
}

/// Deletes the expired records of a page. What can't be read stays, and keeps nothing else from going.
pub(super) async fn sweep<R: Records>(
    backend: &mut RecordBackend<R>,
    now: Timestamp,
    after: Option<Cursor>,
    rows: u32,
) -> Result<Page, StoreError> {
    let after = after.map_or(names::FIRST.to_owned(), |after| after.key);
    let most = usize::try_from(rows).unwrap_or(usize::MAX);
    // What a node takes for the time is never later than what it knows of the database's. Only a test has set one that is.
    let is_set = now > backend.clock.now();
    let told_at = backend.read_head().await?.at.filter(|_| !is_set);
    let now = told_at.map_or(now, |told_at| told_at.min(now));
    let mut count = 0;
    for _ in tries() {
        let page = backend.records.list(&after, names::LAST, most).await?;
        let read = page.len();
        let last = page.last().filter(|_| read >= most);
        let next = last.map(|(name, _)| Cursor {
            key: name.clone(),
            ..Cursor::default()
        });
        let mut expired = Vec::new();
        for (key, value) in page {
            let expires_at = values::expires_at(&value).unwrap_or_default();
            if expires_at.is_some_and(|at| at <= now) {
                expired.push(deletion(key, value));
            }
        }
        let made: Result<Vec<_>, _> = backend.make(&expired).await.into_iter().collect();
        let made = made?;
        // What was told to others is no row that anybody counts.
        let rows = expired.iter().zip(&made).filter(|(change, made)| {
            let is_told = names::is_of_change(change.writes[0].key());
            **made && !is_told
        });
        count += rows.count() as u64;
        if made.into_iter().all(|made| made) {
            return Ok(Page {
                count,
                kept: (read - expired.len()) as u64,
                next,
            });
        }
    }
    Err(conflict())
}

fn deletion(key: String, value: String) -> RecordChange {
    let write = RecordWrite {
        key,
        before: Some(value),
        after: None,
        expires_at: None,
    };
    RecordChange {
        writes: vec![write],
    }
}
