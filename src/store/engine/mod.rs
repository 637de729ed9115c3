//! Group commit: one queue and one writer for each store, shared by all that charge it.
//!
//! Callers put charges into the inbox. The writer, a thread of its own, takes whatever waits, never waiting for more,
//! has the backend decide it in one call, and answers each caller. A thread of its own, since a task on a caller's
//! runtime would die with that runtime; a watchdog beside each call answers those whose deadline passes. Most charges need
//! none of it: they spend units that were charged ahead (`leases/`).

mod backend;
mod breaker;
mod calls;
mod inbox;
mod leases;
mod limits;
mod local;
#[cfg(feature = "metrics")]
mod meters;
mod queue;
mod refills;
mod refusals;
mod sweeper;
mod table;
#[cfg(test)]
mod tests;
mod usage;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(any(feature = "postgres", feature = "records", feature = "sqlite"))]
pub(super) use self::backend::worth_granting;
pub(super) use self::backend::{
    Ahead, Attempts, Backend, Batch, Changes, Charged, Cursor, Freed, Grant, Page,
};
pub(super) use self::calls::Calls;
#[cfg(any(test, feature = "sqlite"))]
pub(super) use self::inbox::QUEUE_LENGTH;
use self::inbox::{Inbox, Job, JobReply};
use self::leases::Leases;
use self::limits::LimitsJob;
use self::local::Local;
use self::refusals::Refusals;
#[cfg(any(test, feature = "sqlite"))]
pub(super) use self::usage::By;
use self::usage::{Counts, UsageJob};
pub(super) use self::usage::{UsageAsk, UsagePage};
use super::file_sizes::FileSizes;
use super::handle::{StoreId, Users};
use super::health::{DecidedWithout, Health};
use super::store_clock::StoreClock;
use super::{
    Call, Charge, GiveBack, Limits, LimitsAsk, Part, Reply, Reset, SetLimit, StoreError,
    StoreHealth,
};
use crate::clock::Clock;
use crate::limit::Timestamp;

/// The queue and the thread of one store. The thread ends when the last handle is dropped, or by
/// [`close`](Self::close).
pub(crate) struct Engine {
    id: StoreId,
    name: String,
    inbox: Arc<Inbox>,
    clock: Arc<StoreClock>,
    leases: Arc<Leases>,
    refusals: Arc<Refusals>,
    local: Arc<Local>,
    users: Users,
    decides_by_key: bool,
    file_sizes: Arc<FileSizes>,
}

impl Engine {
    /// An engine whose thread starts when it is first asked for something. The clock is that of what is decided in memory.
    pub(super) fn new<B: Backend>(name: String, backend: B, clock: Clock) -> Self {
        let clock = Arc::new(StoreClock::new(clock));
        let leases = Arc::default();
        let refusals = Arc::default();
        let decided_without = DecidedWithout::default();
        let local = Arc::new(Local::new(Arc::clone(&clock), decided_without.clone()));
        let file_sizes = backend.file_sizes();
        let decides_by_key = backend.decides_by_key();
        let starter = writer::starter(
            backend,
            Arc::clone(&clock),
            Arc::clone(&leases),
            Arc::clone(&refusals),
            Arc::clone(&local),
        );
        let inbox = Inbox::new(name.clone(), starter, decided_without);
        Self {
            id: StoreId::next(),
            name,
            inbox,
            clock,
            leases,
            refusals,
            local,
            users: Users::default(),
            decides_by_key,
            file_sizes,
        }
    }

    pub(crate) fn id(&self) -> StoreId {
        self.id
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The instant by the clock that decides. A server is asked for it: the estimate may be far ahead of one that was not heard
    /// lately, when the clock of this machine was set meanwhile.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub(crate) async fn told_time(&self) -> Result<Timestamp, StoreError> {
        if self.clock.get().is_estimate() {
            self.open().await?;
        }
        Ok(self.now())
    }

    pub(crate) fn health(&self) -> &Health {
        &self.inbox.health
    }

    /// How the store is, as far as it is known without asking it.
    pub(crate) fn report(&self) -> StoreHealth {
        let (waiting, is_closed) = self.inbox.waiting();
        StoreHealth {
            is_closed,
            is_breaker_open: self.inbox.breaker.is_open(),
            waiting,
            audit_dropped: self.unrecorded(),
            file_bytes: self.file_sizes.database(),
            wal_bytes: self.file_sizes.wal(),
            ..StoreHealth::answering(&self.name, self.health().failure())
        }
    }

    pub(crate) fn decides_by_key(&self) -> bool {
        self.decides_by_key
    }

    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn set_clock(&self, clock: Clock) {
        self.clock.set(clock);
    }

    /// Sets how many keys are answered from memory at most.
    pub(super) fn set_max_keys(&self, max_keys: usize) {
        self.leases.set_max_keys(max_keys);
        self.refusals.set_max_keys(max_keys);
    }

    /// How many keys have leases, and how many are known to be over.
    #[cfg(all(test, feature = "sqlite"))]
    pub(super) fn keys_in_memory(&self) -> usize {
        self.leases.count() + self.refusals.count()
    }

