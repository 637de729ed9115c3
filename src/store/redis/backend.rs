//! What the engine has Redis do: each call is one step of the server, and goes to the file that knows how.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::answer::Numbers;
use super::failure::failure;
use super::give_back::{Returned, Returning};
use super::names::{Names, instant};
use super::packed::Packed;
use super::plan::Plan;
use super::replay::Replay;
use super::scripts::Script;
use super::server::{Answer, Server};
use super::{limits, resetting};
use crate::clock::{Clock, ServerClock};
use crate::limit::Timestamp;
use crate::store::engine::{Attempts, Backend, Batch, Changes, Charged, Cursor, Page};
use crate::store::{Charge, GiveBack, Limits, LimitsAsk, Outcome, Reset, SetLimit, StoreError};

/// The writer's side of the store.
pub(super) struct Redis {
    pub(super) server: Server,
    pub(super) names: Names,
    pub(super) clock: ServerClock,
    /// Milliseconds that are added to the server's time, for tests.
    pub(super) offset: Arc<AtomicI64>,
}

impl Redis {
    /// Runs a script. The instant is that of a test, or one that was told; without it the server's clock decides.
    pub(super) async fn run(
        &mut self,
        script: Script,
        keys: &[String],
        at: Option<Timestamp>,
        asked: Packed,
    ) -> Result<Answer, StoreError> {
        self.run_with(script, keys, at, &asked.into_bytes()).await
    }

    async fn run_with(
        &mut self,
        script: Script,
        keys: &[String],
        at: Option<Timestamp>,
        asked: &[u8],
    ) -> Result<Answer, StoreError> {
        let at = at.map_or_else(String::new, |at| instant(at).to_string());
        let offset = self.offset().to_string();
        let prefix = self.names.prefix().to_owned();
        let arguments = [prefix.as_bytes(), at.as_bytes(), offset.as_bytes(), asked];
        self.server.run(script, keys, &arguments).await
    }

    fn offset(&self) -> i64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// What a batch has brought. A server that has told its time was heard.
    async fn replay<'p, 'a>(
        &mut self,
        plan: &'p Plan<'a>,
        ahead: usize,
        clock: &Clock,
    ) -> Result<Replay<'p, 'a>, StoreError> {
        let (keys, asked) = (plan.keys(&self.names), plan.packed());
        let at = clock.manual();
        let answer = self.run_with(Script::Charge, &keys, at, &asked).await?;
        let replay = Replay::read(plan, ahead, &mut Numbers::of(answer.value)?)?;
        if at.is_none() {
            self.clock.heard(answer.sent, replay.now);
        }
        Ok(replay)
    }
}

impl Backend for Redis {
    async fn open(&mut self) -> Result<(), StoreError> {
        let answer = self.server.ask(&redis::cmd("TIME")).await?;
        let (seconds, micros): (i64, i64) =
            redis::from_redis_value(answer.value).map_err(|error| failure(error.into()))?;
        let at = seconds.saturating_mul(1_000).saturating_add(micros / 1_000);
        let at = Timestamp::from_unix_millis(at.saturating_add(self.offset()));
        self.clock.heard(answer.sent, at);
        // A server that runs no scripts is found now, and not at the first charge.
        limits::changes(self, None).await?;
        Ok(())
    }

    async fn charge(&mut self, batch: Batch<'_>, clock: &Clock) -> Result<Charged, StoreError> {
        let plan = Plan::of_batch(batch.charges, batch.ahead);
        let replay = self.replay(&plan, batch.ahead.len(), clock).await?;
        replay.charge(batch.charges, batch.ahead)
    }

    async fn give_back(
        &mut self,
        units: &[GiveBack],
        clock: &Clock,
    ) -> Result<Vec<GiveBack>, StoreError> {
        let returning = Returning::of(units, &self.names);
        let asked = returning.packed();
        let script = Script::GiveBack;
        let answer = self.run(script, &returning.keys, clock.manual(), asked);
        let Returned { left } = Returned::read(units, &mut Numbers::of(answer.await?.value)?)?;
        Ok(left)
    }

    async fn peek(&mut self, looks: &[Charge], clock: &Clock) -> Result<Vec<Outcome>, StoreError> {
        let plan = Plan::of_looks(looks);
        self.replay(&plan, 0, clock).await?.look(looks)
    }

    async fn reset(&mut self, reset: &Reset, after: Option<Cursor>) -> Result<Page, StoreError> {
        resetting::reset(self, reset, after).await
    }

    async fn sweep(
        &mut self,
        now: Timestamp,
        _: Option<Cursor>,
        rows: u32,
    ) -> Result<Page, StoreError> {
        // Counters end by themselves. Only limits that were set do not.
        limits::sweep(self, now, rows).await
    }

    async fn set_limit(&mut self, set: &SetLimit) -> Result<bool, StoreError> {
        limits::set(self, set).await
    }

    async fn limits(&mut self, ask: &LimitsAsk) -> Result<Limits, StoreError> {
        limits::list(self, ask).await
    }

    async fn count_refused(&mut self, attempts: &[Attempts]) -> Result<(), StoreError> {
        let keys: Vec<_> = attempts
            .iter()
            .map(|attempts| self.names.of(&attempts.part))
            .collect();
        let numbers = attempts.iter().zip(1..).flat_map(|(attempts, place)| {
            [
                place,
                instant(attempts.window_start),
                attempts.epoch.cast_signed(),
                attempts.units.cast_signed(),
            ]
        });
        let mut asked = Packed::default();
        asked.numbers(&numbers.collect::<Vec<_>>());
        self.run(Script::CountRefused, &keys, None, asked).await?;
        Ok(())
    }

    async fn changes(&mut self, after: Option<i64>) -> Result<Changes, StoreError> {
        limits::changes(self, after).await
    }

    fn take_lost(&mut self) -> bool {
        false
    }

    async fn maintain(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn close(&mut self) -> Result<(), StoreError> {
        self.server.close();
        Ok(())
    }
}
