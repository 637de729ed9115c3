//! What the engine has Postgres do: each call goes to the file that knows how.

use super::database::Database;
use super::rows::fault;
use super::{give_back, ledger, limits, resetting, sweeping, windows};
use crate::clock::Clock;
use crate::limit::Timestamp;
use crate::store::engine::{Attempts, Backend, Batch, Changes, Charged, Cursor, Page};
use crate::store::{Charge, GiveBack, Limits, LimitsAsk, Outcome, Reset, SetLimit, StoreError};

/// The writer's side of the store.
pub(super) struct Postgres {
    pub(super) database: Database,
}

/// A row with a longer one would not go into an index, and the whole batch would fail for it. A client has no influence on the
/// number of a key's parts, each of which is hashed when it is long.
const LONGEST_KEY: usize = 2_000;

fn has_long_key(charge: &Charge) -> bool {
    let mut parts = charge.parts.iter();
    parts.any(|part| part.key.as_str().len() > LONGEST_KEY)
}

impl Postgres {
    async fn charge_all(&mut self, batch: Batch<'_>, clock: &Clock) -> Result<Charged, StoreError> {
        match windows::merged(batch) {
            Some(merged) => windows::charge(&mut self.database, merged, clock).await,
            None => ledger::charge(&mut self.database, batch, clock).await,
        }
    }
}

impl Backend for Postgres {
    async fn open(&mut self) -> Result<(), StoreError> {
        self.database.open().await?;
        // It tells the time, also where the connection was open.
        limits::changes(&mut self.database, None).await.map(drop)
    }

    async fn charge(&mut self, batch: Batch<'_>, clock: &Clock) -> Result<Charged, StoreError> {
        if !batch.charges.iter().any(has_long_key) {
            return self.charge_all(batch, clock).await;
        }
        let others = batch.charges.iter().filter(|charge| !has_long_key(charge));
        let others: Vec<_> = others.cloned().collect();
        let mut charged = if others.is_empty() {
            Charged::of(Vec::new(), [])
        } else {
            let charges = &others;
            self.charge_all(Batch { charges, ..batch }, clock).await?
        };
        let mut answers = charged.answers.into_iter();
        let answer = |charge| {
            if has_long_key(charge) {
                return Err(fault("a key is longer than 2000 bytes"));
            }
            answers.next().unwrap_or(Err(StoreError::Panicked))
        };
        charged.answers = batch.charges.iter().map(answer).collect();
        Ok(charged)
    }

    async fn give_back(
        &mut self,
        units: &[GiveBack],
        clock: &Clock,
    ) -> Result<Vec<GiveBack>, StoreError> {
        // A connection that is new may be the first to see new counters, whose epochs are those of the old ones.
        self.database.open().await?;
        if self.database.has_lost() {
            return Ok(Vec::new());
        }
        give_back::give_back(&mut self.database, units, clock, give_back::PAGE).await
    }

    async fn peek(&mut self, looks: &[Charge], clock: &Clock) -> Result<Vec<Outcome>, StoreError> {
        ledger::look(&mut self.database, looks, clock).await
    }

    async fn reset(&mut self, reset: &Reset, after: Option<Cursor>) -> Result<Page, StoreError> {
        resetting::reset(&mut self.database, reset, after).await
    }

    async fn sweep(
        &mut self,
        now: Timestamp,
        after: Option<Cursor>,
        rows: u32,
    ) -> Result<Page, StoreError> {
        sweeping::sweep(&mut self.database, now, after, rows).await
    }

    async fn set_limit(&mut self, set: &SetLimit) -> Result<bool, StoreError> {
        limits::set(&mut self.database, set).await
    }

    async fn limits(&mut self, ask: &LimitsAsk) -> Result<Limits, StoreError> {
        limits::list(&mut self.database, ask).await
    }

    async fn count_refused(&mut self, attempts: &[Attempts]) -> Result<(), StoreError> {
        give_back::count_refused(&mut self.database, attempts).await
    }

    async fn changes(&mut self, after: Option<i64>) -> Result<Changes, StoreError> {
        limits::changes(&mut self.database, after).await
    }

    fn take_lost(&mut self) -> bool {
        self.database.take_lost()
    }

    async fn maintain(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn close(&mut self) -> Result<(), StoreError> {
        self.database.close().await
    }
}
