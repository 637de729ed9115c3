//! Resets and sweeps: jobs of many short steps.

use std::mem;
use std::time::Instant;

use super::{GIVEN_BACK_AT_ONCE, Writer, waiters_of, watched};
use crate::clock;
use crate::store::engine::backend::{Backend, Cursor, Freed, Page};
use crate::store::engine::inbox::{Held, Job};
use crate::store::engine::queue::Waiter;
use crate::store::{GiveBack, Reset, SetLimit, StoreError};

/// A job, and how far it is.
pub(super) struct Running {
    pub(super) job: Job,
    pub(super) waiter: Waiter<u64>,
    count: u64,
    after: Option<Cursor>,
}

impl Running {
    pub(super) fn new((job, waiter): (Job, Waiter<u64>)) -> Self {
        Self {
            job,
            waiter,
            count: 0,
            after: None,
        }
    }
}

impl<B: Backend> Writer<B> {
    /// Puts jobs behind those that are there. Questions are not waited for when the store closes.
    pub(super) fn put_jobs(&mut self, jobs: impl Iterator<Item = (Job, Waiter<u64>)>) {
        for (job, waiter) in jobs {
            if matches!(job, Job::Close) {
                self.jobs.retain_mut(|running| {
                    let is_question = matches!(running.job, Job::Usage(_) | Job::Limits(_));
                    if is_question {
                        running.waiter.answer(Err(StoreError::Closed));
                    }
                    !is_question
                });
            }
            self.jobs.push_back(Running::new((job, waiter)));
        }
    }

    /// The job that is next. After a page of one, a sweep that is due comes first, and leases that are to go back. What somebody wants
    /// done, a reset or a limit, does not wait for the end of a question about usage, which may have millions of rows.
    pub(super) fn next_job(&mut self) -> Option<Running> {
        if mem::take(&mut self.job_had_its_turn) {
            let dues = [self.sweep_due_at(), self.give_back_due_at()];
            let now = clock::monotonic();
            if dues.into_iter().flatten().any(|due_at| due_at <= now) {
                return None;
            }
        }
        let mut jobs = self.jobs.iter();
        let place = jobs.position(|running| !matches!(running.job, Job::Usage(_)));
        let job = self.jobs.remove(place.unwrap_or(0));
        self.job_had_its_turn = job.is_some();
        job
    }

