//! The service that a layer makes.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::future::{Deciding, Finish};
use super::settings::{Course, Left, Settings};
use super::{Decisions, Rejection, ResponseBody, ResponseFuture};
use crate::limiter::Begun;

/// A service with a rate limit in front of it, made by [`RateLimitLayer`](crate::RateLimitLayer).
///
/// While a charge is under way the inner service waits ready: what it reserved in `poll_ready` (a concurrency permit,
/// say) is held that long, and freed at once when the request is refused.
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    settings: Arc<Settings>,
}

impl<S> RateLimit<S> {
    pub(super) fn new(inner: S, settings: Arc<Settings>) -> Self {
        Self { inner, settings }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service, without the limit.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for RateLimit<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
{
    type Response = Response<ResponseBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let settings = &self.settings;
        if !settings.is_enabled {
            return ResponseFuture::passed(self.inner.call(request));
        }
        let (mut parts, body) = request.into_parts();
        if settings.is_exempt(&parts) {
            return ResponseFuture::passed(self.inner.call(Request::from_parts(parts, body)));
        }
        let charge = match settings.parts(&parts) {
            Ok(charge) => charge,
            Err(_) if settings.limiter.is_shadow() => {
                return ResponseFuture::passed(self.inner.call(Request::from_parts(parts, body)));
            }
            Err(error) => {
                let response = settings.reject(Rejection::from(error), &parts, None);
                drop(self.take_ready());
                return ResponseFuture::rejected(response);
            }
        };
        settings.announce();
        let cost = settings.cost(&parts);
        let before = parts.extensions.get::<Decisions>();
        let begun = match settings.left_to_charge(before, charge, cost) {
            Left::Nothing => {
                return ResponseFuture::passed(self.inner.call(Request::from_parts(parts, body)));
            }
            Left::Parts(charge) => settings.limiter.begin(charge, cost),
            Left::Held(held) => settings.limiter.begin_held(*held, cost),
        };
        let (answer, charged) = match begun {
            Begun::Decided(answer, charged) => (answer, charged),
            Begun::Waits(check) => {
                let settings = Arc::clone(settings);
                return ResponseFuture::deciding(Deciding {
                    check,
                    service: self.take_ready(),
                    parts,
                    body,
                    settings,
                });
            }
        };
        match settings.decide(answer, charged, &mut parts) {
            Course::Allowed(decisions, recording) => {
                let settings = Arc::clone(settings);
                let request = Request::from_parts(parts, body);
                let finish = Finish {
                    settings,
                    decisions,
                    recording,
                };
                ResponseFuture::allowed(self.inner.call(request), finish)
            }
            Course::Passed => {
                ResponseFuture::passed(self.inner.call(Request::from_parts(parts, body)))
            }
            Course::Rejected(response) => {
                drop(self.take_ready());
                ResponseFuture::rejected(response)
            }
        }
    }
}

impl<S: Clone> RateLimit<S> {
    /// The service that `poll_ready` made ready. The clone that takes its place is not.
    fn take_ready(&mut self) -> S {
        let clone = self.inner.clone();
        mem::replace(&mut self.inner, clone)
    }
}
