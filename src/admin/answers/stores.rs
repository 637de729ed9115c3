//! How the stores are.

use std::sync::Arc;

use serde::Serialize;

use crate::admin::ask::Ask;
use crate::admin::routes::{Answer, json};
use crate::admin::shown::Seconds;
use crate::admin::site::Site;
use crate::store::StoreHealth;

#[derive(Serialize)]
struct Stores<'a> {
    stores: Vec<Shown<'a>>,
}

#[derive(Serialize)]
struct Shown<'a> {
    name: String,
    policies: Vec<&'a str>,
    answers: bool,
    closed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    failing: Option<Failing>,
    breaker_open: bool,
    waiting: usize,
    audit_dropped: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wal_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Failing {
    for_seconds: Seconds,
    cause: String,
    unanswered: u64,
    decided_without: u64,
}

impl Failing {
    fn of(health: &StoreHealth) -> Option<Self> {
        let (failing_for, cause) = (health.failing_for()?, health.cause()?);
        Some(Self {
            for_seconds: Seconds(failing_for),
            // With what the database said.
            cause: format!("{cause:?}"),
            unanswered: health.unanswered(),
            decided_without: health.decided_without(),
        })
    }
}

pub(in crate::admin) async fn list(site: Arc<Site>, _: Ask) -> Answer {
    let stores = site.stores().map(|(store, policies)| {
        let health = store.report();
        Shown {
            name: health.name().to_owned(),
            policies,
            answers: health.is_answering(),
            closed: health.is_closed(),
            failing: Failing::of(&health),
            breaker_open: health.is_breaker_open(),
            waiting: health.waiting(),
            audit_dropped: health.audit_dropped(),
            file_bytes: health.file_bytes(),
            wal_bytes: health.wal_bytes(),
        }
    });
    json(&Stores {
        stores: stores.collect(),
    })
}
