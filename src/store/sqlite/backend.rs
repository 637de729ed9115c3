//! What the engine has SQLite do: each call goes to the file that knows how.

use std::sync::Arc;

use super::database::Database;
use super::give_back::PAGE;
use super::retention::Retention;
use super::room::Room;
use super::{give_back, ledger, tables, upsert};
use crate::clock::Clock;
use crate::limit::Timestamp;
use crate::store::engine::{
    Attempts, Backend, Batch, Calls, Changes, Charged, Cursor, Page, UsageAsk, UsagePage,
};
use crate::store::file_sizes::FileSizes;
use crate::store::merge::Merged;
use crate::store::{Charge, GiveBack, Limits, LimitsAsk, Outcome, Reset, SetLimit, StoreError};

/// The writer's side of the store.
pub(super) struct Sqlite {
    pub(super) database: Database,
    pub(super) room: Option<Room>,
    pub(super) retention: Arc<Retention>,
}

impl Backend for Sqlite {
    fn file_sizes(&self) -> Arc<FileSizes> {
        self.database.file_sizes()
    }

    async fn open(&mut self) -> Result<(), StoreError> {
        self.database.open_patiently().await
    }

    async fn charge(&mut self, batch: Batch<'_>, clock: &Clock) -> Result<Charged, StoreError> {
        self.database.notice_loss().await;
        if let Some(room) = &mut self.room {
            return room.charge(&mut self.database, batch, clock).await;
        }
        if upsert::can_charge(batch) {
            let merged = Merged::of(batch.charges.iter(), batch.ahead, clock.now());
            let applied = upsert::charge(&mut self.database, &merged).await?;
            return Ok(merged.charged(&applied));
        }
        // Without a cap it is always applied.
        let applied = ledger::charge(&mut self.database, batch, clock, None).await?;
        let (answers, grants) = applied.map_or_else(Default::default, |applied| {
            (applied.answers, applied.grants)
        });
        Ok(Charged::of(answers, grants))
    }

    async fn give_back(
        &mut self,
        units: &[GiveBack],
        clock: &Clock,
    ) -> Result<Vec<GiveBack>, StoreError> {
        self.database.notice_loss().await;
        if self.database.watch.has_lost() {
            return Ok(Vec::new());
        }
        let given_back = give_back::give_back(&mut self.database, units, clock.now(), PAGE).await?;
        if let Some(room) = &mut self.room {
            room.deleted(given_back.deleted_rows);
        }
        Ok(given_back.left)
    }

    async fn peek(&mut self, looks: &[Charge], clock: &Clock) -> Result<Vec<Outcome>, StoreError> {
        self.database.notice_loss().await;
        ledger::look(&mut self.database, looks, clock.now()).await
    }

    async fn reset(&mut self, reset: &Reset, after: Option<Cursor>) -> Result<Page, StoreError> {
        self.database.notice_loss().await;
        tables::reset(&mut self.database, reset, after).await
    }

    async fn sweep(
        &mut self,
        now: Timestamp,
        after: Option<Cursor>,
        rows: u32,
    ) -> Result<Page, StoreError> {
        self.database.notice_loss().await;
        let has_counters = after.as_ref().is_none_or(tables::is_of_counters);
        let call = tables::sweep(&mut self.database, now, &self.retention, after, rows);
        let page = call.await?;
        if let Some(room) = &mut self.room
            && has_counters
        {
            room.deleted(page.count);
        }
        Ok(page)
    }

    async fn record(&mut self, calls: &Calls) -> Result<(), StoreError> {
        self.database.notice_loss().await;
        tables::calls::record(&mut self.database, calls, self.room.is_some()).await
    }

    async fn usage(
        &mut self,
        ask: &UsageAsk,
        after: Option<Cursor>,
    ) -> Result<UsagePage, StoreError> {
        self.database.notice_loss().await;
        tables::usage(&mut self.database, ask, after).await
    }

    async fn set_limit(&mut self, set: &SetLimit) -> Result<bool, StoreError> {
        self.database.notice_loss().await;
        tables::limits::set(&mut self.database, set).await
    }

    async fn limits(&mut self, ask: &LimitsAsk) -> Result<Limits, StoreError> {
        self.database.notice_loss().await;
        tables::limits::list(&mut self.database, ask).await
    }

    async fn count_refused(&mut self, attempts: &[Attempts]) -> Result<(), StoreError> {
        self.database.notice_loss().await;
        tables::count_refused(&mut self.database, attempts).await
    }

    async fn changes(&mut self, after: Option<i64>) -> Result<Changes, StoreError> {
        if self.room.is_some() {
            // Nobody else sees a database in memory.
            return Ok(Changes {
                last: 0,
                freed: Some(Vec::new()),
            });
        }
        self.database.notice_loss().await;
        tables::changes::read(&mut self.database, after).await
    }

    fn take_lost(&mut self) -> bool {
        self.database.watch.take_lost()
    }

    async fn maintain(&mut self) -> Result<(), StoreError> {
        self.database.notice_loss().await;
        self.database.restart_long_wal().await
    }

    async fn close(&mut self) -> Result<(), StoreError> {
        self.database.close().await
    }
}
