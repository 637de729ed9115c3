//! What the engine has records do: each call goes to the file that knows how.

use super::{Records, charging, feed, giving_back, limits, resetting};
use crate::clock::{Clock, ServerClock};
use crate::limit::Timestamp;
use crate::store::engine::{Attempts, Backend, Batch, Changes, Charged, Cursor, Page};
use crate::store::{Charge, GiveBack, Limits, LimitsAsk, Outcome, Reset, SetLimit, StoreError};

/// The store's side of the records.
pub(super) struct RecordBackend<R> {
    pub(super) records: R,
    pub(super) clock: ServerClock,
    /// What names the records as they were when something was told of them: others take their place when they are lost.
    pub(super) id: Option<String>,
    pub(super) is_lost: bool,
    pub(super) is_open: bool,
}

impl<R: Records> RecordBackend<R> {
    async fn open_first(&mut self) -> Result<(), StoreError> {
        if !self.is_open {
            self.records.open().await?;
            self.is_open = true;
        }
        Ok(())
    }

    /// Looks at the record of changes that was read with others.
    pub(super) fn notice(&mut self, head: Option<&str>) {
        let id = head.map(|head| feed::id(head).to_owned());
        if self.id.is_some() && self.id != id {
            self.is_lost = true;
        }
        self.id = id.or_else(|| self.id.take().filter(|_| !self.is_lost));
    }
}

impl<R: Records> Backend for RecordBackend<R> {
    async fn open(&mut self) -> Result<(), StoreError> {
        self.records.open().await?;
        self.is_open = true;
        // Records that can't be read are found now, and its clock is heard.
        feed::changes(self, None).await.map(drop)
    }

    async fn charge(&mut self, batch: Batch<'_>, clock: &Clock) -> Result<Charged, StoreError> {
        self.open_first().await?;
        charging::charge(self, batch, clock).await
    }

    async fn give_back(
        &mut self,
        units: &[GiveBack],
        clock: &Clock,
    ) -> Result<Vec<GiveBack>, StoreError> {
        self.open_first().await?;
        giving_back::give_back(self, units, clock).await
    }

    async fn peek(&mut self, looks: &[Charge], clock: &Clock) -> Result<Vec<Outcome>, StoreError> {
        self.open_first().await?;
        charging::look(self, looks, clock).await
    }

    async fn reset(&mut self, reset: &Reset, after: Option<Cursor>) -> Result<Page, StoreError> {
        self.open_first().await?;
        resetting::reset(self, reset, after).await
    }

    async fn sweep(
        &mut self,
        now: Timestamp,
        after: Option<Cursor>,
        rows: u32,
    ) -> Result<Page, StoreError> {
        self.open_first().await?;
        resetting::sweep(self, now, after, rows).await
    }

    async fn set_limit(&mut self, set: &SetLimit) -> Result<bool, StoreError> {
        self.open_first().await?;
        limits::set(self, set).await
    }

    async fn limits(&mut self, ask: &LimitsAsk) -> Result<Limits, StoreError> {
        self.open_first().await?;
        limits::list(self, ask).await
    }

    async fn count_refused(&mut self, attempts: &[Attempts]) -> Result<(), StoreError> {
        self.open_first().await?;
        giving_back::count_refused(self, attempts).await
    }

    async fn changes(&mut self, after: Option<i64>) -> Result<Changes, StoreError> {
        self.open_first().await?;
        feed::changes(self, after).await
    }

    fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.is_lost)
    }

    async fn maintain(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn close(&mut self) -> Result<(), StoreError> {
        self.records.close().await
    }
}
