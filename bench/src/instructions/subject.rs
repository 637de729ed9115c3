//! What is counted: a limiter, or a service, that answers at once.

use std::convert::Infallible;
use std::hint::black_box;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use anyhow::{Result, ensure};
use axum::body::Body;
use clap::ValueEnum;
use http::{HeaderValue, Request, Response};
use tokio::task::JoinSet;
use tollgate::{Key, Limiter, ManualClock, Policy, RateLimitLayer, SqliteStore, Timestamp, key};
use tower::{Layer, Service, ServiceExt};

use crate::contestant::{LIMIT, Quota, WINDOW_SECONDS};
use crate::governed;
use crate::keys::{HEADER, Keys, Picker};

/// Requests of each key, and of all of them, until each has a lease that lasts, or is known to be over.
const WARM_UP_OF_KEY: usize = 24;
const WARM_UP_OF_ALL: usize = 200_000;
/// So many at a time, since the first ones go to the database.
const AT_A_TIME: usize = 512;

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Subject {
    Governor,
    Lease,
    Refusal,
    NoLayer,
    GovernorLayer,
    LayerLease,
    LayerRefusal,
}

impl Subject {
    pub(super) const ALL: [Self; 7] = [
        Self::Governor,
        Self::Lease,
        Self::Refusal,
        Self::NoLayer,
        Self::GovernorLayer,
        Self::LayerLease,
        Self::LayerRefusal,
    ];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Governor => "governor, check_key",
            Self::Lease => "tollgate, Limiter::check, from a lease",
            Self::Refusal => "tollgate, Limiter::check, known to be over",
            Self::NoLayer => "a service that says hello, and its request",
            Self::GovernorLayer => "the same behind tower_governor, with headers, let pass",
            Self::LayerLease => "the same behind a layer of tollgate, let pass",
            Self::LayerRefusal => "the same behind a layer of tollgate, refused",
        }
    }

    /// The name that the command line knows it by.
    pub(super) fn argument(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn limit(self) -> u32 {
        match self {
            Self::Refusal | Self::LayerRefusal => 1,
            _ => LIMIT,
        }
    }
}

/// Does what is counted so often.
pub(super) async fn count(
    subject: Subject,
    keys: Keys,
    database: &Path,
    decisions: u64,
) -> Result<()> {
    let policy = Policy::fixed(subject.limit(), WINDOW_SECONDS).name("bench");
    // It stands still, so that no lease ends in the middle.
    let clock = ManualClock::new(Timestamp::from_unix_millis(1_800_000_000_000));
    let store = SqliteStore::open(database).await?.clock(&clock);
    // Callgrind makes everything slower.
    let store = store.deadline(Duration::from_secs(10));
    let values = keys.values();
    let mut picker = Picker::new(0, values.len());
    match subject {
        Subject::Governor => {
            let limiter = governed::limiter()?;
            for value in &values {
                ensure!(limiter.check_key(value).is_ok(), "a decision was refused");
            }
            count_these(decisions, || {
                limiter.check_key(&values[picker.pick()]).is_ok()
            })
        }
        Subject::Lease | Subject::Refusal => {
            let limiter = Limiter::new(policy).store(&store);
            let keys = values.iter().map(|value| Key::new("client", &**value));
            let keys: Vec<_> = keys.collect();
            warm_up(keys.len(), |index| {
                let (limiter, key) = (limiter.clone(), keys[index].clone());
                async move { Ok(limiter.check(&key).await.map(drop)?) }
            })
            .await?;
            let is_allowed = subject == Subject::Lease;
            count_these(decisions, || {
                let decision = at_once(limiter.check(&keys[picker.pick()]));
                decision.is_some_and(|decision| {
                    decision.is_ok_and(|decision| decision.is_allowed() == is_allowed)
                })
            })
        }
        Subject::NoLayer | Subject::GovernorLayer | Subject::LayerLease | Subject::LayerRefusal => {
            let values = values.iter().map(|value| HeaderValue::from_str(value));
            let values: Vec<_> = values.collect::<Result<_, _>>()?;
            let hello = tower::service_fn(hello);
            if subject == Subject::NoLayer {
                return count_these(decisions, || {
                    status(&mut hello.clone(), &values[picker.pick()]) == Some(200)
                });
            }
            if subject == Subject::GovernorLayer {
                let mut service = governed::layer_with_headers(Quota::Endless, keys)?.layer(hello);
                return count_these(decisions, || {
                    status(&mut service, &values[picker.pick()]) == Some(200)
                });
            }
            let layer = RateLimitLayer::new(policy).key(key::header(HEADER));
            let mut service = layer.store(&store).layer(hello);
            warm_up(values.len(), |index| {
                let called = service.clone().oneshot(request(&values[index]));
                async { Ok(called.await.map(drop)?) }
            })
            .await?;
            let expected = if subject == Subject::LayerLease {
                200
            } else {
                429
            };
            count_these(decisions, || {
                status(&mut service, &values[picker.pick()]) == Some(expected)
            })
        }
    }
}

/// The function that callgrind looks for: all that it calls is counted.
#[inline(never)]
fn count_these(decisions: u64, mut decide: impl FnMut() -> bool) -> Result<()> {
    let as_expected = (0..decisions).filter(|_| black_box(decide())).count();
    ensure!(
        as_expected as u64 == decisions,
        "{as_expected} of {decisions} were decided at once, and as expected"
    );
    Ok(())
}

async fn warm_up<F>(keys: usize, ask: impl Fn(usize) -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    for round in 0..WARM_UP_OF_KEY.max(WARM_UP_OF_ALL / keys) {
        for first in (0..keys).step_by(AT_A_TIME) {
            let mut asking = JoinSet::new();
            for index in first..keys.min(first + AT_A_TIME) {
                if round < 3 {
                    asking.spawn(ask(index));
                } else {
                    ask(index).await?;
                }
            }
            while let Some(asked) = asking.join_next().await {
                asked??;
            }
        }
    }
    Ok(())
}

async fn hello(_: Request<()>) -> Result<Response<Body>, Infallible> {
    Ok(Response::new(Body::from("hello")))
}

fn request(value: &HeaderValue) -> Request<()> {
    let mut request = Request::new(());
    request.headers_mut().insert(HEADER, value.clone());
    request
}

/// The status of an answer that is there at once.
fn status<S, B>(service: &mut S, value: &HeaderValue) -> Option<u16>
where
    S: Service<Request<()>, Response = Response<B>>,
{
    let mut context = Context::from_waker(Waker::noop());
    if service.poll_ready(&mut context).is_pending() {
        return None;
    }
    let response = at_once(service.call(request(value)))?.ok()?;
    Some(response.status().as_u16())
}

fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
