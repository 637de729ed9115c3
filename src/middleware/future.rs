//! The future of a response: a decision that is waited for, then the inner service's future; or our own answer.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::recording::Recording;
use super::settings::{Course, Settings};
use super::{Decisions, ResponseBody};
use crate::limiter::Check;

pin_project! {
    /// The future of a [`RateLimit`](super::RateLimit) service.
    ///
    /// Dropping it abandons the request: what was charged stays charged, and nothing is left behind in the store.
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B, S::Future>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, B, F> {
        Deciding { deciding: Option<Deciding<S, B>> },
        Passed { #[pin] future: F },
        Allowed { #[pin] future: F, finish: Option<Finish> },
        Rejected { response: Option<Response<Bytes>> },
    }
}

/// A request whose decision is waited for, and the service that is ready for it.
pub(super) struct Deciding<S, B> {
    pub(super) check: Check,
    pub(super) service: S,
    pub(super) parts: Parts,
    pub(super) body: B,
    pub(super) settings: Arc<Settings>,
}

/// What is needed to finish an allowed request's response.
pub(super) struct Finish {
    pub(super) settings: Arc<Settings>,
    pub(super) decisions: Decisions,
    pub(super) recording: Option<Box<Recording>>,
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn deciding(deciding: Deciding<S, B>) -> Self {
        let deciding = Some(deciding);
        Self {
            state: State::Deciding { deciding },
        }
    }

    pub(super) fn passed(future: S::Future) -> Self {
        Self {
            state: State::Passed { future },
        }
    }

    pub(super) fn allowed(future: S::Future, finish: Finish) -> Self {
        let finish = Some(finish);
        Self {
            state: State::Allowed { future, finish },
        }
    }

    pub(super) fn rejected(response: Response<Bytes>) -> Self {
        let response = Some(response);
        Self {
            state: State::Rejected { response },
        }
    }
}

impl<S, B, ResBody> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
{
    type Output = Result<Response<ResponseBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProjection::Deciding { deciding: slot } => {
                    let Some(deciding) = slot else { polled_again() };
                    let answer = ready!(Pin::new(&mut deciding.check).poll(cx));
                    let Some(deciding) = slot.take() else {
                        polled_again()
                    };
                    let Deciding {
                        check,
                        mut service,
                        mut parts,
                        body,
                        settings,
                    } = deciding;
                    match settings.decide(answer, check.into_parts(), &mut parts) {
                        Course::Allowed(decisions, recording) => State::Allowed {
                            future: service.call(Request::from_parts(parts, body)),
                            finish: Some(Finish {
                                settings,
                                decisions,
                                recording,
                            }),
                        },
                        Course::Passed => State::Passed {
                            future: service.call(Request::from_parts(parts, body)),
                        },
                        Course::Rejected(response) => State::Rejected {
                            response: Some(response),
                        },
                    }
                }
                StateProjection::Passed { future } => {
                    let response = ready!(future.poll(cx))?;
                    return Poll::Ready(Ok(response.map(ResponseBody::inner)));
                }
                StateProjection::Allowed { future, finish } => {
                    let mut answer = ready!(future.poll(cx));
                    if let Some(finish) = finish.take() {
                        let Finish {
                            settings,
                            decisions,
                            recording,
                        } = finish;
                        match &mut answer {
                            Ok(response) => settings.finish(response, decisions, recording),
                            Err(_) => settings.fail(&decisions, recording),
                        }
                    }
                    let response = answer?;
                    return Poll::Ready(Ok(response.map(ResponseBody::inner)));
                }
                StateProjection::Rejected { response } => {
                    let Some(response) = response.take() else {
                        polled_again()
                    };
                    return Poll::Ready(Ok(response.map(ResponseBody::ours)));
                }
            };
            this.state.set(next);
        }
    }
}

/// As futures do that an executor polls once more after they have ended.
fn polled_again() -> ! {
    panic!("a ResponseFuture was polled after it had ended")
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Deciding { .. } => "deciding",
            State::Passed { .. } => "passed",
            State::Allowed { .. } => "allowed",
            State::Rejected { .. } => "rejected",
        };
        f.debug_tuple("ResponseFuture").field(&state).finish()
    }
}
