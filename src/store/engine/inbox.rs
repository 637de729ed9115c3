//! What waits for the writer.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use super::breaker::Breaker;
use super::calls::{CallQueue, Taken as CallTaken};
use super::limits::LimitsJob;
use super::queue::{Queue, Waiter};
use super::refills::Refills;
use super::usage::UsageJob;
use crate::clock;
use crate::limit::algorithm::LONGEST_WAY;
use crate::store::health::{DecidedWithout, Health};
use crate::store::{Call, Charge, GiveBack, Outcome, Part, Reply, Reset, SetLimit, StoreError};

/// What a busy server has in flight, times ten. Beyond it the writer is so far behind that waiting does not help.
pub(in crate::store) const QUEUE_LENGTH: usize = 8_192;
/// Above what a batch takes when the disk is slow, and below what a caller notices.
const DEFAULT_DEADLINE: Duration = Duration::from_millis(250);
const SHORTEST_DEADLINE: Duration = Duration::from_millis(1);
/// Resets and sweeps are an operator's: they go on page by page, and may take longer.
const JOB_DEADLINE: Duration = Duration::from_secs(10);

/// Starts the writer's thread.
pub(super) type Starter = Box<dyn FnOnce(Arc<Inbox>) -> io::Result<()> + Send>;

/// The answer to a job that comes later, or why the job was not taken.
pub(super) type JobReply = Result<oneshot::Receiver<Result<u64, StoreError>>, StoreError>;

/// What waits for the writer, and the way to wake it.
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    pub(super) wake: Notify,
    pub(super) health: Health,
    pub(super) breaker: Breaker,
    pub(super) calls: CallQueue,
    deadline_millis: AtomicU64,
}

/// What waits.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) charges: Queue,
    /// Charges of what was used already: they are made however late it is, and whoever waits.
    pub(super) forced: Queue,
    pub(super) looks: Queue,
    pub(super) given_back: Vec<(Vec<GiveBack>, Waiter<u64>)>,
    pub(super) jobs: VecDeque<(Job, Waiter<u64>)>,
    refills: Refills,
    starter: Option<Starter>,
    is_closed: bool,
    /// Nobody is left to ask for anything.
    pub(super) is_abandoned: bool,
}

/// Something longer than a charge.
#[derive(Debug)]
pub(super) enum Job {
    Open,
    Reset(Reset),
    Sweep,
    Usage(Arc<UsageJob>),
    SetLimit(SetLimit),
    Limits(Arc<LimitsJob>),
    Close,
}

