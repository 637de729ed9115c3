//! The thread that has the backend decide, one batch after another.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use super::backend::{Backend, Cursor, Page};
use super::inbox::{Held, Inbox, Job, Queue, Starter, Waiter};
use super::sweeper::Sweeper;
use crate::clock::{self, Clock};
use crate::limit::Timestamp;
use crate::store::{Outcome, StoreError};

/// What starts the writer's thread, once.
pub(super) fn starter<B: Backend>(backend: B, clock: Arc<OnceLock<Clock>>) -> Starter {
    Box::new(move |inbox| {
        // Its own runtime, for its timer alone: a caller's runtime may end, and may have its time paused by a test.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        let thread = thread::Builder::new().name("tollgate-store".to_owned());
        thread.spawn(move || {
            let started_at = clock.get().unwrap_or(&Clock::System).now();
            let mut writer = Writer {
                backend,
                inbox,
                clock,
                jobs: VecDeque::new(),
                sweeper: Sweeper::new(clock::monotonic(), started_at),
                maintain_at: clock::monotonic() + BETWEEN_MAINTENANCE,
            };
            // What a call of the backend does is caught where it is watched. Should anything else panic, a log
            // subscriber say, those of its batch are told, and the next batch finds a writer all the same.
            while catch_unwind(AssertUnwindSafe(|| runtime.block_on(writer.run()))).is_err() {}
        })?;
        Ok(())
    })
}

/// How often the backend is asked to look after itself: before a WAL can have grown by more than some megabytes.
const BETWEEN_MAINTENANCE: Duration = Duration::from_millis(20);

struct Writer<B> {
    backend: B,
    inbox: Arc<Inbox>,
    clock: Arc<OnceLock<Clock>>,
    jobs: VecDeque<Running>,
    sweeper: Sweeper,
    maintain_at: Instant,
}

/// A job, and how far it is.
struct Running {
    job: Job,
    waiter: Waiter<u64>,
    count: u64,
    after: Option<Cursor>,
}

impl<B: Backend> Writer<B> {
    async fn run(&mut self) {
        let mut spare = Queue::default();
        loop {
            let mut taken = self.inbox.take(spare);
            let is_idle = taken.charges.is_empty() && taken.looks.is_empty();
            self.jobs.extend(taken.jobs.drain(..).map(Running::new));
            // Looks first: they need no lock, so that they do not wait for one.
            self.look(taken.looks, &mut taken.charges).await;
            spare = self.charge(taken.charges).await.emptied();
            self.maintain().await;
            // One page at a time, so that charges never wait for more than that.
            if let Some(running) = self.jobs.pop_front() {
                if self.step(running).await {
                    return;
                }
            } else if self
                .sweep_due_at()
                .is_some_and(|due_at| due_at <= clock::monotonic())
            {
                self.sweep().await;
            } else if is_idle {
                if taken.is_abandoned {
                    return self.close().await;
                }
                wait(&self.inbox, self.sweep_due_at()).await;
            }
        }
    }

    async fn look(&mut self, mut queue: Queue, charges: &mut Queue) {
        queue.drop_cancelled();
        if queue.is_empty() {
            return;
        }
        let now = self.now();
        let held = Held {
            waiters: [&mut queue.waiters, &mut charges.waiters],
            jobs: waiters_of(&mut self.jobs),
        };
        let answers = watched(&self.inbox, held, self.backend.peek(&queue.asks, now)).await;
        let answers = answers.map(|outcomes| outcomes.into_iter().map(Ok).collect());
        self.answer(&mut queue.waiters, answers);
    }

    async fn charge(&mut self, mut queue: Queue) -> Queue {
        queue.drop_cancelled();
        if queue.is_empty() {
            return queue;
        }
        let held = Held {
            waiters: [&mut queue.waiters, &mut []],
            jobs: waiters_of(&mut self.jobs),
        };
        let clock = self.clock.get().unwrap_or(&Clock::System);
        let call = self.backend.charge(&queue.asks, clock);
        let answers = watched(&self.inbox, held, call).await;
        self.answer(&mut queue.waiters, answers);
        self.sweeper.wrote(clock::monotonic());
        queue
    }

