//! Limits that are set at run time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::{self, IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::admin::ask::Ask;
use crate::admin::events;
use crate::admin::problem::Problem;
use crate::admin::routes::{Answer, json};
use crate::admin::shown::{instant, read_instant};
use crate::admin::site::{Listed, Site};
use crate::limit::{Key, Limit, StoredLimit, Timestamp};
use crate::store::StoreError;

/// The longest window: what lasts longer has no end.
const LONGEST: Duration = Duration::from_hours(10 * 366 * 24);
const SHAPE: &str = "Send {\"limit\": 500}, or \"blocked\" or \"exempt\" in place of the number, and if it is to end one of \
                     \"ends_at\", an instant like \"2026-12-31T18:00:00Z\", and \"ends_after_seconds\", a whole number from 1 on.";

#[derive(Serialize)]
struct Page<'a> {
    policy: &'a str,
    limits: Vec<Shown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize)]
struct One<'a> {
    policy: &'a str,
    #[serde(flatten)]
    limit: Shown,
}

#[derive(Serialize)]
struct Shown {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    limit: Units,
    #[serde(skip_serializing_if = "Option::is_none")]
    ends_at: Option<String>,
}

/// A number, `blocked` or `exempt`.
pub(super) struct Units(pub(super) Limit);

impl Serialize for Units {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.units() {
            Some(units) if units > 0 => serializer.serialize_u32(units),
            _ => serializer.collect_str(&self.0),
        }
    }
}

impl Shown {
    fn new(key: Option<&Key>, limit: Limit, ends_at: Option<Timestamp>) -> Self {
        Self {
            key: key.map(|key| key.as_str().to_owned()),
            limit: Units(limit),
            ends_at: ends_at.map(instant),
        }
    }

    fn of(stored: &StoredLimit) -> Self {
        Self::new(stored.key(), stored.limit(), stored.ends_at())
    }
}

/// The limits of keys, a page at a time.
pub(in crate::admin) async fn list(site: Arc<Site>, ask: Ask) -> Answer {
    let (listed, limit) = (site.policy(ask.required("policy")?)?, ask.limit()?);
    let after = ask.key("after")?;
    // One more than that, to see whether there is another page.
    let most = u32::try_from(limit + 1).unwrap_or(u32::MAX);
    let (limiter, name) = (&listed.limiter, listed.policy().as_name());
    let stored = limiter.stored_limits(name, after.as_ref(), most).await?;
    let limits: Vec<_> = stored.iter().take(limit).map(Shown::of).collect();
    let last = limits.last().filter(|_| stored.len() > limit);
    let next = last.and_then(|last| last.key.clone());
    json(&Page {
        policy: &listed.id,
        limits,
        next,
    })
}

/// Whose limit it is: that of a key, or with `None` that of all which have none of their own.
struct Whose<'a> {
    listed: &'a Listed,
    key: Option<Key>,
}

impl<'a> Whose<'a> {
    /// Never all for want of a key: `key=$KEY` may have been left out by mistake.
    fn of(site: &'a Site, ask: &Ask) -> Result<Self, Problem> {
        let listed = site.policy(ask.required("policy")?)?;
        match (ask.key("key")?, ask.is_all()?) {
            (None, false) | (Some(_), true) => Err(Problem::invalid(
                "Send one of two: key for a key, all=true for all keys of the policy that have no limit of their own.",
            )),
            (key, _) => Ok(Self { listed, key }),
        }
    }

    fn name(&self) -> &str {
        self.listed.policy().as_name()
    }

    fn scope(&self) -> &'static str {
        if self.key.is_some() { "key" } else { "all" }
    }
}

/// One limit.
pub(in crate::admin) async fn one(site: Arc<Site>, ask: Ask) -> Answer {
    let whose = Whose::of(&site, &ask)?;
    let limiter = &whose.listed.limiter;
    let stored = limiter
        .stored_limit(whose.name(), whose.key.as_ref())
        .await?;
    match stored {
        Some(stored) => json(&One {
            policy: &whose.listed.id,
            limit: Shown::of(&stored),
        }),
        None => Err(Problem::not_found(
            "No limit was set here, or it has ended: the policy's own is in force.",
        )),
    }
}