    /// Sets how long a charge or a look may wait for its answer.
    pub(super) fn set_deadline(&self, deadline: Duration) {
        self.inbox.set_deadline(deadline);
    }

    /// Spends from a lease, or is known to be over, and is answered at once; or waits for the writer, unless the store has stopped to answer.
    pub(crate) fn charge(&self, charge: &Charge) -> Reply {
        let at = self.now();
        let ask = |part: &Part| self.inbox.put_refill(part.clone());
        if let Some(verdicts) = self.leases.spend_and_judge(charge, at, ask) {
            self.refusals.spent(charge);
            #[cfg(feature = "metrics")]
            self.health().meters().charged("lease", 1);
            return Reply::Spent(verdicts);
        }
        if let Some(outcome) = self.refusals.refuse(charge, at) {
            #[cfg(feature = "metrics")]
            self.health().meters().charged("refusal", 1);
            return Reply::Ready(Ok(outcome));
        }
        self.inbox.put_charge(charge.clone())
    }

    /// Gives back what was charged and not used, before any later charge. It goes its way also when nobody waits for it.
    pub(crate) fn give_back(
        &self,
        units: Vec<GiveBack>,
    ) -> impl Future<Output = Result<(), StoreError>> + use<> {
        let reply = (!units.is_empty()).then(|| {
            let parts: Vec<_> = units.iter().map(|back| back.part.clone()).collect();
            let reply = self.inbox.put_give_back(units);
            // When it is in line: what is charged from now on finds it.
            for part in &parts {
                self.refusals.free(part);
            }
            reply
        });
        async move {
            match reply {
                Some(reply) => answer(reply).await.map(drop),
                None => Ok(()),
            }
        }
    }

    /// Records an allowed request some time later, or counts that it could not. It never waits.
    pub(super) fn record(&self, call: &Call<'_>) {
        self.inbox.put_call(call);
    }

    /// How many allowed requests were to be recorded, and were not.
    pub(super) fn unrecorded(&self) -> u64 {
        self.inbox.calls.dropped()
    }

    pub(crate) fn peek(&self, look: Charge) -> Reply {
        self.inbox.put_look(look)
    }

    /// Looks as [`peek`](Self::peek) does, unless the store is not asked for a moment.
    pub(crate) fn look(&self, look: Charge) -> Reply {
        self.inbox.put_look_of_request(look)
    }

    /// What decides while the store gives no answer.
    pub(crate) fn local(&self) -> &Local {
        &self.local
    }

    /// Resets counters, and says how many used units that gave back.
    pub(crate) async fn reset(&self, reset: Reset) -> Result<u64, StoreError> {
        self.local.reset(&reset);
        answer(self.inbox.put_job(Job::Reset(reset))).await
    }

    /// Deletes all expired rows, and says how many those were.
    pub(crate) async fn sweep(&self) -> Result<u64, StoreError> {
        self.local.sweep();
        answer(self.inbox.put_job(Job::Sweep)).await
    }

    /// Adds up what was used by recorded requests, by label.
    #[cfg_attr(
        not(feature = "sqlite"),
        allow(dead_code, reason = "only SQLite has recorded something")
    )]
    pub(super) async fn usage(
        &self,
        ask: UsageAsk,
    ) -> Result<BTreeMap<String, Counts>, StoreError> {
        let job = Arc::new(UsageJob::new(ask, self.inbox.calls.accepted()));
        let reply = self.inbox.put_job(Job::Usage(Arc::clone(&job)));
        answer(reply).await?;
        Ok(job.take())
    }

    /// Sets a limit, or removes it, and says whether there was one. The next charge is held to it; of units that were charged
    /// ahead under another one nothing is spent any more.
    pub(crate) async fn set_limit(&self, set: SetLimit) -> Result<bool, StoreError> {
        let count = answer(self.inbox.put_job(Job::SetLimit(set.clone()))).await?;
        self.local.set_limit(&set);
        Ok(count > 0)
    }

    /// The limits that are set.
    pub(crate) async fn limits(&self, ask: LimitsAsk) -> Result<Limits, StoreError> {
        let job = Arc::new(LimitsJob::new(ask));
        answer(self.inbox.put_job(Job::Limits(Arc::clone(&job)))).await?;
        Ok(job.take())
    }

    /// Opens the backend now, rather than on first use.
    pub(super) async fn open(&self) -> Result<(), StoreError> {
        answer(self.inbox.put_job(Job::Open)).await.map(drop)
    }

    /// Writes what waits, closes the backend, and ends the thread. Closing once more does nothing.
    pub(super) async fn close(&self) -> Result<(), StoreError> {
        match answer(self.inbox.put_job(Job::Close)).await {
            Ok(_) | Err(StoreError::Closed) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.inbox.abandon();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

async fn answer(reply: JobReply) -> Result<u64, StoreError> {
    // The writer answers every job, also when it closes: it must have panicked.
    reply?.await.unwrap_or(Err(StoreError::Panicked))
}
