//! Limits that are set at run time.

use super::backend::RecordBackend;
use super::{RecordChange, RecordWrite, Records, conflict, fault, feed, names, tries, values};
use crate::limit::Key;
use crate::store::engine::Freed;
use crate::store::{Limits, LimitsAsk, SetLimit, StoreError, Which};

/// Sets a limit, or removes it, and says whether there was one.
pub(super) async fn set<R: Records>(
    backend: &mut RecordBackend<R>,
    set: &SetLimit,
) -> Result<bool, StoreError> {
    let name = names::of_limit(&set.filed_under, set.key_text());
    for _ in tries() {
        let asked = [name.clone(), names::CHANGES.to_owned()];
        let read = backend.records.read(&asked).await?;
        let mut values = read.values.into_iter();
        let (before, head) = (values.next().flatten(), values.next().flatten());
        let was_set = match &before {
            Some(value) => !values::limit(None, value)?.has_ended(set.now),
            None => false,
        };
        let ends_at = set.limit.and_then(|limit| limit.ends_at);
        let after = set
            .limit
            .map(|limit| values::of_limit(limit.units, ends_at));
        let mut writes = Vec::new();
        if before != after {
            writes.push(RecordWrite {
                key: name.clone(),
                before,
                after,
                expires_at: ends_at,
            });
        }
        let mut change = RecordChange { writes };
        let freed = [Freed::Limit {
            filed_under: set.filed_under.clone(),
            key: set.key_text().to_owned(),
        }];
        feed::tell(&mut change, head.as_ref(), &freed, set.now)?;
        let made = backend.make(&[change]).await.pop();
        if made.unwrap_or_else(|| Err(conflict()))? {
            return Ok(was_set);
        }
    }
    Err(conflict())
}

/// The limits that are set.
pub(super) async fn list<R: Records>(
    backend: &mut RecordBackend<R>,
    ask: &LimitsAsk,
) -> Result<Limits, StoreError> {
    match &ask.which {
        Which::Of(key) => {
            let text = key.as_ref().map_or(SetLimit::OF_ALL, Key::as_str);
            let name = names::of_limit(&ask.filed_under, text);
            let read = backend.records.read(&[name]).await?;
            let value = read.values.into_iter().next().flatten();
            let limit = value.map(|value| values::limit(key.clone(), &value));
            let limit = limit.transpose()?.filter(|limit| !limit.has_ended(ask.now));
            Ok(limit.into_iter().collect())
        }
        Which::Keys { after, most } => {
            let after = after.as_ref().map_or(SetLimit::OF_ALL, Key::as_str);
            let (mut after, before) = names::limits_after(&ask.filed_under, after);
            let most = usize::try_from(*most).unwrap_or(usize::MAX);
            let mut limits = Limits::new();
            loop {
                let page = backend.records.list(&after, &before, most).await?;
                let is_last = page.len() < most;
                for (name, value) in page {
                    let key = name.rsplit('\t').next().unwrap_or_default();
                    let key = key.parse().map_err(|_| fault("a limit is of no key"))?;
                    let limit = values::limit(Some(key), &value)?;
                    if limits.len() < most && !limit.has_ended(ask.now) {
                        limits.push(limit);
                    }
                    after = name;
                }
                if is_last || limits.len() >= most {
                    return Ok(limits);
                }
            }
        }
    }
}
