//! What the engine has Redis do: each call is one step of the server, or of each node that it is about, and goes to the file that
//! knows how.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use super::answer::Numbers;
use super::failure::{failure, fault};
use super::known::KnownLimits;
use super::names::{Names, instant};
use super::packed::Packed;
use super::scripts::Script;
use super::server::Answer;
use super::servers::{Ask, Servers, Told};
use super::spread::{grouped, slot_of_part};
use super::untold::Untold;
use super::{charging, give_back, limits, resetting, untold};
use crate::clock::{Clock, ServerClock};
use crate::limit::Timestamp;
use crate::store::engine::{Attempts, Backend, Batch, Changes, Charged, Cursor, Page};
use crate::store::{Charge, GiveBack, Limits, LimitsAsk, Outcome, Reset, SetLimit, StoreError};

/// The writer's side of the store.
pub(super) struct Redis {
    pub(super) servers: Servers,
    pub(super) names: Names,
    pub(super) clock: ServerClock,
    /// Milliseconds that are added to the server's time, for tests.
    pub(super) offset: Arc<AtomicI64>,
    /// Of a cluster, in which a script does not see them.
    pub(super) limits: KnownLimits,
    /// Of a cluster too.
    pub(super) untold: Untold,
}

impl Redis {
    /// Runs a script for each thing that is asked. The instant is that of a test, or one that was told; without it the server's clock
    /// decides.
    pub(super) async fn run_each(
        &mut self,
        script: Script,
        at: Option<Timestamp>,
        asks: Vec<Ask>,
    ) -> Vec<Result<Answer, StoreError>> {
        let told = Told {
            names: &self.names,
            at: at.map(instant),
            offset: self.offset(),
        };
        self.servers.run(script, told, asks).await
    }

    /// Runs a script once.
    pub(super) async fn run(
        &mut self,
        script: Script,
        at: Option<Timestamp>,
        ask: Ask,
    ) -> Result<Answer, StoreError> {
        let mut answers = self.run_each(script, at, vec![ask]).await;
        let nothing = || Err(fault("a script was not run"));
        answers.pop().unwrap_or_else(nothing)
    }

    /// Notes what the clock of a server has shown.
    pub(super) fn hear(&mut self, slot: u16, sent: Instant, at: Timestamp) {
        let at = self.servers.heard(slot, sent, at);
        self.clock.heard(sent, at);
    }

    /// The slot of a part; in one server all are in one.
    pub(super) fn slot(&self, part: &crate::store::Part) -> u16 {
        if self.servers.is_cluster() {
            slot_of_part(&self.names, part)
        } else {
            0
        }
    }

    fn offset(&self) -> i64 {
        self.offset.load(Ordering::Relaxed)
    }
}

impl Backend for Redis {
    fn decides_by_key(&self) -> bool {
        self.servers.is_cluster()
    }

    async fn open(&mut self) -> Result<(), StoreError> {
        let cmd = redis::cmd("TIME");
        let mut furthest: Option<(Instant, Timestamp)> = None;
        let mut from = 0;
        while let Some(place) = self.servers.next(from).await? {
            from = place + 1;
            let answer = self.servers.ask(place, &cmd).await?;
            let (seconds, micros): (i64, i64) =
                redis::from_redis_value(answer.value).map_err(|error| failure(error.into()))?;
            let at = seconds.saturating_mul(1_000).saturating_add(micros / 1_000);
            let at = Timestamp::from_unix_millis(at.saturating_add(self.offset()));
            let shown = furthest.map_or(at, |(sent, shown)| {
                let gone = answer.sent.saturating_duration_since(sent);
                shown.saturating_add(gone).max(at)
            });
            furthest = Some((answer.sent, shown));
        }
        // A server that runs no scripts is found now, and not at the first charge.
        limits::changes(self, None).await?;
        if let Some((sent, at)) = furthest {
            self.clock.heard(sent, at);
        }
        Ok(())
    }

    async fn charge(&mut self, batch: Batch<'_>, clock: &Clock) -> Result<Charged, StoreError> {
        charging::charge(self, batch, clock).await
    }

    async fn give_back(
        &mut self,
        units: &[GiveBack],
        clock: &Clock,
    ) -> Result<Vec<GiveBack>, StoreError> {
        give_back::give_back(self, units, clock).await
    }

    async fn peek(&mut self, looks: &[Charge], clock: &Clock) -> Result<Vec<Outcome>, StoreError> {
        charging::look(self, looks, clock).await
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
        let groups = grouped(attempts, |attempts| self.slot(&attempts.part));
        let mut asks = Vec::with_capacity(groups.len());
        for group in groups {
            let names = group.things.iter();
            let names: Vec<_> = names.map(|of| self.names.of(&of.part)).collect();
            let windows = group.things.iter().zip(&names);
            let declared = windows.map(|(of, name)| format!("{name}:{}", instant(of.window_start)));
            let numbers = group.things.iter().zip(1..).flat_map(|(of, place)| {
                let (epoch, units) = (of.epoch.cast_signed(), of.units.cast_signed());
                [place, instant(of.window_start), epoch, units]
            });
            let mut asked = Packed::default();
            asked.numbers(&numbers.collect::<Vec<_>>());
            asks.push(Ask {
                declared: declared.collect(),
                names,
                asked,
            });
        }
        let answers = self.run_each(Script::CountRefused, None, asks).await;
        answers.into_iter().try_for_each(|answer| answer.map(drop))
    }

    async fn changes(&mut self, after: Option<i64>) -> Result<Changes, StoreError> {
        limits::changes(self, after).await
    }

    fn take_lost(&mut self) -> bool {
        false
    }

    async fn maintain(&mut self) -> Result<(), StoreError> {
        untold::tell(self).await;
        Ok(())
    }

    async fn close(&mut self) -> Result<(), StoreError> {
        untold::tell_last(self).await;
        self.servers.close();
        Ok(())
    }
}

/// The numbers of an answer.
pub(super) fn numbers(answer: Result<Answer, StoreError>) -> Result<Numbers, StoreError> {
    Numbers::of(answer?.value)
}