    fn answer(
        &self,
        waiters: &mut [Waiter<Outcome>],
        answers: Result<Vec<Result<Outcome, StoreError>>, StoreError>,
    ) {
        match answers {
            Ok(answers) => {
                let refusals = answers.iter().filter_map(|answer| answer.as_ref().err());
                match refusals.clone().next() {
                    Some(error) => self.inbox.health.failed(error, refusals.count() as u64),
                    None => self.inbox.health.answered(),
                }
                for (waiter, answer) in waiters.iter_mut().zip(answers) {
                    waiter.answer(answer);
                }
            }
            Err(error) => {
                self.inbox.health.failed(&error, waiters.len() as u64);
                for waiter in waiters {
                    waiter.answer(Err(error.clone()));
                }
            }
        }
    }

    async fn maintain(&mut self) {
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
    }

    /// Does the next page of a job. Says whether the store is closed now.
    async fn step(&mut self, mut running: Running) -> bool {
        if matches!(running.job, Job::Close) {
            self.jobs.push_front(running);
            self.close().await;
            return true;
        }
        let after = running.after.take();
        let now = self.now();
        let mut jobs = waiters_of(&mut self.jobs);
        jobs.push(&mut running.waiter);
        let held = Held {
            jobs,
            ..Held::default()
        };
        let backend = &mut self.backend;
        let call = async {
            match &running.job {
                Job::Open => backend.open().await.map(|()| Page::default()),
                Job::Reset(reset) => backend.reset(reset, after).await,
                Job::Sweep => backend.sweep(now, after).await,
                Job::Close => Ok(Page::default()),
            }
        };
        match watched(&self.inbox, held, call).await {
            Ok(page) => {
                running.count += page.count;
                running.after = page.next;
                if running.after.is_some() {
                    // In front of later jobs: what was asked first is done first.
                    self.jobs.push_front(running);
                } else {
                    running.waiter.answer(Ok(running.count));
                }
            }
            Err(error) => running.waiter.answer(Err(error)),
        }
        false
    }

    /// When to sweep, if at all. Under a set clock only the test says when: what the clock shows at some moment of real
    /// time is chance.
    fn sweep_due_at(&self) -> Option<Instant> {
        let is_set = self.clock.get().is_some_and(Clock::is_manual);
        self.sweeper.due_at().filter(|_| !is_set)
    }

    async fn sweep(&mut self) {
        let (now, after) = (self.now(), self.sweeper.after());
        let horizon = self.sweeper.horizon(now);
        let call = self.backend.sweep(horizon, after);
        match watched(&self.inbox, Held::default(), call).await {
            Ok(page) => self.sweeper.swept(page, clock::monotonic()),
            Err(error) => {
                self.sweeper.failed(clock::monotonic());
                tracing::debug!(%error, "a sweep of expired rate limit rows failed and will be tried again");
            }
        }
    }

    async fn close(&mut self) {
        self.inbox.close();
        let mut rest = self.inbox.take(Queue::default());
        self.jobs.extend(rest.jobs.drain(..).map(Running::new));
        self.look(rest.looks, &mut rest.charges).await;
        self.charge(rest.charges).await;
        let held = Held {
            jobs: waiters_of(&mut self.jobs),
            ..Held::default()
        };
        let closed = watched(&self.inbox, held, self.backend.close()).await;
        for mut running in self.jobs.drain(..) {
            running.waiter.answer(match running.job {
                Job::Close => closed.clone().map(|()| 0),
                _ => Err(StoreError::Closed),
            });
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.get().unwrap_or(&Clock::System).now()
    }
}

impl Running {
    fn new((job, waiter): (Job, Waiter<u64>)) -> Self {
        Self {
            job,
            waiter,
            count: 0,
            after: None,
        }
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

/// Drives a call to its end, and beside it answers those whose deadline passes. The call itself is never dropped: that
/// would leave a transaction open. A panic in it becomes an error.
async fn watched<T>(
    inbox: &Inbox,
    mut held: Held<'_>,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let mut call = pin!(call);
    loop {
        let look_again_at = inbox.fail_late(&mut held);
        let mut timer = pin!(sleep_until(look_again_at.into()));
        let done = std::future::poll_fn(|cx| {
            let poll = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx)));
            match poll.unwrap_or(Poll::Ready(Err(StoreError::Panicked))) {
                Poll::Ready(answer) => Poll::Ready(Some(answer)),
                Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
            }
        })
        .await;
        if let Some(answer) = done {
            // A process that stood still comes back to an answer and a deadline at once: the deadline was first.
            inbox.fail_late(&mut held);
            return answer;
        }
    }
}
