//! The state of a key, and resets.

use std::sync::Arc;

use serde::Serialize;

use super::limits::Units;
use crate::admin::ask::Ask;
use crate::admin::events;
use crate::admin::problem::Problem;
use crate::admin::routes::{Answer, json};
use crate::admin::shown::Seconds;
use crate::admin::site::Site;
use crate::limit::{Key, Verdict};

#[derive(Serialize)]
struct States<'a> {
    key: &'a str,
    counters: Vec<State<'a>>,
}

#[derive(Serialize)]
struct State<'a> {
    policy: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    set_limit: Option<Units>,
    used: u64,
    attempts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u32>,
    reset_after_seconds: Seconds,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<Seconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked_for_seconds: Option<Seconds>,
}

impl<'a> State<'a> {
    fn of(policy: &'a str, verdict: &Verdict) -> Self {
        let set_limit = verdict.stored_limit();
        let is_limited = !set_limit.is_some_and(|limit| limit.is_exempt());
        Self {
            policy,
            allowed: verdict.is_allowed(),
            limit: Some(verdict.policy().limit()).filter(|_| is_limited),
            set_limit: set_limit.map(Units),
            used: verdict.used(),
            attempts: verdict.attempts(),
            remaining: Some(verdict.remaining()).filter(|_| is_limited),
            reset_after_seconds: Seconds(verdict.reset_after()),
            retry_after_seconds: verdict.retry_after().map(Seconds),
            blocked_for_seconds: verdict.blocked_for().map(Seconds),
        }
    }
}

/// What a key has used, under one policy or under each.
pub(in crate::admin) async fn look(site: Arc<Site>, ask: Ask) -> Answer {
    let key = ask.required_key("key")?;
    let mut counters = Vec::new();
    for listed in site.one_or_all(ask.get("policy"))? {
        let decision = listed.limiter.peek(&key).await?;
        let states = decision.verdicts();
        counters.extend(states.map(|verdict| State::of(&listed.id, verdict)));
    }
    json(&States {
        key: key.as_str(),
        counters,
    })
}

#[derive(Serialize)]
struct Resets<'a> {
    units: u64,
    policies: Vec<Reset<'a>>,
}

#[derive(Serialize)]
struct Reset<'a> {
    policy: &'a str,
    units: u64,
}

/// What is to be reset.
enum Scope {
    Key(Key),
    Under(Key),
    All,
}

impl Scope {
    /// Never all for want of another parameter: `key=$KEY` may have been left out by mistake.
    fn of(ask: &Ask) -> Result<Self, Problem> {
        match (ask.key("key")?, ask.key("under")?, ask.is_all()?) {
            (Some(key), None, false) => Ok(Self::Key(key)),
            (None, Some(key), false) => Ok(Self::Under(key)),
            (None, None, true) if ask.get("policy").is_some() => Ok(Self::All),
            (None, None, true) => Err(Problem::invalid(
                "All keys are reset of one policy at a time: send the parameter policy too.",
            )),
            _ => Err(Problem::invalid(
                "Send one of three: key for a key, under for it and all that begin with its parts, all=true for all keys of a policy.",
            )),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Key(_) => "key",
            Self::Under(_) => "under",
            Self::All => "all",
        }
    }
}

/// Forgets what was used, under each policy whose store answers, whatever became of others.
pub(in crate::admin) async fn reset(site: Arc<Site>, ask: Ask) -> Answer {
    let scope = Scope::of(&ask)?;
    let mut policies = Vec::new();
    let mut failure = None;
    for listed in site.one_or_all(ask.get("policy"))? {
        let limiter = &listed.limiter;
        let reset = match &scope {
            Scope::Key(key) => limiter.reset(key).await,
            Scope::Under(key) => limiter.reset_under(key).await,
            Scope::All => limiter.reset_policy(limiter.policy().as_name()).await,
        };
        let units = match reset {
            Ok(units) => units,
            Err(error) => {
                failure.get_or_insert(error);
                continue;
            }
        };
        events::reset(&listed.id, scope.name(), units);
        let policy = &*listed.id;
        policies.push(Reset { policy, units });
    }
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    let units = policies.iter().map(|policy| policy.units);
    json(&Resets {
        units: units.fold(0, u64::saturating_add),
        policies,
    })
}
