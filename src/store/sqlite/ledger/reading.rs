//! What a batch reads: the states of its counters, and the limits that were set at run time.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::states::{Bound, Ledger};
use crate::store::sqlite::Database;
use crate::store::sqlite::tables::{
    Slot, buckets, decoding, events, fault, json, limits, unsigned, windows,
};
use crate::store::{Charge, Part, StoreError};

impl Ledger<'_> {
    /// A statement that reads, with what it takes.
    pub(super) fn bound(&self, statement: &'static str) -> Result<Bound, StoreError> {
        let windows: Vec<_> = self
            .windows
            .entries
            .iter()
            .map(windows::Entry::look)
            .collect();
        let events: Vec<_> = self
            .events
            .entries
            .iter()
            .map(events::Entry::look)
            .collect();
        let buckets: Vec<_> = self
            .buckets
            .entries
            .iter()
            .map(buckets::Entry::look)
            .collect();
        let limits: Vec<_> = self
            .limits
            .entries
            .iter()
            .map(limits::Entry::look)
            .collect();
        Ok(sqlx::query(statement)
            .bind(json(&windows)?)
            .bind(json(&events)?)
            .bind(json(&buckets)?)
            .bind(self.now.unix_millis())
            .bind(json(&limits)?))
    }

    pub(super) fn read(&mut self, rows: &[SqliteRow]) -> Result<(), StoreError> {
        for row in rows {
            let table: i64 = row.try_get(0).map_err(decoding)?;
            let index = usize::try_from(unsigned(row, 1)?).unwrap_or(usize::MAX);
            let slot: Option<&mut dyn Slot> = match table {
                0 => self.windows.entries.get_mut(index).map(|slot| slot as _),
                1 => self.events.entries.get_mut(index).map(|slot| slot as _),
                2 => self.buckets.entries.get_mut(index).map(|slot| slot as _),
                _ => self.limits.entries.get_mut(index).map(|slot| slot as _),
            };
            slot.ok_or_else(|| fault("a row came back that was not asked for"))?
                .read(row)?;
        }
        Ok(())
    }

    /// The charges under the limits that were set at run time, if any were.
    pub(super) fn limited(&self, charges: &[Charge]) -> Option<Vec<Charge>> {
        let has_any = self.limits.entries.iter().any(limits::Entry::has_any);
        if !has_any {
            return None;
        }
        let in_force = |part: &Part| {
            let key = (&*part.rule.limits, part.key.as_str());
            let place = self.limits.places.get(&key)?;
            self.limits.entries[*place].in_force(part, self.now)
        };
        let limited = |charge: &Charge| charge.limited(in_force).unwrap_or_else(|| charge.clone());
        Some(charges.iter().map(limited).collect())
    }

    /// Puts events right that a clock which has stepped back has left ahead, and totals that have become too large; then
    /// all is read again.
    pub(super) async fn mend(&mut self, database: &mut Database) -> Result<(), StoreError> {
        let entries = &self.events.entries;
        let moved: Vec<_> = entries.iter().filter_map(events::Entry::moved).collect();
        let mut is_mended = !moved.is_empty();
        if is_mended {
            let query = sqlx::query(events::MOVE)
                .bind(json(&moved)?)
                .bind(self.now.unix_millis());
            database.within(query).await?;
        }
        for entry in entries {
            if let Some(excess) = entry.excess() {
                let (counter, key, _) = entry.look();
                let query = sqlx::query(events::REBASE)
                    .bind(counter)
                    .bind(key)
                    .bind(excess);
                database.within(query).await?;
                is_mended = true;
            }
        }
        if is_mended {
            let rows = database.within(self.bound(&super::READ)?).await?;
            self.read(&rows)?;
        }
        Ok(())
    }
}
