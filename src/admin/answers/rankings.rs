//! Which keys use most, and which are refused most.

use std::sync::Arc;

use serde::Serialize;

use crate::admin::ask::Ask;
use crate::admin::routes::{Answer, json};
use crate::admin::shown::instant;
use crate::admin::site::{Listed, Site};
use crate::limiter::{Counted, Top};

#[derive(Serialize)]
struct Ranking<'a> {
    keys: Vec<Ranked<'a>>,
    counted: Vec<Sum<'a>>,
}

/// A key under a policy.
#[derive(Serialize)]
struct Ranked<'a> {
    policy: &'a str,
    key: String,
    at_least: u64,
    at_most: u64,
}

/// What was counted of all keys of a policy.
#[derive(Serialize)]
struct Sum<'a> {
    policy: &'a str,
    since: String,
    total: u64,
    missing_at_most: u64,
}

pub(in crate::admin) async fn busiest(site: Arc<Site>, ask: Ask) -> Answer {
    ranking(&site, &ask, |listed| {
        listed.tally.busiest(listed.limiter.now())
    })
}

pub(in crate::admin) async fn refused(site: Arc<Site>, ask: Ask) -> Answer {
    ranking(&site, &ask, |listed| {
        listed.tally.most_refused(listed.limiter.now())
    })
}

/// There is no page after the first: until it is asked for, the ranks are others.
fn ranking(site: &Site, ask: &Ask, top: impl Fn(&Listed) -> Top) -> Answer {
    let limit = ask.limit()?;
    let mut keys: Vec<(&str, Counted)> = Vec::new();
    let mut counted = Vec::new();
    for listed in site.one_or_all(ask.get("policy"))? {
        let policy = &*listed.id;
        let top = top(listed);
        counted.push(Sum {
            policy,
            since: instant(top.since),
            total: top.total,
            missing_at_most: top.missing_at_most,
        });
        keys.extend(top.keys.into_iter().take(limit).map(|key| (policy, key)));
    }
    // Stable, and so of equals in the order of their policies.
    keys.sort_by(|(_, one), (_, other)| one.most_first(other));
    keys.truncate(limit);
    let ranked = |(policy, counted): (_, Counted)| Ranked {
        policy,
        key: counted.key.as_str().to_owned(),
        at_least: counted.at_least,
        at_most: counted.at_most,
    };
    json(&Ranking {
        keys: keys.into_iter().map(ranked).collect(),
        counted,
    })
}
