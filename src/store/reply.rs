//! An answer that is there at once, or later.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::{Outcome, StoreError};

/// The answer to one charge or look.
#[derive(Debug)]
pub(crate) enum Reply {
    Ready(Result<Outcome, StoreError>),
    #[cfg_attr(
        not(feature = "_engine"),
        expect(dead_code, reason = "only stores that do I/O answer later")
    )]
    Later(oneshot::Receiver<Result<Outcome, StoreError>>),
    /// It was taken.
    Done,
}

impl Reply {
    /// The answer, when it needs no wait.
    pub(crate) fn take_ready(&mut self) -> Option<Result<Outcome, StoreError>> {
        match std::mem::replace(self, Self::Done) {
            Self::Ready(answer) => Some(answer),
            later => {
                *self = later;
                None
            }
        }
    }
}

impl Future for Reply {
    type Output = Result<Outcome, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match &mut *self {
            Self::Later(receiver) => match Pin::new(receiver).poll(cx) {
                Poll::Pending => return Poll::Pending,
                // The writer answers all it takes, and all that is left when it closes: it must have panicked.
                Poll::Ready(answer) => answer.unwrap_or(Err(StoreError::Panicked)),
            },
            ready => ready.take_ready().unwrap_or(Err(StoreError::Closed)),
        };
        *self = Self::Done;
        Poll::Ready(answer)
    }
}
