//! The thread that has the backend decide, one batch after another.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::thread;
use std::time::Instant;

use tokio::time::sleep_until;

use super::backend::{Backend, Cursor, Page};
use super::inbox::{Inbox, Job, Queue, Starter, Waiter};
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
            let mut writer = Writer {
                backend,
                inbox,
                clock,
                jobs: VecDeque::new(),
                sweeper: Sweeper::new(clock::monotonic()),
            };
            // What a call of the backend does is caught where it is watched. Should anything else panic, a log
            // subscriber say, those of its batch are told, and the next batch finds a writer all the same.
            while catch_unwind(AssertUnwindSafe(|| runtime.block_on(writer.run()))).is_err() {}
        })?;
        Ok(())
    })
}

struct Writer<B> {
    backend: B,
    inbox: Arc<Inbox>,
    clock: Arc<OnceLock<Clock>>,
    jobs: VecDeque<Running>,
    sweeper: Sweeper,
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
            let taken = self.inbox.take(spare);
            let is_idle = taken.charges.is_empty() && taken.looks.is_empty();
            spare = self.charge(taken.charges).await.emptied();
            self.look(taken.looks).await;
            self.jobs
                .extend(taken.jobs.into_iter().map(|(job, waiter)| Running {
                    job,
                    waiter,
                    count: 0,
                    after: None,
                }));
            // One page at a time, so that charges never wait for more than that.
            if let Some(running) = self.jobs.pop_front() {
                if self.step(running).await {
                    return;
                }
            } else if self
                .sweeper
                .due_at()
                .is_some_and(|due_at| due_at <= clock::monotonic())
            {
                self.sweep().await;
            } else if is_idle {
                if taken.is_abandoned {
                    return self.close(None).await;
                }
                wait(&self.inbox, self.sweeper.due_at()).await;
            }
        }
    }

    async fn charge(&mut self, mut queue: Queue) -> Queue {
        queue.drop_cancelled();
        if queue.is_empty() {
            return queue;
        }
        self.sweeper.wrote(clock::monotonic());
        let call = self.backend.charge(&queue.asks);
        let answers = watched(&self.inbox, &mut queue.waiters, None, call).await;
        self.answer(&mut queue.waiters, answers);
        queue
    }

    async fn look(&mut self, mut queue: Queue) {
        queue.drop_cancelled();
        if queue.is_empty() {
            return;
        }
        let call = self.backend.peek(&queue.asks);
        let answers = watched(&self.inbox, &mut queue.waiters, None, call).await;
        let answers = answers.map(|outcomes| outcomes.into_iter().map(Ok).collect());
        self.answer(&mut queue.waiters, answers);
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

    /// Does the next page of a job. Says whether the store is closed now.
    async fn step(&mut self, mut running: Running) -> bool {
        let inbox = Arc::clone(&self.inbox);
        let waiter = Some(&mut running.waiter);
        let after = running.after.take();
        let page = match &running.job {
            Job::Open => {
                let call = self.backend.open();
                watched(&inbox, &mut [], waiter, call)
                    .await
                    .map(|()| Page::default())
            }
            Job::Reset(reset) => {
                let call = self.backend.reset(reset, after);
                watched(&inbox, &mut [], waiter, call).await
            }
            Job::Sweep => {
                let now = self.now();
                let call = self.backend.sweep(now, after);
                watched(&inbox, &mut [], waiter, call).await
            }
            Job::Close => {
                self.close(Some(running.waiter)).await;
                return true;
            }
        };
        match page {
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
            Err(error) => {
                running.waiter.answer(Err(error));
            }
        }
        false
    }

    async fn sweep(&mut self) {
        let (now, after) = (self.now(), self.sweeper.after());
        let call = self.backend.sweep(now, after);
        match watched(&self.inbox, &mut [], None, call).await {
            Ok(page) => self.sweeper.swept(page, clock::monotonic()),
            Err(error) => {
                self.sweeper.failed(clock::monotonic());
                tracing::debug!(%error, "a sweep of expired rate limit rows failed and will be tried again");
            }
        }
    }

    async fn close(&mut self, waiter: Option<Waiter<u64>>) {
        self.inbox.close();
        let rest = self.inbox.take(Queue::default());
        self.charge(rest.charges).await;
        self.look(rest.looks).await;
        let closed = watched(&self.inbox, &mut [], None, self.backend.close()).await;
        let jobs = self
            .jobs
            .drain(..)
            .map(|running| (running.job, running.waiter));
        for (job, mut waiter) in jobs.chain(rest.jobs) {
            waiter.answer(match job {
                Job::Close => Ok(0),
                _ => Err(StoreError::Closed),
            });
        }
        if let Some(mut waiter) = waiter {
            waiter.answer(closed.map(|()| 0));
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.get().unwrap_or(&Clock::System).now()
    }
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
    waiters: &mut [Waiter<Outcome>],
    mut job: Option<&mut Waiter<u64>>,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let mut call = pin!(call);
    loop {
        let look_again_at = inbox.fail_late(waiters, job.as_deref_mut());
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
            return answer;
        }
    }
}
