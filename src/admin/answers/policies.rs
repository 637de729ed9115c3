//! Policies, and what they are set to.

use std::sync::Arc;

use serde::Serialize;

use crate::admin::ask::Ask;
use crate::admin::routes::{Answer, json};
use crate::admin::shown::Seconds;
use crate::admin::site::{Listed, Site};
use crate::limit::{Algorithm, Policy};
use crate::limiter::FailureMode;

#[derive(Serialize)]
struct Page<'a> {
    policies: Vec<Shown<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<&'a str>,
}

#[derive(Serialize)]
struct Shown<'a> {
    id: &'a str,
    name: &'a str,
    shadow: bool,
    algorithm: &'static str,
    limit: u32,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    other_limits: &'a [u32],
    window_seconds: Seconds,
    #[serde(flatten)]
    bucket: Option<Bucket>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<Block>,
    leases: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    keyed_by: Option<&'a str>,
    store: String,
    on_store_failure: &'static str,
}

#[derive(Serialize)]
struct Bucket {
    burst: u32,
    rate: u32,
    rate_seconds: Seconds,
}

#[derive(Serialize)]
struct Block {
    after_refusals: u32,
    seconds: Seconds,
}

impl<'a> Shown<'a> {
    fn of(listed: &'a Listed) -> Self {
        let (policy, limiter) = (listed.policy(), &listed.limiter);
        Self {
            id: &listed.id,
            name: policy.as_name(),
            shadow: limiter.is_shadow(),
            algorithm: policy.algorithm().word(),
            limit: policy.limit(),
            other_limits: &listed.other_limits,
            window_seconds: Seconds(policy.window()),
            bucket: Bucket::of(policy),
            block: policy.blocking().map(|blocking| Block {
                after_refusals: blocking.after,
                seconds: Seconds(blocking.lasts),
            }),
            leases: policy.is_leased() && policy.algorithm().keeps_units(),
            keyed_by: listed.keyed_by.as_deref(),
            store: limiter.shared_store().name().to_owned(),
            on_store_failure: match limiter.failure_mode() {
                FailureMode::Local => "local",
                FailureMode::Open => "open",
                FailureMode::Closed => "closed",
            },
        }
    }
}

impl Bucket {
    fn of(policy: &Policy) -> Option<Self> {
        (policy.algorithm() == Algorithm::TokenBucket).then(|| Self {
            burst: policy.limit(),
            rate: policy.rate(),
            rate_seconds: Seconds(policy.period()),
        })
    }
}

/// All policies, a page at a time.
pub(in crate::admin) async fn list(site: Arc<Site>, ask: Ask) -> Answer {
    let limit = ask.limit()?;
    let rest = site.policies_after(ask.get("after"));
    let page = &rest[..limit.min(rest.len())];
    let has_more = page.len() < rest.len();
    json(&Page {
        policies: page.iter().map(Shown::of).collect(),
        next: page.last().filter(|_| has_more).map(|listed| &*listed.id),
    })
}

/// One policy.
pub(in crate::admin) async fn one(site: Arc<Site>, ask: Ask) -> Answer {
    json(&Shown::of(site.policy(ask.required("policy")?)?))
}
