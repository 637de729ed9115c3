//! `tower_governor`, and `governor` without HTTP.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::Router;
use governor::clock::QuantaInstant;
use governor::middleware::{RateLimitingMiddleware, StateInformationMiddleware};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use http::Request;
use tower_governor::governor::{GovernorConfig, GovernorConfigBuilder};
use tower_governor::key_extractor::KeyExtractor;
use tower_governor::{GovernorError, GovernorLayer};

use crate::contestant::{Quota as Limited, WINDOW_SECONDS};
use crate::keys::{self, Keys};
use crate::refusal;

const NO_SUCH_QUOTA: &str = "tower_governor takes no such quota";

/// How soon a unit comes back: at once, so that nothing is ever refused, or never while it is measured.
fn period(quota: Limited) -> Duration {
    match quota {
        Limited::Endless => Duration::from_nanos(1),
        Limited::One => Duration::from_secs(WINDOW_SECONDS),
    }
}

/// The header's value, like the others take it.
#[derive(Clone)]
pub(crate) struct HeaderKey;

impl KeyExtractor for HeaderKey {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> Result<String, GovernorError> {
        let value = request.headers().get(keys::HEADER);
        value
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
            .ok_or(GovernorError::UnableToExtractKey)
    }
}

pub(crate) fn settings(quota: Limited) -> String {
    let (burst, period) = (quota.limit(), period(quota));
    format!("a burst of {burst}, 1 more each {period:?}, in memory, keyed by a String")
}

pub(crate) fn settings_with_headers(quota: Limited) -> String {
    let refusals = match quota {
        Limited::Endless => "",
        Limited::One => ", refusals with the fields and the body of tollgate's",
    };
    format!("{}, use_headers(){refusals}", settings(quota))
}

/// As it is by default: its own answer to what it refuses.
pub(crate) fn limit(router: Router, quota: Limited, filled: Keys) -> Result<Router> {
    let config = GovernorConfigBuilder::default()
        .period(period(quota))
        .burst_size(quota.limit())
        .key_extractor(HeaderKey)
        .finish()
        .context(NO_SUCH_QUOTA)?;
    fill(&config, filled)?;
    Ok(router.layer(GovernorLayer::new(config)))
}

/// With as much told to the client as this crate does.
pub(crate) fn limit_with_headers(router: Router, quota: Limited, filled: Keys) -> Result<Router> {
    let layer = layer_with_headers(quota, filled)?;
    Ok(router.layer(layer.error_handler(move |_| refusal::answer(quota.limit()))))
}

/// The layer that it is, for any response.
pub(crate) fn layer_with_headers<B>(
    quota: Limited,
    filled: Keys,
) -> Result<GovernorLayer<HeaderKey, StateInformationMiddleware, B>> {
    let config = GovernorConfigBuilder::default()
        .period(period(quota))
        .burst_size(quota.limit())
        .key_extractor(HeaderKey)
        .use_headers()
        .finish()
        .context(NO_SUCH_QUOTA)?;
    fill(&config, filled)?;
    Ok(GovernorLayer::new(config))
}

/// Counts one request of each key.
fn fill<M>(config: &GovernorConfig<HeaderKey, M>, keys: Keys) -> Result<()>
where
    M: RateLimitingMiddleware<QuantaInstant>,
{
    for value in keys.values() {
        let is_allowed = config.limiter().check_key(&value).is_ok();
        ensure!(is_allowed, "tower_governor refuses a first request");
    }
    Ok(())
}

/// The limiter that `tower_governor` is built on.
pub(crate) fn limiter() -> Result<DefaultKeyedRateLimiter<String>> {
    let endless = Limited::Endless;
    let burst = NonZeroU32::new(endless.limit()).context("a burst of 0")?;
    let quota = Quota::with_period(period(endless)).context("a period of 0")?;
    Ok(RateLimiter::keyed(quota.allow_burst(burst)))
}