    /// Does the next page of a job. Says whether the store is closed now.
    pub(super) async fn step(&mut self, mut running: Running) -> bool {
        if matches!(running.job, Job::Close) {
            self.jobs.push_front(running);
            self.close().await;
            return true;
        }
        if running.after.is_none() {
            self.give_back_before(&running.job).await;
        }
        if matches!(running.job, Job::Usage(_)) && running.waiter.is_cancelled() {
            // The rest of its pages is for nobody.
            return false;
        }
        if let Job::Usage(job) = &running.job
            && self.inbox.calls.settled() < job.written
        {
            // What was recorded before it was asked is in the answer.
            self.jobs.push_front(running);
            if let Err(error) = self.record(self.is_quiet()).await
                && let Some(mut running) = self.jobs.pop_front()
            {
                running.waiter.answer(Err(error));
            }
            return false;
        }
        let after = running.after.take();
        let after_key = after.as_ref().map(|after| after.key.clone());
        let (now, rows) = (self.now(), self.sweeper.page_rows(self.is_quiet()));
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
                Job::Sweep => backend.sweep(now, after, rows).await,
                Job::Usage(job) => {
                    let page = backend.usage(&job.ask, after).await?;
                    job.add(page.groups)?;
                    Ok(Page {
                        next: page.next,
                        ..Page::default()
                    })
                }
                Job::SetLimit(set) => Ok(Page {
                    count: u64::from(backend.set_limit(set).await?),
                    ..Page::default()
                }),
                Job::Limits(job) => {
                    job.set(backend.limits(&job.ask).await?);
                    Ok(Page::default())
                }
                Job::Close => Ok(Page::default()),
            }
        };
        match watched(&self.inbox, held, call).await {
            Ok(page) => {
                let mut count = page.count;
                #[cfg(feature = "metrics")]
                if matches!(running.job, Job::Sweep) {
                    self.inbox.health.meters().swept(count);
                }
                if let Job::Reset(reset) = &running.job {
                    // They were counted as used, and were not.
                    let unspent =
                        self.forget_reset(reset, after_key.as_deref(), page.next.as_ref());
                    count = count.saturating_sub(unspent);
                }
                if let Job::SetLimit(set) = &running.job {
                    self.end_leases(set).await;
                }
                running.count += count;
                running.after = page.next;
                if running.after.is_some() {
                    // In front of later jobs: of those that wait for each other what was asked first is done first.
                    self.jobs.push_front(running);
                } else {
                    running.waiter.answer(Ok(running.count));
                }
            }
            Err(error) => running.waiter.answer(Err(error)),
        }
        false
    }

    /// Gives back what a job must find in the backend.
    async fn give_back_before(&mut self, job: &Job) {
        match job {
            Job::Sweep => self.give_back_idle().await,
            Job::Reset(reset) => {
                // It is counted as used still, and is no lease any more that this could be told from.
                let is_meant = |back: &mut GiveBack| back.part.rule == reset.part.rule;
                let mut rests: Vec<_> = self.returned.extract_if(.., is_meant).collect();
                // Of a sliding counter it counts by a part, which can't be told afterwards.
                rests.extend(self.leases.take_ended(&reset.part, reset.at));
                self.give_back(&rests, [&mut [], &mut []]).await;
            }
            _ => {}
        }
    }

    /// Forgets what is known of the keys of a page that was reset, and says how many units they had leased.
    fn forget_reset(&self, reset: &Reset, from: Option<&str>, to: Option<&Cursor>) -> u64 {
        let (below, own) = (reset.part.key.under().1, reset.part.key.as_str());
        let is_meant = |key: &str| match from {
            // The first page is the key itself, and those that follow are of keys under it.
            None => key == own,
            Some(from) => key > from && to.map_or(key < &*below, |to| key <= &*to.key),
        };
        let unspent = self.leases.forget(reset, is_meant);
        self.refusals.forget_reset(reset, is_meant);
        unspent
    }

    /// Ends what was charged under another limit. Before it is answered: the next charge asks the backend.
    async fn end_leases(&mut self, set: &SetLimit) {
        let freed = [Freed::Limit {
            filed_under: set.filed_under.clone(),
            key: set.key_text().to_owned(),
        }];
        self.refusals.free_all(&freed);
        let mut rests = self.leases.take_of(&freed);
        let page = rests.split_off(rests.len().saturating_sub(GIVEN_BACK_AT_ONCE));
        self.give_back(&page, [&mut [], &mut []]).await;
        self.return_by_pages(rests);
    }

    /// When to sweep, if at all. Under a set clock only the test says when: what the clock shows at some moment of real
    /// time is chance.
    pub(super) fn sweep_due_at(&self) -> Option<Instant> {
        let is_set = self.clock.get().manual().is_some();
        self.sweeper.due_at().filter(|_| !is_set)
    }

    /// Whether a page of a sweep is next. After one, leases that are to go back come first, and refusals that are to be counted:
    /// while rows expire a sweep may be due at every turn.
    pub(super) fn is_turn_to_sweep(&mut self) -> bool {
        let now = clock::monotonic();
        let is_due = |due_at: Option<Instant>| due_at.is_some_and(|due_at| due_at <= now);
        let had_its_turn = mem::take(&mut self.sweep_had_its_turn);
        let others = [self.give_back_due_at(), self.count_refused_due_at()];
        let is_others_turn = had_its_turn && others.into_iter().any(is_due);
        self.sweep_had_its_turn = is_due(self.sweep_due_at()) && !is_others_turn;
        self.sweep_had_its_turn
    }

    pub(super) async fn sweep(&mut self) {
        let (now, after) = (self.now(), self.sweeper.after());
        if after.is_none() {
            self.local.sweep();
        }
        let horizon = self.sweeper.horizon(now);
        let rows = self.sweeper.page_rows(self.is_quiet());
        let call = self.backend.sweep(horizon, after, rows);
        match watched(&self.inbox, Held::default(), call).await {
            Ok(page) => {
                #[cfg(feature = "metrics")]
                self.inbox.health.meters().swept(page.count);
                self.sweeper.swept(page, rows, clock::monotonic());
            }
            Err(error) => {
                self.sweeper.failed(clock::monotonic());
                tracing::debug!(%error, "a sweep of expired rate limit rows failed and will be tried again");
            }
        }
    }
}
