//! A call into the backend, with the deadlines of those who wait watched beside it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use tokio::time::sleep_until;

use crate::store::StoreError;
use crate::store::engine::inbox::{Held, Inbox};

/// Drives a call to its end, and beside it answers those whose deadline passes. The call itself is never dropped: that
/// would leave a transaction open. A panic in it becomes an error.
pub(super) async fn watched<T>(
    inbox: &Inbox,
    mut held: Held<'_>,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let mut call = pin!(call);
    inbox.breaker.began();
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
