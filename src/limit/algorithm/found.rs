//! What became of a charge: all of its policies decide together.

use super::State;
use crate::limit::few::Few;
use crate::limit::{InForce, Policy, Timestamp};

/// What became of a charge under one policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Whether this policy had room for the charge, and its key is not blocked.
    pub(crate) fits: bool,
    /// The state right after the charge, before any later one.
    pub(crate) state: State,
    /// Until when the key is blocked, if it is.
    pub(crate) blocked_until: Option<Timestamp>,
    /// The limit that it was held to, when it was set at run time.
    pub(crate) in_force: Option<InForce>,
    /// Whether the store has said so. A charge that is known to be over is refused whatever else it is about.
    pub(crate) is_known: bool,
}

impl Found {
    pub(crate) fn new(fits: bool, state: State) -> Self {
        Self {
            fits,
            state,
            blocked_until: None,
            in_force: None,
            is_known: true,
        }
    }

    /// Of what nobody has asked for.
    #[cfg(feature = "_engine")]
    pub(crate) fn unknown(unused: State) -> Self {
        Self {
            is_known: false,
            ..Self::new(true, unused)
        }
    }
}

/// Charges all of the states or none of them: what does not fit counts the attempt, the others stay as they are. What is
/// forced is not asked whether it fits. Beside a state its policy's block may stand.
pub(crate) fn charge(
    parts: &Few<(&Policy, State)>,
    cost: u32,
    now: Timestamp,
    is_forced: bool,
) -> Few<Found> {
    let fits = |(policy, state): &(&Policy, State)| is_forced || state.fits(policy, cost, now);
    let is_admitted = parts.iter().all(fits);
    let is_refused_by = |policy: &Policy, by_block: bool| {
        let mut own = parts
            .iter()
            .filter(|(other, state)| state.is_block() == by_block && *other == policy);
        own.any(|part| !fits(part))
    };
    let found = parts.map(|part| {
        let (policy, mut state) = *part;
        let fits = is_admitted || fits(part);
        match &mut state {
            State::Block(block) if is_admitted && !is_forced => block.admit(),
            State::Block(block) if fits && is_refused_by(policy, false) => block.refuse(now),
            State::Block(_) => {}
            _ if is_admitted => state.take(cost),
            _ if !fits || is_refused_by(policy, true) => state.refuse(cost),
            _ => {}
        }
        Found {
            in_force: policy.in_force(),
            ..Found::new(fits, state)
        }
    });
    with_blocks(parts, found)
}

/// What a charge would find, without making it.
pub(crate) fn look(parts: &Few<(&Policy, State)>, cost: u32, now: Timestamp) -> Few<Found> {
    let found = parts.map(|(policy, state)| Found {
        in_force: policy.in_force(),
        ..Found::new(state.fits(policy, cost, now), *state)
    });
    with_blocks(parts, found)
}

/// Tells the other states of each blocked policy so.
fn with_blocks(parts: &Few<(&Policy, State)>, mut found: Few<Found>) -> Few<Found> {
    if !parts.iter().any(|(_, state)| state.is_block()) {
        return found;
    }
    let blocks = parts.iter().zip(found.iter());
    let blocks: Vec<_> = blocks
        .filter_map(|((policy, _), found)| match found.state {
            State::Block(block) => {
                let until = block.until(policy).filter(|_| !policy.is_exempt());
                Some((*policy, found.fits, until))
            }
            _ => None,
        })
        .collect();
    for ((policy, state), found) in parts.iter().zip(found.iter_mut()) {
        let own = blocks.iter().find(|(other, ..)| other == policy);
        if let (Some((_, fits, until)), false) = (own, state.is_block()) {
            found.fits &= fits;
            found.blocked_until = *until;
        }
    }
    found
}
