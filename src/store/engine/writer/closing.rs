//! What is done when the store closes.

use std::time::Duration;

use tokio::time::sleep_until;

use super::{GIVEN_BACK_AT_ONCE, Running, Writer, waiters_of, watched};
use crate::clock;
use crate::store::StoreError;
use crate::store::engine::backend::Backend;
use crate::store::engine::inbox::{Held, Job};
use crate::store::engine::queue::Queue;

/// Others may hold the database for a while, and what does not go back stays used until its window ends. A process that ends is
/// given ten seconds by most that end it.
pub(super) const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(2);
/// Between two attempts.
pub(super) const PAUSE: Duration = Duration::from_millis(25);

impl<B: Backend> Writer<B> {
    /// Answers what waits, gives back what is left, and closes the backend.
    pub(super) async fn close(&mut self) {
        self.inbox.close();
        let mut rest = self.inbox.take(Queue::default());
        self.jobs.extend(rest.jobs.drain(..).map(Running::new));
        rest.charges.put_first(rest.forced);
        let waiting = [&mut *rest.looks.waiters, &mut *rest.charges.waiters];
        self.take_back(rest.given_back, waiting).await;
        self.look(rest.looks, &mut rest.charges).await;
        self.charge(rest.charges, Vec::new(), &mut []).await;
        self.take_back_all().await;
        self.count_all_refused().await;
        self.give_back_all().await;
        self.record_all().await;
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

    /// Gives back what is left of leases, a page at a time, and tries again for a while.
    async fn give_back_all(&mut self) {
        let unspent = self.leases.take_all();
        self.returned.extend(unspent);
        let until = clock::monotonic() + GIVEN_BACK_WITHIN;
        while !self.returned.is_empty() {
            let before = self.returned.len();
            let left = before.saturating_sub(GIVEN_BACK_AT_ONCE);
            let page = self.returned.split_off(left);
            self.give_back(&page, [&mut [], &mut []]).await;
            let now = clock::monotonic();
            if now >= until {
                return;
            }
            if self.returned.len() == before {
                sleep_until((now + PAUSE).into()).await;
            }
        }
    }
}
