//! What others are still to be told of: keys to which units went back in a cluster, whose nodes can't tell it themselves.
//!
//! The units are back by then. So that it can't be told now is no error: it is told with the next call.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::backend::Redis;
use super::limits;
use crate::clock;

/// Others are told of so many changes: of more than these nothing is kept, and what others know of them ends by its own time.
const MOST_UNTOLD: usize = 8_000;
/// After it could not be told it is tried again after so long: a node that stands still is waited for.
const PAUSE: Duration = Duration::from_secs(1);

/// The counters and keys that others are to be told of.
#[derive(Default)]
pub(super) struct Untold {
    freed: HashSet<(String, String)>,
    try_at: Option<Instant>,
}

impl Untold {
    pub(super) fn put(&mut self, freed: Vec<(String, String)>) {
        for of in freed {
            if self.freed.len() < MOST_UNTOLD {
                self.freed.insert(of);
            }
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        !self.freed.is_empty() && self.try_at.is_none_or(|try_at| try_at <= now)
    }
}

/// Tells what is still to be told, unless that has failed just now.
pub(super) async fn tell(redis: &mut Redis) {
    if redis.untold.is_due(clock::monotonic()) {
        tell_now(redis).await;
    }
}

/// Tells it a last time, when the store closes.
pub(super) async fn tell_last(redis: &mut Redis) {
    if !redis.untold.freed.is_empty() {
        tell_now(redis).await;
    }
}

async fn tell_now(redis: &mut Redis) {
    let freed = std::mem::take(&mut redis.untold.freed);
    redis.untold.try_at = None;
    if let Err(error) = limits::tell(redis, &freed).await {
        tracing::debug!(%error, "others could not be told which rate limits have room again, and will be later");
        // Of what was told all the same they only hear once more.
        redis.untold.freed = freed;
        redis.untold.try_at = Some(clock::monotonic() + PAUSE);
    }
}