impl Inbox {
    pub(super) fn new(
        name: String,
        starter: Starter,
        decided_without: DecidedWithout,
    ) -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::new(Waiting {
                starter: Some(starter),
                ..Waiting::default()
            }),
            wake: Notify::new(),
            calls: CallQueue::new(name.clone()),
            health: Health::new(name, decided_without),
            breaker: Breaker::default(),
            deadline_millis: AtomicU64::new(
                u64::try_from(DEFAULT_DEADLINE.as_millis()).unwrap_or(u64::MAX),
            ),
        })
    }

    pub(super) fn set_deadline(&self, deadline: Duration) {
        let deadline = deadline.clamp(SHORTEST_DEADLINE, LONGEST_WAY);
        let millis = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        self.deadline_millis.store(millis, Ordering::Relaxed);
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_millis.load(Ordering::Relaxed))
    }

    pub(super) fn put_charge(self: &Arc<Self>, charge: Charge) -> Reply {
        let is_asked = || self.breaker.admits(clock::monotonic);
        if charge.is_forced {
            return self.put(charge, is_asked, |waiting| &mut waiting.forced);
        }
        self.put(charge, is_asked, |waiting| &mut waiting.charges)
    }

    pub(super) fn put_give_back(self: &Arc<Self>, units: Vec<GiveBack>) -> JobReply {
        let mut waiting = self.open()?;
        if waiting.given_back.len() >= QUEUE_LENGTH {
            drop(waiting);
            self.health.failed(&StoreError::Overloaded, 1);
            return Err(StoreError::Overloaded);
        }
        let (waiter, answer) = Waiter::new();
        waiting.given_back.push((units, waiter));
        drop(waiting);
        self.wake.notify_one();
        Ok(answer)
    }

    pub(super) fn put_look(self: &Arc<Self>, look: Charge) -> Reply {
        self.put(look, || true, |waiting| &mut waiting.looks)
    }

    /// Looks for a request, as long as the store answers.
    pub(super) fn put_look_of_request(self: &Arc<Self>, look: Charge) -> Reply {
        let is_asked = || self.breaker.admits_looks(clock::monotonic);
        self.put(look, is_asked, |waiting| &mut waiting.looks)
    }

    /// Records an allowed request some time later, unless there is no room for it.
    pub(super) fn put_call(self: &Arc<Self>, call: &Call<'_>) {
        match self.calls.put(call) {
            CallTaken::AndDue => {
                // It may be the first thing that the store is asked for. One that is closed takes nothing in.
                drop(self.open());
                self.wake.notify_one();
            }
            CallTaken::Quietly => {}
            CallTaken::Dropped => {
                #[cfg(feature = "metrics")]
                self.health.meters().unrecorded(1);
            }
        }
    }

    /// Asks for more of a lease; nobody waits for it.
    pub(super) fn put_refill(&self, part: Part) {
        let is_first = self.lock().refills.put(part);
        if is_first {
            self.wake.notify_one();
        }
    }

    /// When leases are to be filled, if some are half empty.
    pub(super) fn refills_due_at(&self) -> Option<Instant> {
        // While the breaker is open a charge is the probe.
        let due_at = self.lock().refills.due_at();
        due_at.filter(|_| !self.breaker.is_open())
    }

    pub(super) fn put_job(self: &Arc<Self>, job: Job) -> JobReply {
        let mut waiting = self.open()?;
        let (waiter, answer) = Waiter::new();
        waiting.jobs.push_back((job, waiter));
        drop(waiting);
        self.wake.notify_one();
        Ok(answer)
    }

    /// Tells the writer that nobody is left to ask for anything.
    pub(super) fn abandon(&self) {
        self.lock().is_abandoned = true;
        self.wake.notify_one();
    }

    /// Takes all that waits, and leaves `spare` to collect the next charges: an empty queue with room in it.
    pub(super) fn take(&self, spare: Queue) -> Taken {
        let mut waiting = self.lock();
        let is_batch_made = !waiting.charges.is_empty() || !waiting.forced.is_empty();
        Taken {
            charges: mem::replace(&mut waiting.charges, spare),
            forced: mem::take(&mut waiting.forced),
            given_back: mem::take(&mut waiting.given_back),
            looks: mem::take(&mut waiting.looks),
            jobs: mem::take(&mut waiting.jobs),
            refills: waiting.refills.take(is_batch_made, !self.breaker.is_open()),
            is_abandoned: waiting.is_abandoned,
        }
    }

    /// How many charges and looks wait, and whether nothing is taken in any more.
    pub(super) fn waiting(&self) -> (usize, bool) {
        let waiting = self.lock();
        let queues = [&waiting.charges, &waiting.forced, &waiting.looks];
        let count = queues.iter().map(|queue| queue.asks.len()).sum();
        (count, waiting.is_closed)
    }

    /// Takes nothing in any more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
    }

    /// Answers those whose deadline has passed, in the inbox and among what the writer holds. Says when to look again.
    pub(super) fn fail_late(&self, held: &mut Held<'_>) -> Instant {
        let now = clock::monotonic();
        let deadline = self.deadline();
        let mut next = now + deadline;
        let (mut late, mut late_jobs) = self.take_late(now, deadline, &mut next);
        for waiter in held
            .waiters
            .iter_mut()
            .flat_map(|waiters| waiters.iter_mut())
        {
            if waiter.is_late(now, deadline) {
                late.push(waiter.taken());
            } else if waiter.is_unanswered() {
                next = next.min(waiter.since + deadline);
            }
        }
        let refunds = held.refunds.iter_mut().map(|waiter| (waiter, deadline));
        let jobs = held.jobs.iter_mut();
        let jobs = jobs.map(|waiter| (&mut **waiter, JOB_DEADLINE));
        for (waiter, deadline) in refunds.chain(jobs) {
            if waiter.is_late(now, deadline) {
                late_jobs.push(waiter.taken());
            } else if waiter.is_unanswered() {
                next = next.min(waiter.since + deadline);
            }
        }
        if !late.is_empty() {
            // Before anybody is answered: who asks again must find the breaker as it is now.
            self.breaker.late(now, deadline);
            let count = late.len() as u64;
            self.health.failed(&StoreError::DeadlineExceeded, count);
        }
        for waiter in &mut late {
            waiter.answer(Err(StoreError::DeadlineExceeded));
        }
        for waiter in &mut late_jobs {
            waiter.answer(Err(StoreError::DeadlineExceeded));
        }
        next
    }

    /// Takes those out of the inbox whose deadline has passed: they have not been charged, and must not be. A late job, a
    /// refund, or a charge of what was used already, is done all the same, and only its waiter is taken. They are answered outside
    /// the lock, since an answer may run the caller's code.
    fn take_late(
        &self,
        now: Instant,
        deadline: Duration,
        next: &mut Instant,
    ) -> (Vec<Waiter<Outcome>>, Vec<Waiter<u64>>) {
        let mut late = Vec::new();
        let mut guard = self.lock();
        let waiting = &mut *guard;
        for queue in [&mut waiting.charges, &mut waiting.looks] {
            let in_time = queue
                .waiters
                .iter()
                .position(|waiter| !waiter.is_late(now, deadline));
            let count = in_time.unwrap_or(queue.waiters.len());
            queue.asks.drain(..count);
            late.extend(queue.waiters.drain(..count));
            if let Some(waiter) = queue.waiters.first() {
                *next = (*next).min(waiter.since + deadline);
            }
        }
        let mut late_jobs = Vec::new();
        let given_back = waiting.given_back.iter_mut();
        let given_back = given_back.map(|(_, waiter)| (waiter, deadline));
        let jobs = waiting.jobs.iter_mut();
        let jobs = jobs.map(|(_, waiter)| (waiter, JOB_DEADLINE));
        for (waiter, deadline) in given_back.chain(jobs) {
            if waiter.is_late(now, deadline) {
                late_jobs.push(waiter.taken());
            } else if waiter.is_unanswered() {
                *next = (*next).min(waiter.since + deadline);
            }
        }
        for waiter in &mut waiting.forced.waiters {
            if waiter.is_late(now, deadline) {
                late.push(waiter.taken());
            } else if waiter.is_unanswered() {
                *next = (*next).min(waiter.since + deadline);
            }
        }
        (late, late_jobs)
    }

    fn put(
        self: &Arc<Self>,
        ask: Charge,
        is_asked: impl FnOnce() -> bool,
        queue: impl FnOnce(&mut Waiting) -> &mut Queue,
    ) -> Reply {
        let mut waiting = match self.open() {
            Ok(waiting) => waiting,
            Err(error) => return self.refuse(error),
        };
        let queue = queue(&mut waiting);
        if queue.asks.len() >= QUEUE_LENGTH {
            drop(waiting);
            return self.refuse(StoreError::Overloaded);
        }
        if !is_asked() {
            drop(waiting);
            return self.refuse(StoreError::BreakerOpen);
        }
        let is_first = queue.asks.is_empty();
        let (waiter, answer) = Waiter::new();
        queue.asks.push(ask);
        queue.waiters.push(waiter);
        drop(waiting);
        if is_first {
            self.wake.notify_one();
        }
        Reply::Later(answer)
    }

    fn refuse(&self, error: StoreError) -> Reply {
        self.health.failed(&error, 1);
        Reply::Ready(Err(error))
    }

    /// The inbox, with the writer started; or why it takes nothing.
    fn open(self: &Arc<Self>) -> Result<MutexGuard<'_, Waiting>, StoreError> {
        let mut waiting = self.lock();
        if waiting.is_closed {
            return Err(StoreError::Closed);
        }
        if let Some(starter) = waiting.starter.take()
            && let Err(error) = starter(Arc::clone(self))
        {
            waiting.is_closed = true;
            drop(waiting);
            let error = StoreError::Database {
                is_transient: false,
                source: Arc::new(error),
            };
            self.calls.close();
            self.calls.give_up(&error);
            return Err(error);
        }
        Ok(waiting)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing that is done under the lock leaves a queue and its waiters of unequal length.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All that the writer holds and has not answered while a call is under way.
