//! Where the counters are: in one server, or in the nodes of a cluster.

use std::time::Instant;

use redis::Cmd;

use super::cluster::{Call, Cluster};
use super::names::Names;
use super::packed::Packed;
use super::scripts::Script;
use super::server::{Answer, Server};
use super::slots::slot_of;
use crate::limit::Timestamp;
use crate::store::StoreError;

/// Where the counters are.
pub(super) enum Servers {
    One(Box<Server>),
    Cluster(Box<Cluster>),
}

/// What one run of a script is asked.
pub(super) struct Ask {
    /// What the script calls the counters. All are in one slot; without any it is that of what all share.
    pub(super) names: Vec<String>,
    /// The names of what is there, as far as they can be told: a cluster looks at them while the slot moves.
    pub(super) declared: Vec<String>,
    pub(super) asked: Packed,
}

/// What each run is told beside what it is asked.
pub(super) struct Told<'a> {
    pub(super) names: &'a Names,
    /// The instant that a test has set, or one that was told from outside.
    pub(super) at: Option<i64>,
    pub(super) offset: i64,
}

impl Ask {
    /// What is asked of what all share.
    pub(super) fn shared(asked: Packed) -> Self {
        Self {
            names: Vec::new(),
            declared: Vec::new(),
            asked,
        }
    }
}

impl Servers {
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Runs a script for each thing that is asked, and answers each in its place.
    pub(super) async fn run(
        &mut self,
        script: Script,
        told: Told<'_>,
        asks: Vec<Ask>,
    ) -> Vec<Result<Answer, StoreError>> {
        let at = told.at.map_or_else(String::new, |at| at.to_string());
        let prefix = told.names.prefix();
        let arguments = |asked: Packed| {
            vec![
                prefix.as_bytes().to_vec(),
                at.clone().into_bytes(),
                told.offset.to_string().into_bytes(),
                asked.into_bytes(),
            ]
        };
        match self {
            Self::One(server) => {
                let mut answers = Vec::with_capacity(asks.len());
                for ask in asks {
                    let arguments = arguments(ask.asked);
                    answers.push(server.run(script, &ask.names, &arguments).await);
                }
                answers
            }
            Self::Cluster(cluster) => {
                let call = |ask: Ask| {
                    let mut keys = ask.declared;
                    if keys.is_empty() {
                        keys.push(told.names.shared());
                    }
                    let mut arguments = arguments(ask.asked);
                    let mut names = Packed::default();
                    names.list(ask.names.len());
                    for name in &ask.names {
                        names.text(name);
                    }
                    arguments.push(names.into_bytes());
                    Call {
                        slot: slot_of(&keys[0]),
                        keys,
                        arguments,
                    }
                };
                let calls: Vec<_> = asks.into_iter().map(call).collect();
                cluster.run(script, &calls).await
            }
        }
    }

    /// The time, as far ahead as that of any node which decides.
    pub(super) fn heard(&mut self, slot: u16, sent: Instant, at: Timestamp) -> Timestamp {
        match self {
            Self::One(_) => at,
            Self::Cluster(cluster) => cluster.heard(slot, sent, at),
        }
    }

    /// The first of them that has this place or one behind it.
    pub(super) async fn next(&mut self, place: usize) -> Result<Option<usize>, StoreError> {
        match self {
            Self::One(_) => Ok((place == 0).then_some(0)),
            Self::Cluster(cluster) => cluster.next(place).await,
        }
    }

    /// What is another one when something has moved between them.
    pub(super) fn moves(&self) -> u64 {
        match self {
            Self::One(_) => 0,
            Self::Cluster(cluster) => cluster.moves(),
        }
    }

    /// Asks one of them something without a script.
    pub(super) async fn ask(&mut self, place: usize, cmd: &Cmd) -> Result<Answer, StoreError> {
        match self {
            Self::One(server) => server.ask(cmd).await,
            Self::Cluster(cluster) => cluster.ask(place, cmd).await,
        }
    }

    pub(super) fn close(&mut self) {
        match self {
            Self::One(server) => server.close(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }
}
