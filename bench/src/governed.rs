//! `tower_governor`, and `governor` without HTTP.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use http::Request;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::KeyExtractor;
use tower_governor::{GovernorError, GovernorLayer};

use crate::contestant::{Quota as Limited, WINDOW_SECONDS};
use crate::keys;

/// How soon a unit comes back: at once, so that nothing is ever refused, or never while it is measured.
fn period(quota: Limited) -> Duration {
    match quota {
        Limited::Endless => Duration::from_nanos(1),
        Limited::One => Duration::from_secs(WINDOW_SECONDS),
    }
}

/// The header's value, like the others take it.
#[derive(Clone)]
struct HeaderKey;

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

pub(crate) fn limit(router: Router, quota: Limited) -> Result<Router> {
    let config = GovernorConfigBuilder::default()
        .period(period(quota))
        .burst_size(quota.limit())
        .key_extractor(HeaderKey)
        .finish()
        .context("tower_governor takes no such quota")?;
    Ok(router.layer(GovernorLayer::new(Arc::new(config))))
}

pub(crate) fn limit_with_headers(router: Router, quota: Limited) -> Result<Router> {
    let config = GovernorConfigBuilder::default()
        .period(period(quota))
        .burst_size(quota.limit())
        .key_extractor(HeaderKey)
        .use_headers()
        .finish()
        .context("tower_governor takes no such quota")?;
    Ok(router.layer(GovernorLayer::new(Arc::new(config))))
}

/// The limiter that `tower_governor` is built on.
pub(crate) fn limiter() -> Result<DefaultKeyedRateLimiter<String>> {
    let endless = Limited::Endless;
    let burst = NonZeroU32::new(endless.limit()).context("a burst of 0")?;
    let quota = Quota::with_period(period(endless)).context("a period of 0")?;
    Ok(RateLimiter::keyed(quota.allow_burst(burst)))
}