#[derive(Default)]
pub(super) struct Held<'a> {
    pub(super) waiters: [&'a mut [Waiter<Outcome>]; 2],
    pub(super) refunds: &'a mut [Waiter<u64>],
    pub(super) jobs: Vec<&'a mut Waiter<u64>>,
}

/// What the writer took.
pub(super) struct Taken {
    pub(super) charges: Queue,
    pub(super) forced: Queue,
    pub(super) given_back: Vec<(Vec<GiveBack>, Waiter<u64>)>,
    pub(super) looks: Queue,
    pub(super) jobs: VecDeque<(Job, Waiter<u64>)>,
    pub(super) refills: Vec<Part>,
    pub(super) is_abandoned: bool,
}

impl Taken {
    /// How many charges and looks have waited.
    #[cfg(feature = "metrics")]
    pub(super) fn depth(&self) -> usize {
        let queues = [&self.charges, &self.forced, &self.looks];
        queues.iter().map(|queue| queue.asks.len()).sum()
    }

    /// The looks that come before the charges, and those that come after them. Looks need no lock, so they go first, and do not
    /// wait for one; but not before charges of what was used already: who has made one finds it.
    pub(super) fn looks_first_and_last(&mut self) -> (Queue, Queue) {
        let looks = mem::take(&mut self.looks);
        if self.forced.is_empty() {
            return (looks, Queue::default());
        }
        self.charges.put_first(mem::take(&mut self.forced));
        (Queue::default(), looks)
    }
}
