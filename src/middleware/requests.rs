//! What the head of a request decides: whether it counts, how many units it uses, and under which policies.

use std::sync::Arc;

use http::Method;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::request::Parts;

use super::events::{self, Told};
use super::settings::Settings;
use crate::key::{KeyError, KeyExtractor as _, KeySource, NetworkError, Networks};
use crate::limit::few::Few;
use crate::limit::{Mistake, Policy};
use crate::limiter::Limiter;
use crate::store::Part;

type Cost = Arc<dyn Fn(&Parts) -> u32 + Send + Sync>;
type Skip = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;
type ChooseName = Arc<dyn Fn(&Parts) -> &str + Send + Sync>;
type ComputePolicy = Arc<dyn Fn(&Parts) -> Option<Policy> + Send + Sync>;

/// What a layer is set to that depends on the request.
#[derive(Clone, Default)]
pub(super) struct Requests {
    pub(super) cost: Option<Cost>,
    pub(super) skips: Vec<Skip>,
    pub(super) networks: Networks,
    pub(super) choice: Option<Choice>,
    /// Whether a choice that can't be made was told.
    told_choice: Told,
    /// Whether a cost that is not charged was told.
    pub(super) told_cost: Told,
}

/// Which of the policies that share the layer's key apply to a request.
#[derive(Clone)]
pub(super) enum Choice {
    /// The one of this name.
    OneOf(ChooseName),
    /// One that is made for the request, in place of the layer's only one.
    Computed(ComputePolicy),
}

impl Settings {
    /// What depends on the request, to be set.
    pub(super) fn requests_mut(&mut self) -> &mut Requests {
        self.requests.get_or_insert_default()
    }

    /// Whether the policy is the only one that shares the layer's key, and none of a set to choose from.
    pub(super) fn has_only_policy(&self) -> bool {
        let requests = self.requests.as_ref();
        let choice = requests.and_then(|requests| requests.choice.as_ref());
        self.sharing() == 1 && !matches!(choice, Some(Choice::OneOf(_)))
    }

    /// Refuses networks where the layer's key is not made of an address.
    pub(super) fn check_addresses(&self) -> Result<(), NetworkError> {
        let requests = self.requests.as_ref();
        let has_networks = requests.is_some_and(|requests| !requests.networks.is_empty());
        if has_networks && !self.key.key.has_address() {
            return Err(NetworkError::NoAddress(
                self.key.key.describe().into_owned(),
            ));
        }
        Ok(())
    }

    /// Whether the request is none of the limit's business.
    pub(super) fn is_exempt(&self, head: &Parts) -> bool {
        let requests = self.requests.as_ref();
        requests.is_some_and(|requests| requests.is_exempt(head, &self.key.key))
    }

    /// The units that a request uses.
    pub(super) fn cost(&self, head: &Parts) -> u32 {
        let requests = self.requests.as_ref();
        requests.map_or(1, |requests| requests.cost(head))
    }

    /// Those of the parts that apply to a request.
    pub(super) fn chosen(
        &self,
        requests: &Requests,
        head: &Parts,
        parts: Few<Part>,
    ) -> Result<Few<Part>, KeyError> {
        let Some(choice) = &requests.choice else {
            return Ok(parts);
        };
        let chosen = choice.apply(head, &self.limiter, parts, self.sharing());
        if let Err(error) = &chosen {
            let policy = self.limiter.policy();
            events::setup_incomplete(&requests.told_choice, policy, "policy", error);
        }
        chosen
    }
}

impl Requests {
    fn cost(&self, head: &Parts) -> u32 {
        self.cost.as_ref().map_or(1, |cost| cost(head))
    }

    fn is_exempt(&self, head: &Parts, key: &KeySource) -> bool {
        self.skips.iter().any(|skip| skip(head))
            || (!self.networks.is_empty()
                && key
                    .address(head)
                    .is_some_and(|address| self.networks.contain(address)))
    }
}

impl Choice {
    /// The parts that apply, of all that a limiter has. The first `sharing` of them are those to choose from.
    fn apply(
        &self,
        head: &Parts,
        limiter: &Limiter,
        parts: Few<Part>,
        sharing: usize,
    ) -> Result<Few<Part>, KeyError> {
        match self {
            Self::OneOf(choose_name) => {
                let name = choose_name(head);
                let chosen = parts.iter().take(sharing);
                let mut chosen = chosen.filter(|part| {
                    let policy = part.policy().as_name();
                    policy.eq_ignore_ascii_case(name)
                });
                let first = chosen.next().ok_or_else(unknown_plan)?;
                let always = parts.iter().skip(sharing);
                Ok(Few::collect([first].into_iter().chain(always).cloned())
                    .unwrap_or_else(|| Few::one(first.clone())))
            }
            Self::Computed(compute) => match compute(head) {
                None => Ok(parts),
                Some(policy) => {
                    let name = policy.as_name();
                    let mut always = limiter.policies().skip(sharing);
                    if always.any(|other| other.as_name().eq_ignore_ascii_case(name)) {
                        return Err(taken_name(name));
                    }
                    let key = parts.first().key.clone();
                    let mut computed = Some(limiter.part(policy, key));
                    Ok(parts.into_map(|part| computed.take().unwrap_or(part)))
                }
            },
        }
    }
}

/// Neither what was asked for is told, which may be what the client has sent, nor which plans there are: the client reads it.
fn unknown_plan() -> KeyError {
    let message = "the request's rate limit is chosen by a name that none of its policies has: let one_of return the name of \
                   one of them";
    KeyError::server(message).named(Mistake("unknown-plan"))
}

fn taken_name(name: &str) -> KeyError {
    KeyError::server(format!(
        "the policy of policy_for is named {name}, as one of those that apply beside it: give it a name of its own with \
         .name(\"…\")"
    ))
    .named(Mistake("computed-name"))
}

/// Whether a browser asks by this request what another one may do (Fetch, 4.8): OPTIONS alone does not.
pub(super) fn is_preflight(head: &Parts) -> bool {
    head.method == Method::OPTIONS
        && head.headers.contains_key(ORIGIN)
        && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}
