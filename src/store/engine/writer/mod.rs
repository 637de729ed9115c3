//! The thread that has the backend decide, one batch after another.

mod batches;
mod calls;
mod closing;
mod jobs;
mod refunds;
mod refused;
mod watched;

use std::collections::VecDeque;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use self::calls::Recording;
use self::jobs::Running;
use self::refunds::Backlog;
use self::refused::Refused;
use self::watched::watched;
use super::backend::Backend;
use super::inbox::{Held, Inbox, Starter};
use super::leases::Leases;
use super::local::Local;
use super::queue::{Queue, Waiter};
use super::refusals::Refusals;
use super::sweeper::Sweeper;
use crate::clock;
use crate::limit::Timestamp;
use crate::store::GiveBack;
use crate::store::store_clock::StoreClock;

/// What starts the writer's thread, once.
pub(super) fn starter<B: Backend>(
    backend: B,
    clock: Arc<StoreClock>,
    leases: Arc<Leases>,
    refusals: Arc<Refusals>,
    local: Arc<Local>,
) -> Starter {
    Box::new(move |inbox| {
        // Its own runtime, for its timer, for a server's sockets, and for threads on which a file system may hang, or a process be
        // waited for that stands still: a caller's runtime may end, and may have its time paused by a test.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(3)
            .thread_name("tollgate-files")
            .build()?;
        let thread = thread::Builder::new().name("tollgate-store".to_owned());
        thread.spawn(move || {
            let started_at = clock.now();
            let mut writer = Writer {
                backend,
                inbox,
                clock,
                leases,
                refusals,
                refused: Refused::new(clock::monotonic()),
                returned: Vec::new(),
                local,
                give_back_at: clock::monotonic() + BETWEEN_GIVING_BACK,
                backlog: Backlog::new(clock::monotonic()),
                recording: Recording::new(clock::monotonic()),
                jobs: VecDeque::new(),
                job_had_its_turn: false,
                sweep_had_its_turn: false,
                sweeper: Sweeper::new(clock::monotonic(), started_at),
                asked_at: clock::monotonic(),
                maintain_at: clock::monotonic() + BETWEEN_MAINTENANCE,
            };
            // What a call of the backend does is caught where it is watched. Should anything else panic, a log
            // subscriber say, those of its batch are told, and the next batch finds a writer all the same.
            while catch_unwind(AssertUnwindSafe(|| runtime.block_on(writer.run()))).is_err() {
                writer.leases.forget_asks();
            }
            // What a panic has left behind may hang.
            runtime.shutdown_background();
        })?;
        Ok(())
    })
}

/// How often the backend is asked to look after itself: before a WAL can have grown by more than some megabytes.
const BETWEEN_MAINTENANCE: Duration = Duration::from_millis(20);

/// How often idle leases are looked for, how many go back at once, so that charges do not wait for them, and how soon more of
/// them do.
const BETWEEN_GIVING_BACK: Duration = Duration::from_secs(1);
const GIVEN_BACK_AT_ONCE: usize = 1_000;
const BETWEEN_MORE: Duration = Duration::from_millis(25);

/// Charges that came until so long ago may come again at any moment: what is done between them is done in short pages.
const QUIET_AFTER: Duration = Duration::from_secs(1);

struct Writer<B> {
    backend: B,
    inbox: Arc<Inbox>,
    clock: Arc<StoreClock>,
    leases: Arc<Leases>,
    refusals: Arc<Refusals>,
    refused: Refused,
    /// Units of leases that are to go back, a page at a time.
    returned: Vec<GiveBack>,
    local: Arc<Local>,
    give_back_at: Instant,
    backlog: Backlog,
    recording: Recording,
    jobs: VecDeque<Running>,
    /// Whether the last thing that was done between charges was a page of a job.
    job_had_its_turn: bool,
    /// The same of a page of a sweep.
    sweep_had_its_turn: bool,
    sweeper: Sweeper,
    /// When something was asked that is waited for.
    asked_at: Instant,
    maintain_at: Instant,
}

