//! What each route answers: one file for each thing that is asked about.

pub(super) mod counters;
pub(super) mod limits;
pub(super) mod policies;
pub(super) mod rankings;
pub(super) mod stores;
pub(super) mod usage;