/// What is sent to set one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    #[serde(deserialize_with = "units")]
    limit: Limit,
    ends_at: Option<String>,
    ends_after_seconds: Option<u64>,
}

/// Reads a number, `blocked` or `exempt`.
fn units<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Limit, D::Error> {
    deserializer.deserialize_any(UnitsVisitor)
}

struct UnitsVisitor;

impl Visitor<'_> for UnitsVisitor {
    type Value = Limit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of units, blocked or exempt")
    }

    fn visit_u64<E: de::Error>(self, units: u64) -> Result<Limit, E> {
        let units = u32::try_from(units).map(Limit::of);
        units.map_err(|_| E::custom("more units than there are"))
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<Limit, E> {
        match word {
            "blocked" => Ok(Limit::BLOCKED),
            "exempt" => Ok(Limit::EXEMPT),
            _ => Err(E::custom("another word")),
        }
    }
}

impl New {
    fn read(body: &[u8]) -> Result<Self, Problem> {
        let read = serde_json::from_slice(body).map_err(|_| {
            // It may be no JSON only behind what was wrong first.
            match serde_json::from_slice::<IgnoredAny>(body) {
                Ok(_) => Problem::invalid(SHAPE),
                Err(_) => Problem::bad_request(format!("The body is no JSON. {SHAPE}")),
            }
        });
        // An array would do for serde, by the order in which the members are declared here.
        read.and_then(|new| match body.trim_ascii_start().first() {
            Some(b'{') => Ok(new),
            _ => Err(Problem::invalid(SHAPE)),
        })
    }

    fn ends_at(&self, now: Timestamp) -> Result<Option<Timestamp>, Problem> {
        match (&self.ends_at, self.ends_after_seconds) {
            (None, None) => Ok(None),
            (Some(ends_at), None) => match read_instant(ends_at) {
                Some(ends_at) => Ok(Some(ends_at)),
                None => Err(Problem::invalid(SHAPE)),
            },
            (None, Some(seconds)) => {
                let lasts = Duration::from_secs(seconds);
                if lasts > LONGEST {
                    return Err(Problem::invalid(
                        "The limit would last for more than ten years: leave its end out.",
                    ));
                }
                Ok(Some(now.saturating_add(lasts)))
            }
            (Some(_), Some(_)) => Err(Problem::invalid(SHAPE)),
        }
    }
}

/// Sets a limit.
pub(in crate::admin) async fn set(site: Arc<Site>, ask: Ask) -> Answer {
    let whose = Whose::of(&site, &ask)?;
    let new = New::read(ask.body())?;
    let limiter = &whose.listed.limiter;
    let (limit, ends_at) = (new.limit, new.ends_at(limiter.now())?);
    let ending = ends_at.map_or(limit, |ends_at| limit.ends_at(ends_at));
    let key = whose.key.as_ref();
    match limiter.set_limit(whose.name(), key, ending).await {
        Ok(()) => {}
        Err(StoreError::EndedLimit) => {
            return Err(Problem::invalid(
                "The limit has ended when it begins: send an end that is still to come, or none.",
            ));
        }
        Err(error) => return Err(error.into()),
    }
    events::limit_set(&whose.listed.id, whose.scope(), limit, ends_at.is_some());
    json(&One {
        policy: &whose.listed.id,
        limit: Shown::new(key, limit, ends_at),
    })
}

#[derive(Serialize)]
struct Removed {
    removed: bool,
}

/// Removes a limit.
pub(in crate::admin) async fn remove(site: Arc<Site>, ask: Ask) -> Answer {
    let whose = Whose::of(&site, &ask)?;
    let limiter = &whose.listed.limiter;
    let removed = limiter
        .remove_limit(whose.name(), whose.key.as_ref())
        .await?;
    events::limit_removed(&whose.listed.id, whose.scope());
    json(&Removed { removed })
}
