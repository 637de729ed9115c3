//! An allowed request, as it is recorded.

#![cfg_attr(
    not(feature = "_engine"),
    expect(dead_code, reason = "only a store in SQLite records")
)]

#[cfg(feature = "_engine")]
use std::sync::Arc;

#[cfg(feature = "_engine")]
use super::engine::Engine;
use crate::limit::Timestamp;

/// An allowed request. A store sees text here, as everywhere: what a method or a route is, is not its business.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    /// The policy's name.
    pub(crate) policy: &'a str,
    /// The key, as it is stored with the counters.
    pub(crate) key: &'a str,
    pub(crate) method: &'a str,
    /// Empty when it is not known.
    pub(crate) route: &'a str,
    /// `None` when nothing was answered.
    pub(crate) status: Option<u16>,
    pub(crate) units: u32,
    /// When it was decided.
    pub(crate) at: Timestamp,
}

/// Where allowed requests are recorded. Clones are the same place.
#[cfg(feature = "_engine")]
#[derive(Clone, Debug)]
pub(crate) struct CallLog(pub(super) Arc<Engine>);

#[cfg(feature = "_engine")]
impl CallLog {
    /// Records a request, or counts that it could not. It never waits.
    pub(crate) fn record(&self, call: &Call<'_>) {
        self.0.record(call);
    }
}

/// Without SQLite there is no such place.
#[cfg(not(feature = "_engine"))]
#[derive(Clone, Debug)]
pub(crate) enum CallLog {}

#[cfg(not(feature = "_engine"))]
impl CallLog {
    pub(crate) fn record(&self, _: &Call<'_>) {
        match *self {}
    }
}
