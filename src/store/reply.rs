//! An answer that is there at once, or later.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::{Outcome, StoreError};
use crate::limit::Verdict;
use crate::limit::few::Few;

/// An answer that is on its way.
pub(crate) type Later = oneshot::Receiver<Result<Outcome, StoreError>>;

/// The answer to one charge or look.
#[derive(Debug)]
pub(crate) enum Reply {
    Ready(Result<Outcome, StoreError>),
    /// It was admitted from memory, and this is what each policy says: what they found is in it, and no list of its own.
    #[cfg_attr(
        not(feature = "_engine"),
        expect(dead_code, reason = "only stores that do I/O charge ahead")
    )]
    Spent(Few<Verdict>),
    #[cfg_attr(
        not(feature = "_engine"),
        expect(dead_code, reason = "only stores that do I/O answer later")
    )]
    Later(Later),
    /// It was taken.
    Done,
}

impl Reply {
    /// The answer, when it needs no wait.
    pub(crate) fn take_ready(&mut self) -> Option<Result<Outcome, StoreError>> {
        match std::mem::replace(self, Self::Done) {
            Self::Ready(answer) => Some(answer),
            Self::Spent(verdicts) => Some(Ok(Outcome::of(&verdicts))),
            later => {
                *self = later;
                None
            }
        }
    }

    #[cfg(all(test, any(feature = "postgres", feature = "redis", feature = "sqlite")))]
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self, Self::Ready(_) | Self::Spent(_))
    }
}

impl Future for Reply {
    type Output = Result<Outcome, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match &mut *self {
            Self::Later(later) => match poll_later(later, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(answer) => answer,
            },
            ready => ready.take_ready().unwrap_or(Err(StoreError::Closed)),
        };
        *self = Self::Done;
        Poll::Ready(answer)
    }
}

/// The answer, once it is there.
pub(crate) fn poll_later(
    later: &mut Later,
    cx: &mut Context<'_>,
) -> Poll<Result<Outcome, StoreError>> {
    // The writer answers all it takes, and all that is left when it closes: it must have panicked.
    let answer = Pin::new(later).poll(cx);
    answer.map(|answer| answer.unwrap_or(Err(StoreError::Panicked)))
}