impl<B: Backend> Writer<B> {
    async fn run(&mut self) {
        let mut spare = Queue::default();
        loop {
            self.refused.moment = Some(self.refusals.moment());
            let mut taken = self.inbox.take(spare);
            #[cfg(feature = "metrics")]
            self.inbox.health.meters().queued(taken.depth());
            let is_idle = taken.charges.is_empty()
                && taken.forced.is_empty()
                && taken.looks.is_empty()
                && taken.given_back.is_empty()
                && taken.refills.is_empty();
            if !is_idle {
                self.asked_at = clock::monotonic();
            }
            self.put_jobs(taken.jobs.drain(..));
            let given_back = mem::take(&mut taken.given_back);
            let (mut first, mut last) = taken.looks_first_and_last();
            // One of them is empty.
            let looks = [&mut first, &mut last]
                .into_iter()
                .find(|looks| !looks.is_empty());
            let looks = looks.map_or(&mut [][..], |looks| &mut looks.waiters);
            let waiting = [looks, &mut taken.charges.waiters];
            self.take_back(given_back, waiting).await;
            self.look(first, &mut taken.charges).await;
            let charged = self.charge(taken.charges, taken.refills, &mut last.waiters);
            spare = charged.await.emptied();
            self.look(last, &mut spare).await;
            self.maintain().await;
            self.see_changes().await;
            // One page at a time, so that charges never wait for more than that.
            if self.is_turn_to_record() {
                // What fails is tried again, and told when there is no more room.
                let _ = self.record(self.is_quiet()).await;
            } else if let Some(running) = self.next_job() {
                if self.step(running).await {
                    return;
                }
            } else if self.is_turn_to_sweep() {
                self.sweep().await;
            } else if self
                .give_back_due_at()
                .is_some_and(|due_at| due_at <= clock::monotonic())
            {
                self.give_back_idle().await;
            } else if self.is_turn_to_count_refused() {
                // What fails is tried again.
                let _ = self.count_refused().await;
            } else if is_idle {
                if taken.is_abandoned {
                    return self.close().await;
                }
                let dues = [
                    self.sweep_due_at(),
                    self.give_back_due_at(),
                    self.take_back_due_at(),
                    self.record_due_at(),
                    self.changes_due_at(),
                    self.count_refused_due_at(),
                    self.inbox.refills_due_at(),
                ];
                wait(&self.inbox, dues.into_iter().flatten().min()).await;
            }
        }
    }

    async fn maintain(&mut self) {
        self.forget_lost();
        let now = clock::monotonic();
        if now < self.maintain_at {
            return;
        }
        self.maintain_at = now + BETWEEN_MAINTENANCE;
        let held = Held {
            jobs: waiters_of(&mut self.jobs),
            ..Held::default()
        };
        if let Err(error) = watched(&self.inbox, held, self.backend.maintain()).await {
            tracing::debug!(%error, "the upkeep of the rate limit store failed and will be tried again");
        }
        self.forget_lost();
    }

    /// Whether nobody is likely to wait for what is done now.
    fn is_quiet(&self) -> bool {
        clock::monotonic().duration_since(self.asked_at) > QUIET_AFTER
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

fn waiters_of(jobs: &mut VecDeque<Running>) -> Vec<&mut Waiter<u64>> {
    jobs.iter_mut().map(|running| &mut running.waiter).collect()
}

/// Waits until there is something to do.
async fn wait(inbox: &Inbox, due_at: Option<Instant>) {
    let mut woken = pin!(inbox.wake.notified());
    let Some(due_at) = due_at else {
        return woken.await;
    };
    let mut timer = pin!(sleep_until(due_at.into()));
    std::future::poll_fn(|cx| match woken.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => timer.as_mut().poll(cx),
    })
    .await;
}
